"""What torch.export has taken for true of the sizes of a program's inputs: it has followed the module for such sizes
alone, and the program means nothing for others."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch.export import ExportedProgram

from opweld.frontend.torch.arithmetic import pair
from opweld.frontend.torch.builder import Builder, Value
from opweld.tensor.dtype import DType

_OPERATORS: Mapping[type[ast.operator], str] = {
    ast.Add: "Add",
    ast.Sub: "Sub",
    ast.Mult: "Mul",
    ast.FloorDiv: "Div",  # sizes are not negative
    ast.Mod: "Mod",
}


class _UnsaidError(Exception):
    """A part of a guard that no operator of sizes says."""


@dataclass(frozen=True)
class SizeGuard:
    """Two numbers made of sizes, of which the first is not less than the second."""

    text: str
    left: ast.expr
    right: ast.expr

    def values(self, b: Builder, inputs: Mapping[str, Value]) -> tuple[Value, Value] | None:
        """Both numbers, by the inputs' names; None where they are made of something else than sizes."""
        try:
            left, right = (_value(b, own, inputs) for own in (self.left, self.right))
        except _UnsaidError:
            return None
        return b.cast(left, DType.I64), b.cast(right, DType.I64)


def size_guards(program: ExportedProgram) -> Iterator[SizeGuard]:
    """The guards of a program, but for what only says that a size is no 0 or 1: the tracer asks that of every size that
    it might broadcast, of most without keeping it, and broadcasts are shapes' to decide here.

    `range_constraints`, which is public, has the range of each size, and nothing of several, nor of remainders."""
    for text in getattr(program, "_guards_code", None) or ():
        for test in _conjuncts(ast.parse(text, mode="eval").body):
            yield from _comparisons(test)


def sizes_told(text: str) -> str:
    """A text of PyTorch, where a size is `L['x'].size()[0]`, as a program says it: `x.shape[0]`."""
    return re.sub(r"L\['(\w+)'\]", r"\1", text).replace(".size()", ".shape")


def _conjuncts(test: ast.expr) -> Iterator[ast.expr]:
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        for own in test.values:
            yield from _conjuncts(own)
    else:
        yield test


def _comparisons(test: ast.expr) -> Iterator[SizeGuard]:
    """Those of a chain, as 2 <= n <= 8."""
    if not isinstance(test, ast.Compare):
        return
    operands = [test.left, *test.comparators]
    for left, comparison, right in zip(operands, test.ops, operands[1:], strict=False):
        text = sizes_told(ast.unparse(ast.Compare(left, [comparison], [right])))
        match comparison:
            case ast.Eq():
                yield SizeGuard(text, left, right)
                yield SizeGuard(text, right, left)
            case ast.GtE():
                yield SizeGuard(text, left, right)
            case ast.LtE():
                yield SizeGuard(text, right, left)
            case ast.Gt():
                yield SizeGuard(text, left, _next(right))
            case ast.Lt():
                yield SizeGuard(text, right, _next(left))
            case ast.NotEq() if not _is_asked_for_broadcasts(left, right):
                apart = ast.BinOp(left, ast.Sub(), right)
                yield SizeGuard(text, ast.BinOp(apart, ast.Mult(), apart), ast.Constant(1))
            case _:
                pass


def _is_asked_for_broadcasts(left: ast.expr, right: ast.expr) -> bool:
    """Whether it may be of a size that is no 0 or 1. Sizes are no remainders."""
    numbers = (0, 1)
    sides = ((left, right), (right, left))
    return any(isinstance(b, ast.Constant) and b.value in numbers and not _is_remainder(a) for a, b in sides)


def _is_remainder(number: ast.expr) -> bool:
    return isinstance(number, ast.BinOp) and isinstance(number.op, ast.Mod)


def _next(number: ast.expr) -> ast.expr:
    return ast.BinOp(number, ast.Add(), ast.Constant(1))


def _value(b: Builder, expression: ast.expr, inputs: Mapping[str, Value]) -> int | Value:
    match expression:
        case ast.Constant(value=int() as number):
            return number
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return pair(b, _OPERATORS[type(op)], _value(b, left, inputs), _value(b, right, inputs), DType.I64)
        case ast.Subscript(
            value=ast.Call(func=ast.Attribute(value=source, attr="size")), slice=ast.Constant(value=int() as axis)
        ):
            tensor = inputs.get("_".join(_path(source)))
            if tensor is None or tensor not in b.known:
                raise _UnsaidError
            return b.size(tensor, axis)
        case _:
            raise _UnsaidError


def _path(source: ast.expr) -> list[str]:
    """The keys of an argument, as of `L['cache']['keys'][0]`: joined they are the name of its placeholder."""
    match source:
        case ast.Name(id="L"):
            return []
        case ast.Subscript(value=outer, slice=ast.Constant(value=key)):
            return [*_path(outer), str(key)]
        case _:
            raise _UnsaidError

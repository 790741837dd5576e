"""Combines two numbers that are added to, or multiplied with, a value one after the other.

    (x + a) + b is x + (a + b), (x a) b is x (a b)

Integers wrap around and give the same in either order. Floats do up to rounding if neither number cancels the other:
(x + 1e8) - 1e8, which loses bits of x, and x 1e30 1e-30, which overflows, are not changed. Numbers are combined in
float64 and rounded once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from opweld.rewrite.rule import Proposal, Refusal, Rule
from opweld.rewrite.rules.rounding import unfit
from opweld.rewrite.scope import Array, Scope, operand

_SUMS, _PRODUCTS = ("Add", "Sub"), ("Mul", "Div")


@dataclass(frozen=True)
class _Step:
    """sign * x + number, or x * number; for floats the number is float64."""

    x: ir.Value
    number: Array
    sign: int = 1


class Constants(Rule):
    """(x + a) + b is x + (a + b), (x a) b is x (a b)"""

    name = "rewrite.constants"
    operators = (*_SUMS, *_PRODUCTS)

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        family = _SUMS if node.op_type in _SUMS else _PRODUCTS
        outer = _step(node, scope)
        first = None if outer is None else scope.producer(outer.x, *family)
        inner = None if first is None else _step(first, scope)
        if outer is None or first is None or inner is None or not scope.only_reader(outer.x):
            return None
        shape = np.broadcast_shapes(inner.number.shape, outer.number.shape)
        if shape not in (inner.number.shape, outer.number.shape):
            return Refusal("the numbers together are more than each", {"shape": str(shape)}, (first,))
        fact = scope.fact(node.outputs[0])
        if fact is None:
            return None
        dtype, product = fact.dtype.numpy, family is _PRODUCTS
        with np.errstate(all="ignore"):
            before = inner.number if product or outer.sign > 0 else -inner.number
            number = before * outer.number if product else before + outer.number
        if fact.dtype.is_float:
            refusal = _undone(before, outer.number, product, first) or unfit("numbers", number, dtype, None, (first,))
            if refusal is not None:
                return refusal
        sign = inner.sign * outer.sign

        def apply() -> None:
            stored = scope.store(node, np.asarray(number).astype(dtype))
            operands = [inner.x, stored] if sign > 0 else [stored, inner.x]
            operator = "Mul" if product else "Add" if sign > 0 else "Sub"
            scope.replace(node.outputs[0], scope.add(node, operator, operands))

        return Proposal("two numbers in a row are one", apply, (first,), scope.traffic(outer.x))


def _step(node: ir.Node, scope: Scope) -> _Step | None:
    """A node as one value and stored numbers; None if it has another form, or divides integers."""
    if "axis" in node.attributes or "broadcast" in node.attributes:
        return None
    for data, other in ((0, 1), (1, 0)):
        x, values = operand(node, data), scope.constant(operand(node, other))
        if x is None or values is None or values.dtype.kind not in "fiu" or scope.constant(x) is not None:
            continue
        number = values.astype(np.float64) if values.dtype.kind == "f" else values
        if node.op_type == "Sub":
            return _Step(x, np.negative(number)) if data == 0 else _Step(x, number, -1)
        if node.op_type == "Div":
            if data == 1 or values.dtype.kind != "f" or not np.all(number):
                return None
            number = 1 / number
        return _Step(x, number)
    return None


def _undone(a: Array, b: Array, product: bool, first: ir.Node) -> Refusal | None:
    """Why floats would differ by more than rounding."""
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return Refusal("a number is not finite", {"number": "not finite"}, (first,))
    if product:
        grows = np.abs(a) >= 1, np.abs(b) >= 1
        shrinks = np.abs(a) <= 1, np.abs(b) <= 1
        if not np.all((grows[0] & grows[1]) | (shrinks[0] & shrinks[1])):
            return Refusal("one number makes it larger, the other smaller", _numbers(a, b), (first,))
    elif np.any(np.sign(a) * np.sign(b) < 0):
        return Refusal("one number is added, the other subtracted", _numbers(a, b), (first,))
    return None


def _numbers(a: Array, b: Array) -> dict[str, int | str]:
    return {name: f"{float(numbers.flat[0]):g}" for name, numbers in (("first", a), ("second", b)) if numbers.size}

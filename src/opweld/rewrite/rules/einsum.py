"""An Einsum over one index as MatMul: bhqk,bhkd->bhqd, and others with transposed operands.

If that needs transpositions it is only written within an attention, which absorbs them: between queries and keys, and
weights and values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from opweld.rewrite.rule import Proposal, Refusal, Rule
from opweld.rewrite.scope import Scope, attribute, operand

WITH_ATTENTION = 23
"""The opset that introduced Attention."""

_ON_THE_WAY = ("Mul", "Div", "Add", "Where", "Cast")
"""Operators allowed between scores and their softmax."""


@dataclass(frozen=True)
class _Product:
    """Operands transposed by `orders`, multiplied, and transposed by `last`."""

    operands: tuple[ir.Value, ir.Value]
    orders: tuple[tuple[int, ...], tuple[int, ...]]
    last: tuple[int, ...]

    @property
    def transposed(self) -> int:
        """The number of transpositions that it needs."""
        return sum(order != tuple(range(len(order))) for order in (*self.orders, self.last))


class Einsum(Rule):
    """sum over k of a[..., m, k] b[..., k, n], in any order of the indices, as MatMul."""

    name = "rewrite.einsum"
    operators = ("Einsum",)

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        fact, found = scope.fact(node.outputs[0]), _products(node, scope)
        if fact is None or not fact.dtype.is_float or not found:
            return None
        best = min(found, key=lambda product: product.transposed)
        if best.transposed:
            if scope.opset < WITH_ATTENTION and not scope.contributed:
                return None
            if not _is_scores(node, scope) and scope.producer(operand(node, 0), "Softmax") is None:
                return Refusal("it needs transpositions, and is not in an attention", {"more": best.transposed})
        return Proposal("it is a product of matrices", lambda: _write(node, best, scope))


def _products(node: ir.Node, scope: Scope) -> list[_Product]:
    """The node as a product of its operands, and of its operands swapped; nothing if it is none."""
    equation = attribute(node, "equation", "")
    text = (equation.decode() if isinstance(equation, bytes) else str(equation)).replace(" ", "")
    terms, arrow, output = text.partition("->")
    letters = terms.split(",")
    if not arrow or len(letters) != 2 or not all(part.isalpha() for part in (*letters, output)):
        return []
    if any(len(set(part)) != len(part) for part in (*letters, output)):
        return []
    a, b = operand(node, 0), operand(node, 1)
    left, right = scope.shape(a), scope.shape(b)
    if a is None or b is None or left is None or right is None or (len(left), len(right)) != tuple(map(len, letters)):
        return []
    sizes = dict(zip(letters[0], left, strict=True)), dict(zip(letters[1], right, strict=True))
    if any(sizes[0][letter] != sizes[1][letter] for letter in sizes[0].keys() & sizes[1].keys()):
        return []  # an index of size 1 broadcasts
    found = [_product((a, b), letters, output), _product((b, a), letters[::-1], output)]
    return [product for product in found if product is not None]


def _product(operands: tuple[ir.Value, ir.Value], letters: Sequence[str], output: str) -> _Product | None:
    left, right = letters
    batch = [letter for letter in output if letter in left and letter in right]
    rows = [letter for letter in left if letter not in right]
    columns = [letter for letter in right if letter not in left]
    summed = [letter for letter in left if letter in right and letter not in output]
    if (len(rows), len(columns), len(summed)) != (1, 1, 1) or {*rows, *columns} - set(output):
        return None
    wanted = [*batch, *rows, *summed], [*batch, *summed, *columns]
    made = [*batch, *rows, *columns]
    orders = tuple(tuple(part.index(letter) for letter in order) for part, order in zip(letters, wanted, strict=True))
    return _Product(operands, (orders[0], orders[1]), tuple(made.index(letter) for letter in output))


def _is_scores(node: ir.Node, scope: Scope) -> bool:
    """Whether a softmax follows, with scaling and masking allowed in between."""
    while True:
        value = node.outputs[0]
        readers = scope.readers(value)
        if len(readers) != 1 or not scope.only_reader(value):
            return False
        (node,) = readers
        if node.op_type not in _ON_THE_WAY:
            return node.op_type == "Softmax"


def _write(node: ir.Node, found: _Product, scope: Scope) -> None:
    made: list[ir.Value] = []
    for value, order in zip(found.operands, found.orders, strict=True):
        if order != tuple(range(len(order))):
            shape = scope.shape(value) or ()
            value = scope.tell(
                scope.add(node, "Transpose", [value], perm=order), [shape[axis] for axis in order], value
            )
        made.append(value)
    result = scope.add(node, "MatMul", made)
    rows, columns = scope.shape(made[0]) or (), scope.shape(made[1]) or ()
    scope.tell(result, (*rows[:-1], *columns[-1:]), node.outputs[0])
    if found.last != tuple(range(len(found.last))):
        result = scope.add(node, "Transpose", [result], perm=found.last)
    scope.replace(node.outputs[0], result)

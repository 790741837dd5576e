"""Multiplies three matrices in the cheaper order: (A B) v is A (B v)."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import onnx_ir as ir

from opweld.rewrite.rule import Proposal, Refusal, Rule
from opweld.rewrite.scope import Scope, operand
from opweld.tensor.dim import Dim, as_dim, nonnegative, product
from opweld.tensor.dtype import DType


class Association(Rule):
    """(A B) C is A (B C), and vice versa, by the number of multiplications at every size."""

    name = "rewrite.association"
    operators = ("MatMul",)

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        for side in (0, 1):
            inner = scope.producer(operand(node, side), "MatMul")
            outer = operand(node, 1 - side)
            if inner is None or outer is None or not scope.only_reader(inner.outputs[0]):
                continue
            values = [*inner.inputs, outer] if side == 0 else [outer, *inner.inputs]
            shapes = [scope.shape(value) for value in values]
            sizes = _sizes(shapes)
            if sizes is None:
                continue
            now, then = _costs(sizes, first=side == 0)
            if nonnegative(then - now):
                continue
            if not nonnegative(now - then):
                return Refusal(
                    "which order costs less depends on sizes", {"now": str(now), "then": str(then)}, (inner,)
                )
            fact = scope.fact(node.outputs[0])
            if fact is None or fact.dtype is DType.F16:
                return Refusal(
                    "the intermediate product may overflow FLOAT16", {"value": node.outputs[0].name or ""}, (inner,)
                )

            return Proposal(
                "the other order costs less",
                functools.partial(_write, node, values, side == 0, scope),
                (inner,),
                scope.traffic(inner.outputs[0]),
            )
        return None


def _sizes(shapes: Sequence[tuple[Dim, ...] | None]) -> tuple[Dim, Dim, Dim, Dim, Dim] | None:
    """The batch size, and m, k, n, p of [m, k], [k, n], [n, p]; None where they are broadcast."""
    a, b, c = shapes
    if a is None or b is None or c is None or len(a) < 2 or len(b) < 2 or a[:-2] != b[:-2]:
        return None
    if len(c) == 1 and len(a) == 2:
        return as_dim(1), a[0], a[1], b[1], as_dim(1)
    if len(c) < 2 or c[:-2] != a[:-2]:
        return None
    return product(a[:-2]), a[-2], a[-1], b[-1], c[-1]


def _costs(sizes: tuple[Dim, Dim, Dim, Dim, Dim], first: bool) -> tuple[Dim, Dim]:
    """Multiplications as written and in the other order, `first` being whether A B is multiplied first as written."""
    count, m, k, n, p = sizes
    left, right = count * (m * k * n + m * n * p), count * (k * n * p + m * k * p)
    return (left, right) if first else (right, left)


def _write(node: ir.Node, values: Sequence[ir.Value | None], last: bool, scope: Scope) -> None:
    """Multiplies the last two of three first, or the first two."""
    a, b = values[1:] if last else values[:2]
    made, rows, columns = scope.add(node, "MatMul", [a, b]), scope.shape(a), scope.shape(b)
    if rows is not None and columns is not None:
        shape = rows[:-1] if len(columns) == 1 else (*rows[:-1], columns[-1])
        scope.tell(made, shape, node.outputs[0])
    operands = [values[0], made] if last else [made, values[2]]
    scope.replace(node.outputs[0], scope.add(node, "MatMul", operands))

"""Det: the product of the pivots of Gaussian elimination, one column for each step."""

from __future__ import annotations

from opweld import ir
from opweld.ops.arithmetic import accumulator, apply, div, mul, sub, where
from opweld.ops.emitted import Indices, define
from opweld.ops.fact import Fact
from opweld.ops.loop import loop_over
from opweld.ops.operands import require_float, require_rank, required
from opweld.ops.registry import Inference, Lowering, infers, lowers
from opweld.tensor.dim import Axis, Value
from opweld.tensor.expr import Expr, at_least_zero, binary, cast, const, index, reduce, unary


@infers("Det")
def infer_det(scope: Inference, node: ir.Node) -> list[Fact]:
    """[..., n, n] -> [...]"""
    fact = require_float(require_rank(scope.fact(required(node, 0)), 2, node), node)
    scope.same(fact.shape[-2], fact.shape[-1], node, "a determinant is of square matrices")
    return [Fact(fact.dtype, fact.shape[:-2])]


@lowers("Det")
def lower_det(scope: Lowering, node: ir.Node) -> None:
    """Each step takes the largest remaining element of its column as pivot, swaps its row up, and subtracts multiples
    of that row from those below. A swap changes the sign."""
    x = required(node, 0)
    fact = scope.fact(x)
    batch, n, dtype = fact.shape[:-2], fact.shape[-1], accumulator(fact.dtype)
    if n.constant == 0:
        return define(scope, node.outputs[0], lambda _: const(1, dtype))
    loop = loop_over(scope, node, n)
    matrix = loop.state((*batch, n, n), dtype, lambda i: cast(scope.load(x, i), dtype), "matrix")
    product = loop.state(batch, dtype, lambda _: const(1, dtype), "determinant")
    step = loop.time

    def pivot_row(i: Indices) -> Expr:
        r = Axis("r", n)
        size = unary("abs", matrix.before((*i, r.dim, step)))
        return reduce("argmax", (r,), where(at_least_zero(r.dim - step), size, -1))

    pivot = loop.step(batch, pivot_row, "pivot")

    def chosen(i: Indices) -> Expr:
        row = Value(pivot.at(i[:-1]), n).dim
        return matrix.before((*i[:-1], row, i[-1]))

    top = loop.step((*batch, n), chosen, "pivot_values")

    def eliminated(i: Indices) -> Expr:
        *lead, row, column = i
        moved = binary("eq", index(row), pivot.at(lead))
        below = where(moved, matrix.before((*lead, step, column)), matrix.before(i))
        head = where(moved, matrix.before((*lead, step, step)), matrix.before((*lead, row, step)))
        corner = top.at((*lead, step))
        # A column of zeros leaves nothing to subtract, and the determinant is zero.
        multiple = where(apply("eq", corner, 0), 0, div(head, corner))
        return where(
            at_least_zero(row - step - 1), sub(below, mul(multiple, top.at((*lead, column)))), matrix.before(i)
        )

    after = loop.step((*batch, n, n), eliminated, "eliminated")

    def multiplied(i: Indices) -> Expr:
        signed = where(binary("eq", pivot.at(i), index(step)), product.before(i), unary("neg", product.before(i)))
        return mul(signed, top.at((*i, step)))

    determinant = loop.step(batch, multiplied, "multiplied")
    outcome = loop.close(((matrix, after), (product, determinant)), determinant)
    define(scope, node.outputs[0], outcome.last[1])
    return None

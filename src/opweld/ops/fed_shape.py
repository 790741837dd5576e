"""Reshape to a shape that is an input of the model and contains a 0 or a -1: its sizes are computed first."""

from __future__ import annotations

from functools import reduce

from opweld import ir
from opweld.ops.arithmetic import apply, larger, mul, where
from opweld.ops.emitted import define_each
from opweld.ops.expansion import DOMAIN
from opweld.ops.fact import Fact
from opweld.ops.known import required_dims
from opweld.ops.operands import required
from opweld.ops.registry import Inference, Lowering, infers, lowers, required_attribute
from opweld.ops.shape import lower_reshape
from opweld.tensor.dim import ZERO, product
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, const, index


@infers("ResolvedShape", domain=DOMAIN)
def infer_resolved_shape(scope: Inference, node: ir.Node) -> list[Fact]:
    """int64, with one size for each dim."""
    return [Fact(DType.I64, scope.fact(required(node, 1)).shape)]


@lowers("ResolvedShape", domain=DOMAIN)
def lower_resolved_shape(scope: Lowering, node: ir.Node) -> None:
    """0 becomes the size of the axis (unless `allowzero`), -1 the number of elements divided by the other sizes."""
    x, shape = (required(node, position) for position in range(2))
    old = scope.fact(x).shape

    def kept(position: int) -> Expr:
        dim = scope.load(shape, (position,))
        if position >= len(old) or required_attribute(node, "allowzero"):
            return dim
        return where(apply("eq", dim, 0), index(old[position]), dim)

    dims = [kept(position) for position in range(int(scope.fact(shape).shape[0]))]
    taken = reduce(mul, (where(apply("eq", dim, -1), 1, dim) for dim in dims), const(1, DType.I64))
    rest = apply("div", index(product(old)), larger(taken, 1))
    define_each(scope, node.outputs[0], [where(apply("eq", dim, -1), rest, dim) for dim in dims])


@infers("Shaped", domain=DOMAIN)
def infer_shaped(scope: Inference, node: ir.Node) -> list[Fact]:
    """The computed sizes, whose product must be the number of elements."""
    fact, sizes = scope.fact(required(node, 0)), required_dims(scope, node, 1, "the new shape")
    for size in sizes:
        scope.at_least(size, 0, node, "a dim of the new shape")
    total, why = product(fact.shape), "the new shape has as many elements as the input"
    if total is ZERO:
        scope.at_least(-product(sizes), 0, node, why)
    else:
        scope.same(product(sizes), total, node, why)
    return [Fact(fact.dtype, sizes)]


lowers("Shaped", domain=DOMAIN)(lower_reshape)

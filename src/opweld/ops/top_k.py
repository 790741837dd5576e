"""TopK, as ranks: how many elements of the row come before each one, and then which element has rank 0, 1, ...

The work grows with the square of the axis, but every step of it is a plain loop; a tie goes to the lower index, and NaN
counts as larger than any number.
"""

from __future__ import annotations

import onnx_ir as ir

from opweld.errors import ModelError
from opweld.ops.emitted import Indices, define, emit
from opweld.ops.fact import Fact
from opweld.ops.known import required_dims
from opweld.ops.operands import describe, normalize_axis, require_rank, required, wanted
from opweld.ops.registry import Inference, Lowering, attribute, infers, lowers
from opweld.tensor.dim import Axis, Value
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, binary, cast, const, index, reduce, select, unary


@infers("TopK")
def infer_top_k(scope: Inference, node: ir.Node) -> list[Fact]:
    """The shape with k along the axis, for the values and their int64 indices."""
    fact = require_rank(scope.fact(required(node, 0)), 1, node)
    axis = normalize_axis(attribute(node, "axis", -1), fact.rank, node)
    counts = required_dims(scope, node, 1, "k")
    if len(counts) != 1:
        raise ModelError(f"{describe(node)}: k must be one number")
    scope.at_least(counts[0], 0, node, "k")
    scope.at_least(fact.shape[axis] - counts[0], 0, node, f"k elements are in axis {axis}")
    shape = (*fact.shape[:axis], counts[0], *fact.shape[axis + 1 :])
    return [Fact(fact.dtype, shape), Fact(DType.I64, shape)]


@lowers("TopK")
def lower_top_k(scope: Lowering, node: ir.Node) -> None:
    """The elements of rank 0 to k - 1, and where they are. They are sorted, asked for or not."""
    x = required(node, 0)
    fact = scope.fact(x)
    axis = normalize_axis(attribute(node, "axis", -1), fact.rank, node)
    extent, largest = fact.shape[axis], bool(attribute(node, "largest", 1))

    def rank(at: Indices) -> Expr:
        j = Axis("j", extent)
        own, other = scope.load(x, at), scope.load(x, (*at[:axis], j.dim, *at[axis + 1 :]))
        beyond, within = _greater(other, own), _greater(own, other)
        before, after = (beyond, within) if largest else (within, beyond)
        # Of equal ones, those at a lower index come first.
        first = binary("and", unary("not", after), binary("lt", index(j.dim), index(at[axis])))
        return reduce("sum", (j,), cast(binary("or", before, first), DType.I64))

    ranks = emit(scope, fact.shape, rank, "ranks")
    shape = scope.fact(node.outputs[0]).shape

    def place(at: Indices) -> Expr:
        i = Axis("i", extent)
        found = binary("eq", ranks.at((*at[:axis], i.dim, *at[axis + 1 :])), index(at[axis]))
        return reduce("sum", (i,), select(found, index(i.dim), const(0, DType.I64)))

    places = emit(scope, shape, place, "places")
    values, indices = wanted(node, 0), wanted(node, 1)
    if values is not None:
        define(
            scope,
            values,
            lambda at: scope.load(x, (*at[:axis], Value(places.at(at), extent).dim, *at[axis + 1 :])),
        )
    if indices is not None:
        define(scope, indices, places.at)


def _greater(a: Expr, b: Expr) -> Expr:
    more = binary("gt", a, b)
    if not a.dtype.is_float:
        return more
    return binary("or", more, binary("and", binary("ne", a, a), binary("eq", b, b)))

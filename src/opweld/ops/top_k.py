"""TopK: the positions and values of the k extreme elements of each row.

A tie goes to the lower index, and NaN counts as larger than any number.
"""

from __future__ import annotations

from opweld import ir
from opweld.errors import ModelError
from opweld.ops.emitted import Emitted, Indices, define
from opweld.ops.fact import Fact
from opweld.ops.keys import emit_keys
from opweld.ops.known import require_length, required_dims
from opweld.ops.operands import describe, normalize_axis, require_rank, required, wanted
from opweld.ops.registry import Inference, Lowering, attribute, infers, lowers
from opweld.tensor.dim import Value, product
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr


@infers("TopK")
def infer_top_k(scope: Inference, node: ir.Node) -> list[Fact]:
    """The shape with k along the axis, for the values and their int64 indices."""
    fact = require_rank(scope.fact(required(node, 0)), 1, node)
    axis = normalize_axis(attribute(node, "axis", -1), fact.rank, node)
    require_length(scope, node, 1, 1, "k")
    counts = required_dims(scope, node, 1, "k")
    if len(counts) != 1:
        raise ModelError(f"{describe(node)}: k must be one number")
    scope.at_least(counts[0], 0, node, "k")
    scope.at_least(fact.shape[axis] - counts[0], 0, node, f"k elements are in axis {axis}")
    shape = (*fact.shape[:axis], counts[0], *fact.shape[axis + 1 :])
    return [Fact(fact.dtype, shape), Fact(DType.I64, shape)]


@lowers("TopK")
def lower_top_k(scope: Lowering, node: ir.Node) -> None:
    """The positions and the elements, always sorted."""
    x = required(node, 0)
    fact = scope.fact(x)
    axis = normalize_axis(attribute(node, "axis", -1), fact.rank, node)
    count = scope.fact(node.outputs[0]).shape[axis]
    others = [position for position in range(fact.rank) if position != axis]
    keys = emit_keys(scope, x, (*others, axis))
    rows = tuple(fact.shape[position] for position in others)
    numbers = (fact.shape[axis], count, int(bool(attribute(node, "largest", 1))))
    (order,) = scope.extern("order", [keys.name], [(DType.I64, (*rows, count))], numbers, product(rows))
    places = Emitted(order, DType.I64)

    def place(at: Indices) -> Expr:
        return places.at((*at[:axis], *at[axis + 1 :], at[axis]))

    values, indices = wanted(node, 0), wanted(node, 1)
    if values is not None:
        extent = fact.shape[axis]
        define(scope, values, lambda at: scope.load(x, (*at[:axis], Value(place(at), extent).dim, *at[axis + 1 :])))
    if indices is not None:
        define(scope, indices, place)

"""TensorScatter: a block of new elements written into a cache of keys or values."""

from __future__ import annotations

from opweld import ir
from opweld.errors import ModelError
from opweld.ops.arithmetic import apply, where
from opweld.ops.emitted import Indices, define
from opweld.ops.fact import Fact
from opweld.ops.operands import describe, given, normalize_axis, require_rank, require_same_dtype, required
from opweld.ops.registry import Inference, Lowering, attribute, infers, lowers
from opweld.tensor.dim import Value
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, binary, cast, const, index


@infers("TensorScatter")
def infer_tensor_scatter(scope: Inference, node: ir.Node) -> list[Fact]:
    """The fact of the cache. The block has its shape, except that it may be shorter along the axis."""
    past, update = (require_rank(scope.fact(required(node, position)), 2, node) for position in (0, 1))
    require_rank(update, past.rank, node, past.rank)
    dtype = require_same_dtype([past, update], node)
    axis = normalize_axis(int(attribute(node, "axis", -2)), past.rank, node)
    if axis == 0 or attribute(node, "mode", "linear") not in ("linear", "circular"):
        raise ModelError(
            f"{describe(node)}: axis {axis} with mode {attribute(node, 'mode', 'linear')!r} is not defined"
        )
    for position, (outer, inner) in enumerate(zip(past.shape, update.shape, strict=True)):
        if position == axis:
            scope.at_least(outer - inner, 0, node, "the block fits into the cache")
        else:
            scope.same(outer, inner, node, f"axis {position} of the cache and of the block")
    starts = given(node, 2)
    if starts is not None:
        extent = require_rank(scope.fact(starts), 1, node, 1).shape[0]
        scope.same(extent, past.shape[0], node, "each batch has a position to write to")
    return [Fact(dtype, past.shape)]


@lowers("TensorScatter")
def lower_tensor_scatter(scope: Lowering, node: ir.Node) -> None:
    """The block at its position in the cache, with wrap-around if circular; the cache elsewhere."""
    past, update, starts = required(node, 0), required(node, 1), given(node, 2)
    shape = scope.fact(past).shape
    axis = normalize_axis(int(attribute(node, "axis", -2)), len(shape), node)
    extent = scope.fact(update).shape[axis]

    def body(i: Indices) -> Expr:
        start = const(0, DType.I64) if starts is None else cast(scope.load(starts, i[:1]), DType.I64)
        place = binary("sub", index(i[axis]), start)
        if attribute(node, "mode", "linear") == "circular":
            place = binary("mod", place, index(shape[axis]))
        within = apply("and", apply("ge", place, 0), binary("lt", place, index(extent)))
        source = Value(where(within, place, 0), extent).dim
        return where(within, scope.load(update, (*i[:axis], source, *i[axis + 1 :])), scope.load(past, i))

    define(scope, node.outputs[0], body)

"""Cumulative sums and products: a reduction over the preceding elements."""

from __future__ import annotations

from opweld import ir
from opweld.errors import ModelError
from opweld.ops.arithmetic import accumulator
from opweld.ops.emitted import Indices, define
from opweld.ops.fact import Fact
from opweld.ops.fed_axes import by_fed_axes
from opweld.ops.operands import describe, known_integers, normalize_axis, required
from opweld.ops.registry import Inference, Lowering, attribute, infers, lowers
from opweld.tensor.dim import Axis
from opweld.tensor.expr import Expr, cast, const, reduce

KINDS = {"CumSum": ("sum", 0), "CumProd": ("prod", 1)}
"""Operator -> its reduction and its neutral element."""


@infers(*KINDS)
def infer_cumulative(scope: Inference, node: ir.Node) -> list[Fact]:
    """The fact of the input."""
    fact = scope.fact(required(node, 0))
    fed = by_fed_axes(scope, node, 1, fact.rank)
    if fed is not None:
        return fed
    _axis(scope, node, fact.rank)
    return [Fact(fact.dtype, fact.shape)]


@lowers(*KINDS)
def lower_cumulative(scope: Lowering, node: ir.Node) -> None:
    """The reduction of the elements up to the index (without it if exclusive, from the end if reverse)."""
    x = required(node, 0)
    fact = scope.fact(x)
    axis = _axis(scope, node, fact.rank)
    kind, neutral = KINDS[node.op_type]
    skip = 1 if attribute(node, "exclusive", 0) else 0
    reverse = bool(attribute(node, "reverse", 0))

    def body(at: Indices) -> Expr:
        k = Axis("k", fact.shape[axis])
        distance = k.dim - at[axis] if reverse else at[axis] - k.dim
        place = (*at[:axis], k.dim, *at[axis + 1 :])
        element = scope.load(x, place, (distance - skip,), const(neutral, fact.dtype))
        return reduce(kind, (k,), cast(element, accumulator(fact.dtype)))

    define(scope, node.outputs[0], body)


def _axis(scope: Inference | Lowering, node: ir.Node, rank: int) -> int:
    axes = known_integers(scope, node, 1, "the axis")
    if axes is None or len(axes) != 1:
        raise ModelError(f"{describe(node)}: expected one axis")
    return normalize_axis(axes[0], rank, node)

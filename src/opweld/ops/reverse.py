"""ReverseSequence: the first elements of each sequence of a batch in reverse order."""

from __future__ import annotations

from opweld import ir
from opweld.errors import ModelError
from opweld.ops.arithmetic import where
from opweld.ops.emitted import Indices, define
from opweld.ops.fact import Fact
from opweld.ops.operands import describe, require_rank, required
from opweld.ops.registry import Inference, Lowering, attribute, infers, lowers
from opweld.tensor.dim import Value
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, binary, cast, const, index


@infers("ReverseSequence")
def infer_reverse_sequence(scope: Inference, node: ir.Node) -> list[Fact]:
    """The fact of the input; there is a length for each sequence."""
    fact = require_rank(scope.fact(required(node, 0)), 2, node)
    time, batch = _axes(node)
    lengths = require_rank(scope.fact(required(node, 1)), 1, node, 1)
    scope.same(lengths.shape[0], fact.shape[batch], node, "each sequence has a length")
    scope.at_least(fact.shape[time], 0, node, "the axis of time")
    return [Fact(fact.dtype, fact.shape)]


@lowers("ReverseSequence")
def lower_reverse_sequence(scope: Lowering, node: ir.Node) -> None:
    """The element mirrored within its sequence; unchanged beyond its end. A sequence that is longer than the axis is an
    error at run time."""
    x, lengths = required(node, 0), required(node, 1)
    extents = scope.fact(x).shape
    time, batch = _axes(node)

    def body(i: Indices) -> Expr:
        length = cast(scope.load(lengths, (i[batch],)), DType.I64)
        mirrored = binary("sub", binary("sub", length, const(1, DType.I64)), index(i[time]))
        place = where(binary("lt", index(i[time]), length), mirrored, index(i[time]))
        return scope.load(x, (*i[:time], Value(place, extents[time]).dim, *i[time + 1 :]))

    define(scope, node.outputs[0], body)


def _axes(node: ir.Node) -> tuple[int, int]:
    """(time, batch)"""
    time, batch = int(attribute(node, "time_axis", 0)), int(attribute(node, "batch_axis", 1))
    if {time, batch} != {0, 1}:
        raise ModelError(f"{describe(node)}: time_axis and batch_axis must be 0 and 1, got {time} and {batch}")
    return time, batch

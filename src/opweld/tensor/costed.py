"""The costs of programs for compilation records: numbers, and polynomials of symbolic sizes as text."""

from __future__ import annotations

from opweld.record import Costs, NodeEntry, Size
from opweld.tensor.cost import Count
from opweld.tensor.dim import Dim
from opweld.tensor.program import TensorProgram
from opweld.tensor.unfused import unfused


def costed_nodes(program: TensorProgram) -> tuple[NodeEntry, ...]:
    """The costs of the nodes of a program before simplification."""
    return tuple(
        NodeEntry(cost.node, costs_entry(cost.count, cost.read, cost.written), cost.launches, size_entry(cost.values))
        for cost in unfused(program)
    )


def costs_entry(count: Count, read: Dim, written: Dim) -> Costs:
    """Operations, and bytes read and written."""
    return Costs(
        flops=size_entry(count.flops + count.special),
        macs=size_entry(count.macs),
        special=size_entry(count.special),
        integer=size_entry(count.integer),
        read=size_entry(read),
        written=size_entry(written),
    )


def size_entry(dim: Dim) -> Size:
    """A number, or the text of a polynomial."""
    return str(dim) if dim.constant is None else dim.constant

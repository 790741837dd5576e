"""How many vectors wide and how many rows high the register tile of a contraction is."""

from __future__ import annotations

from opweld.fuse.region import axes_in
from opweld.target import Target
from opweld.tensor.dim import Axis, product
from opweld.tensor.expr import Load
from opweld.tensor.program import Tensor


def row_count(tensor: Tensor, lane: Axis, rows: Load) -> int | None:
    """How many rows of the result share each lane operand; None when it is not known at compile time."""
    return product(axis.extent for axis in tensor.axes if axis is not lane and axis in axes_in(rows)).constant


def lane_vectors(tensor: Tensor, lane: Axis, rows: Load, target: Target) -> int:
    """Vectors that a packed block of the operand along a lane axis is wide."""
    return vectors_of(lane.extent.constant, row_count(tensor, lane, rows), target)


def vectors_of(extent: int | None, rows: int | None, target: Target) -> int:
    """Vectors a row of the register tile has: two, unless the lane axis is shorter or there are too few rows to fill
    the latency of the multipliers with two. None stands for what is not known at compile time."""
    if extent is None:
        return 2
    needed = -(-extent // target.vector_lanes_f32)
    if rows is not None and rows <= 2:
        return min(4, needed)
    return needed if needed <= 3 else 2


def row_height(vectors: int, extent: int | None, target: Target) -> int:
    """Rows of the register tile: as many as registers hold beside one row of lanes and one broadcast, evenly dividing
    a known extent."""
    most = max(1, (target.vector_registers - vectors - 1) // vectors)
    most = min(most, 14 if vectors == 2 else 16)
    if extent is None:
        return most
    if extent <= most:
        return extent

    # A tail of t rows costs about as much as max(t, 4): fewer accumulators than that wait for each other.
    def cost(rows: int) -> float:
        tail = extent % rows
        return (extent // rows) * max(rows, 4) + (max(tail, 4) if tail else 0) + 0.02 * (extent / rows)

    return min(range(most, max(1, most // 2) - 1, -1), key=cost)

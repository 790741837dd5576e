"""A contraction whose sums a matrix unit holds: its sums go to scratch, and what is left is done to them as vectors.

lane, row tile      sums of dot products, as many steps of the sum at once as the unit takes, stored to scratch
loop over rows      a few at a time: steps of the sum that are left over, the epilogue
"""

from __future__ import annotations

from dataclasses import replace

from opweld.errors import OptionError
from opweld.schedule.cost import MATRIX_ROWS, MATRIX_STEP, has_matrix_unit, most_matrix_rows, steps_at_once
from opweld.schedule.schedule import ReductionSchedule
from opweld.target import Target
from opweld.tensor.dim import Atom, Axis, Dim, as_dim, ceildiv, floordiv, minimum
from opweld.tensor.expr import Binary, Expr, Reduce, binary, load, loads, substitute, transform
from opweld.tensor.program import unused
from opweld.tile.lanes import tile_at
from opweld.tile.matrix import factors_of
from opweld.tile.members.map import axis_of
from opweld.tile.members.sums import accumulate_over, initial_of, loop_order, reduction_of
from opweld.tile.nest import Nest
from opweld.tile.tile import Accumulate, Declare, Loop, Scratch, Statement, Store


def matrix_refusal(nest: Nest, row: Axis, width: int, target: Target) -> str:
    """Why the target's matrix unit does not compute the sums of a nest by tiles of these rows and so many lanes; empty
    where it does."""
    node, lane = reduction_of(nest), nest.lane
    if lane is None:
        return "nothing runs along lanes"
    if not isinstance(node.body, Binary) or not has_matrix_unit(node.body.op, target):
        return "the target has no matrix unit for its products"
    loops = loop_order(node, (lane,))
    if not loops[-1].extent.constant:
        return f"how many words there are along {loops[-1]} is known at run time only"
    if row.extent.constant == 0:
        return "there are no rows"
    found = factors_of(node.body, row, lane, loops[-1])
    if isinstance(found, str):
        return found
    # Lanes that fill no tile are read beyond: within the padding of the same row, where rows begin with lane 0.
    whole, start = ceildiv(lane.extent, width) * width, found.lanes.indices[0].without(lane)
    padded = whole.constant == found.step and floordiv(start, found.step) * found.step is start
    if lane in nest.limits or not (whole is lane.extent or padded):
        return f"the last lanes of {found.lanes.tensor} do not fill a tile in memory"
    return ""


def matrix_heights(row: Axis, vectors: int) -> tuple[int, ...]:
    """The heights that a tile of so many vectors may have: of whole registers, or such that all tiles have as many
    rows, for which registers get their shape once."""
    extent, most = row.extent.constant, most_matrix_rows(vectors)
    if extent is None:
        return tuple(range(MATRIX_ROWS, most + 1, MATRIX_ROWS))
    most = min(most, -(-extent // MATRIX_ROWS) * MATRIX_ROWS)
    heights = range(MATRIX_ROWS, most + 1, MATRIX_STEP)
    return tuple(height for height in heights if height % MATRIX_ROWS == 0 or extent % height == 0)


def schedule_matrix(
    nest: Nest, buffer: str, schedule: ReductionSchedule, target: Target, lane_tile: Dim, row_tile: Dim
) -> tuple[tuple[Statement, ...], tuple[Scratch, ...]]:
    """The statements and scratch of one tile, whose numbers along lanes and rows are given.

    Raises OptionError for a schedule of sums that the target's matrix unit does not compute."""
    node = reduction_of(nest)
    lane, row = axis_of(nest, schedule.lane), axis_of(nest, schedule.row)
    refusal = matrix_refusal(nest, row, schedule.vectors * target.vector_lanes_f32, target)
    if refusal:
        raise OptionError(f"schedule: {schedule.name} has unit=matrix, and {refusal}")
    held = unused("sums", {buffer, *(read.tensor for read in loads(nest.body))})
    height, width = schedule.height, schedule.vectors * target.vector_lanes_f32
    *outer, inner = loop_order(node, (lane,))
    extent = int(inner.extent)
    size = steps_at_once(extent, height, schedule.vectors, target)
    whole = extent - extent % size
    steps = Axis(inner.name, as_dim(whole))

    def sums(lane_index: Dim, lane_axis: Axis) -> tuple[Statement, ...]:
        def of_rows(row_index: Dim, row_axis: Axis) -> tuple[Statement, ...]:
            value = substitute(node.body, {lane: lane_index, row: row_index, inner: steps.dim})
            body: tuple[Statement, ...] = (Accumulate("acc", "sum", value),)
            body = (Loop(steps, body, unroll=size),)
            for axis in reversed(outer):
                body = (Loop(axis, body),)
            declare = Declare("acc", node.dtype, (lane_axis, row_axis), initial_of(node), "matrix")
            place = width * row_axis.dim + lane_axis.dim
            return (declare, *body, Store(held, place, load("acc", node.dtype, ())))

        return (tile_at(row, "row", height, row_tile, of_rows),)

    pieces = Axis(row.name + "p", as_dim(height // MATRIX_STEP))
    left = Axis(inner.name, as_dim(extent - whole))

    def results(lane_index: Dim, lane_axis: Axis) -> tuple[Statement, ...]:
        def of_rows(row_index: Dim, row_axis: Axis) -> tuple[Statement, ...]:
            place: dict[Atom, Dim] = {lane: lane_index, row: row_index}
            total: Expr = load(held, node.dtype, (width * (MATRIX_STEP * pieces.dim + row_axis.dim) + lane_axis.dim,))
            before: tuple[Statement, ...] = ()
            if whole < extent:
                value = substitute(node.body, {**place, inner: whole + left.dim})
                over = (lane_axis, row_axis)
                rest = accumulate_over((*outer, left), "acc", "sum", value, written=False)
                before = (Declare("acc", node.dtype, over, initial_of(node)), *rest)
                total = binary("add", total, load("acc", node.dtype, ()))
            result = transform(substitute(nest.body, place), lambda n: total if isinstance(n, Reduce) else None)
            return (*before, Store(buffer, nest.store.substitute(place), result))

        number = row_tile * (height // MATRIX_STEP) + pieces.dim
        return (tile_at(row, "row", MATRIX_STEP, number, of_rows),)

    exists = ceildiv(row.extent, height) * height is row.extent
    upper = None if exists else minimum(pieces.extent, ceildiv(row.extent - row_tile * height, MATRIX_STEP))
    body = (
        replace(tile_at(lane, "lane", width, lane_tile, sums), limit=None),  # what is read beyond is padding
        Loop(pieces, (tile_at(lane, "lane", width, lane_tile, results),), upper=upper),
    )
    return body, (Scratch(held, node.dtype, as_dim(height * width)),)

"""The template of elementwise regions: lanes over the innermost axis of the result, everything else is grid."""

from __future__ import annotations

from opweld.schedule.lanes import chunked, lane_tiles
from opweld.schedule.nest import Nest
from opweld.schedule.tile import Loop, Statement, Store
from opweld.target import Target
from opweld.tensor.dim import ONE, Axis, Dim
from opweld.tensor.expr import substitute

CHUNK = 16
"""Lane tiles that a grid iteration does at least, so that its bookkeeping does not show."""

UNKNOWN = 64
"""What a dynamic extent is taken for."""

SMALL = 2048
"""Elements; a grid iteration with fewer takes in the next axis."""


def schedule_map(nest: Nest, buffer: str, target: Target) -> tuple[tuple[Axis, ...], tuple[Statement, ...]]:
    """Grid axes and statements of an elementwise nest."""
    lane = lane_of(nest)
    outer = [axis for axis in nest.axes if axis is not lane]
    width = target.vector_lanes_f32 * vectors_for(lane.extent.constant, target)

    def tile(index: Dim) -> tuple[Statement, ...]:
        return (Store(buffer, nest.store.substitute({lane: index}), substitute(nest.body, {lane: index})),)

    extent = lane.extent.constant
    if extent is None or extent > CHUNK * width:
        chunk, body = chunked(lane, width, CHUNK, tile)
        return (*outer, chunk), body
    body = lane_tiles(lane, width, tile)
    elements = extent
    while outer and elements < SMALL and len(outer) > 1:
        axis = outer.pop()
        body = (Loop(axis, body),)
        elements *= axis.extent.constant or UNKNOWN
    return tuple(outer), body


def lane_of(nest: Nest) -> Axis:
    """The axis along which the result is contiguous; a new axis of extent one when there is none."""
    for axis in reversed(nest.axes):
        stride = nest.store.coefficient(axis)
        if stride is ONE:
            return axis
    return nest.axes[-1] if nest.axes else Axis("one", ONE)


def vectors_for(extent: int | None, target: Target) -> int:
    """Vectors a lane tile is wide: up to four, so that independent work hides latency."""
    if extent is None:
        return 4
    return max(1, min(4, -(-extent // target.vector_lanes_f32)))

"""Fetches the next panel of weights into L2 while the current one is used: 5 to 10% where weights exceed L2 (measured).

A panel is what a load of an inner loop walks through in one grid iteration, the same in the iterations of the faster
grid axes. Each of those iterations fetches its share of the panel that the slower axis moves to next.
"""

from __future__ import annotations

from collections.abc import Sequence

from opweld.tensor.dim import ONE, Axis, Dim, as_dim, ceildiv, product
from opweld.tensor.expr import Load, loads
from opweld.tile.tile import Accumulate, Fetch, Kernel, Loop

LINE_BYTES = 64

_FEWEST_FETCHES = 8
_SMALLEST_BYTES = 1 << 17  # a model has more weights than L2 holds, so each launch finds its own in L3
_MOST_REPEATS = 3


def next_panel(kernel: Kernel, loop: Loop, outer: Sequence[Loop], lane: Axis | None) -> Fetch | None:
    """What an unrolled innermost loop inside the `outer` ones should fetch; None when nothing is gained."""
    trips = loop.end.constant
    if lane is None or trips is None or loop.lower.constant != 0:
        return None
    if trips % loop.unroll or trips < _FEWEST_FETCHES * loop.unroll:
        return None
    for item in loop.body:
        if not isinstance(item, Accumulate):
            return None
        for node in loads(item.value):
            found = _panel(kernel, node, loop, outer, lane, trips)
            if found is not None:
                return found
    return None


def _panel(kernel: Kernel, node: Load, loop: Loop, outer: Sequence[Loop], lane: Axis, trips: int) -> Fetch | None:
    if len(node.indices) != 1 or node.guards or node.indices[0].coefficient(lane) is not ONE:
        return None
    offset = node.indices[0]
    slow = [position for position, axis in enumerate(kernel.grid) if offset.depends_on(axis)]
    if not slow or slow[-1] == len(kernel.grid) - 1:
        return None
    axis, faster = kernel.grid[slow[-1]], kernel.grid[slow[-1] + 1 :]
    stride, panel = _constant(offset, loop.axis), _constant(offset, axis)
    if not stride or not panel or panel <= 0 or stride <= 0:
        return None
    # The panel is walked through in order: position = walked + stride * k.
    walked, total = as_dim(0), trips
    for level in reversed(outer):
        step = _constant(offset, level.axis)
        if step is None or level.lower.constant != 0 or level.end.constant is None:
            return None
        if step:
            if step != total * stride:
                return None
            walked = walked + level.axis.dim * total
            total *= level.end.constant
    if total * stride != panel:
        return None
    elements = LINE_BYTES // node.dtype.bytes
    extent = axis.extent.constant
    if extent is not None and extent * panel * node.dtype.bytes < _SMALLEST_BYTES:
        return None
    tiles = product(faster_axis.extent for faster_axis in faster)
    share = ceildiv(panel // elements, tiles)  # lines for each of the faster iterations
    fetches = total // loop.unroll
    lines = 1 if share.constant is None else -(-int(share) // fetches)
    if share.constant is not None and int(share) * _MOST_REPEATS < fetches:
        return None
    position = as_dim(0)
    for faster_axis in faster:
        position = position * faster_axis.extent + faster_axis.dim
    start = axis.dim * panel + panel + (position * share + walked * lines // loop.unroll) * elements
    return Fetch(node.tensor, start + _rest(offset, kernel, axis), lines, lines * elements // loop.unroll)


def _constant(offset: Dim, axis: Axis) -> int | None:
    slope = offset.coefficient(axis)
    return None if slope is None else slope.constant


def _rest(offset: Dim, kernel: Kernel, axis: Axis) -> Dim:
    """The part of an offset that slower grid axes give, and its constant."""
    rest = as_dim(dict(offset.terms).get((), 0))
    for other in kernel.grid:
        slope = offset.coefficient(other)
        if other is not axis and slope is not None:
            rest = rest + slope * other.dim
    return rest

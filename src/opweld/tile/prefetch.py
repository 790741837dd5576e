"""Fetches the next panel of weights into L2 while the current one is used: 5 to 10% where weights exceed L2 (measured).

A panel is what a load of an inner loop walks through in one grid iteration, the same in the iterations of the faster
grid axes. Each of those iterations fetches its share of the panel that the slower axis moves to next. Where their
number is known at run time only, each fetches as much as it should at the expected sizes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opweld.schedule.cost import LINE
from opweld.schedule.expected import Expected
from opweld.tensor.dim import ONE, Axis, Dim, as_dim, ceildiv, product
from opweld.tensor.expr import Load, loads
from opweld.tile.tile import Accumulate, Fetch, Kernel, Loop

_FEWEST_FETCHES = 8
_SMALLEST_BYTES = 1 << 17  # a model has more weights than L2 holds, so each launch finds its own in L3
_MOST_REPEATS = 3
_FEWEST_PASSES = 2

MOST_LINES = 8
"""Lines that a group of unrolled bodies fetches at most: more would keep it from loading what it needs itself."""


@dataclass(frozen=True)
class Panel:
    """A panel to fetch while another one is used.

    Attributes:
        buffer: where it lies. start: the first element that a grid iteration fetches of it.
        walked: bodies that outer loops are past. unroll: bodies of a group.
        lines: that a group should fetch. elements: of a line.
    """

    buffer: str
    start: Dim
    walked: Dim
    unroll: int
    lines: int
    elements: int

    def fetch(self, lines: int) -> Fetch:
        """The fetches when each group of unrolled bodies fetches so many lines."""
        step = lines * self.elements // self.unroll
        return Fetch(self.buffer, self.start + self.walked * step, lines, step)


def next_panel(
    kernel: Kernel, loop: Loop, outer: Sequence[Loop], lane: Axis | None, expected: Expected
) -> Panel | None:
    """What an unrolled innermost loop inside the `outer` ones should fetch; None when nothing is gained."""
    trips = loop.end.constant
    if lane is None or trips is None or trips % loop.unroll or loop.lower.constant != 0:
        return None
    for item in loop.body:
        if not isinstance(item, Accumulate):
            return None
        for node in loads(item.value):
            found = _panel(kernel, node, loop, outer, lane, expected)
            if found is not None:
                return found
    return None


def _panel(
    kernel: Kernel, node: Load, loop: Loop, outer: Sequence[Loop], lane: Axis, expected: Expected
) -> Panel | None:
    if len(node.indices) != 1 or node.guards or node.indices[0].coefficient(lane) is not ONE:
        return None
    offset = node.indices[0]
    slow = [position for position, axis in enumerate(kernel.grid) if offset.depends_on(axis)]
    if not slow or slow[-1] == len(kernel.grid) - 1:
        return None
    axis, faster = kernel.grid[slow[-1]], kernel.grid[slow[-1] + 1 :]
    stride, apart = _constant(offset, loop.axis), _constant(offset, axis)
    if not stride or not apart or apart <= 0 or stride <= 0:
        return None
    # The panel is walked through in order: position = walked + stride * k.
    walked, total = as_dim(0), expected(loop.end)
    for level in reversed(outer):
        step = _constant(offset, level.axis)
        if step is None or level.lower.constant != 0 or level.end.constant is None:
            return None
        if step:
            if step != total * stride:
                return None
            walked = walked + level.axis.dim * total
            total *= level.end.constant
    panel = total * stride
    if panel > apart or total < _FEWEST_FETCHES * loop.unroll:
        return None
    elements = LINE // node.dtype.bytes
    extent = axis.extent.constant
    if extent is not None and extent * panel * node.dtype.bytes < _SMALLEST_BYTES:
        return None
    tiles = product(faster_axis.extent for faster_axis in faster)
    share = ceildiv(panel // elements, tiles)  # lines for each of the faster iterations
    groups = total // loop.unroll
    # Where one row is expected there may be many, and nobody would need what the later ones fetch again.
    passes = expected(tiles) if tiles.constant is not None else max(_FEWEST_PASSES, expected(tiles))
    lines = ceildiv(ceildiv(panel // elements, passes), groups).constant or 0
    if share.constant is not None and share.constant * _MOST_REPEATS < groups:
        return None
    position = as_dim(0)
    for faster_axis in faster:
        position = position * faster_axis.extent + faster_axis.dim
    start = axis.dim * apart + apart + position * share * elements + _rest(offset, kernel, axis)
    return Panel(node.tensor, start, walked, loop.unroll, min(MOST_LINES, lines), elements)


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

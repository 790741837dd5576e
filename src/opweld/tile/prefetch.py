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
        elements: of a line. lines: that a group should fetch, 0 where that gains nothing. reason: why so many.
    """

    buffer: str
    start: Dim
    walked: Dim
    unroll: int
    elements: int
    lines: int
    reason: str

    def fetch(self, lines: int) -> Fetch:
        """The fetches when each group of unrolled bodies fetches so many lines."""
        step = lines * self.elements // self.unroll
        return Fetch(self.buffer, self.start + self.walked * step, lines, step)


def next_panel(kernel: Kernel, loop: Loop, outer: Sequence[Loop], lane: Axis | None, expected: Expected) -> Panel | str:
    """What an innermost loop of accumulations inside the `outer` ones could fetch; or why there is nothing."""
    trips = loop.end.constant
    if lane is None:
        return "nothing runs along lanes"
    if trips is None or loop.lower.constant != 0:
        return "how many trips there are is known at run time only"
    if trips % loop.unroll:
        return f"{trips} trips are no whole groups of {loop.unroll}"
    panel: Panel | str = ""
    for item in loop.body:
        assert isinstance(item, Accumulate)
        for node in loads(item.value):
            if len(node.indices) != 1 or node.guards or node.indices[0].coefficient(lane) is not ONE:
                continue
            found = _panel(kernel, node, loop, outer, expected)
            if isinstance(found, Panel) and found.lines:
                return found
            if isinstance(found, Panel) or not panel:
                panel = found if isinstance(found, Panel) else f"{node.tensor} {found}"
    return panel or "no operand lies along the lanes"


def _panel(kernel: Kernel, node: Load, loop: Loop, outer: Sequence[Loop], expected: Expected) -> Panel | str:
    """The panel that a load along the lanes walks through."""
    offset = node.indices[0]
    slow = [position for position, axis in enumerate(kernel.grid) if offset.depends_on(axis)]
    if not slow:
        return "is the same in all iterations of the grid"
    if slow[-1] == len(kernel.grid) - 1:
        return "has another panel in each iteration"
    axis, faster = kernel.grid[slow[-1]], kernel.grid[slow[-1] + 1 :]
    stride, apart = _constant(offset, loop.axis), _constant(offset, axis)
    if not stride or not apart or apart <= 0 or stride <= 0:
        return "is not walked front to back at known distances"
    # The panel is walked through in order: position = walked + stride * k.
    walked, total = as_dim(0), expected(loop.end)
    for level in reversed(outer):
        step = _constant(offset, level.axis)
        if step is None or level.lower.constant != 0 or level.end.constant is None:
            return "is not walked front to back at known distances"
        if step:
            if step != total * stride:
                return "is not walked front to back"
            walked = walked + level.axis.dim * total
            total *= level.end.constant
    panel = total * stride
    if panel > apart:
        return "has panels that overlap"
    elements = LINE // node.dtype.bytes
    extent = axis.extent.constant
    tiles = product(faster_axis.extent for faster_axis in faster)
    share = ceildiv(panel // elements, tiles)  # lines for each of the faster iterations
    groups = max(1, total // loop.unroll)
    # Where one row is expected there may be many, and nobody would need what the later ones fetch again.
    passes = expected(tiles) if tiles.constant is not None else max(_FEWEST_PASSES, expected(tiles))
    lines = ceildiv(ceildiv(panel // elements, passes), groups).constant or 0
    position = as_dim(0)
    for faster_axis in faster:
        position = position * faster_axis.extent + faster_axis.dim
    start = axis.dim * apart + apart + position * share * elements + _rest(offset, kernel, axis)
    held = None if extent is None else extent * panel * node.dtype.bytes
    wanted, reason = min(MOST_LINES, lines), f"lines of the next panel of {node.tensor} every {loop.unroll} bodies"
    if loop.unroll == 1:
        wanted, reason = 0, "a fetch in each body costs more than it gains"
    elif groups < _FEWEST_FETCHES:
        wanted, reason = 0, f"{groups} groups of bodies a panel are few"
    elif held is not None and held < _SMALLEST_BYTES:
        wanted, reason = 0, f"the second-level cache keeps the {held:,} bytes of {node.tensor}"
    elif share.constant is not None and share.constant * _MOST_REPEATS < groups:
        wanted, reason = 0, f"{groups} groups of bodies would fetch {share} lines again and again"
    return Panel(node.tensor, start, walked, loop.unroll, elements, wanted, reason)


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

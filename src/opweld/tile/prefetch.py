"""Fetches the next panel of weights into L2 while the current one is used: 5 to 20% where weights exceed L2 (measured).

A panel is what a load of an inner loop walks through before it begins again: axes around it, of the grid or of loops,
pass over it several times. Each pass fetches its share of the panel that the next slower axis moves to. Where their
number is known at run time only, each fetches as much as it should at the expected sizes. Where loops move on without
a second pass, each trip of the innermost one has a panel of its own.
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
class Obstacle:
    """Why there is no next panel: a code, one of lanes, trips, groups, same, stream, steps, overlap; and in words."""

    code: str
    text: str


@dataclass(frozen=True)
class Panel:
    """A panel to fetch while another one is used.

    Attributes:
        buffer: where it lies. start: the first element that a grid iteration fetches of it.
        walked: bodies that outer loops are past. unroll: bodies of a group.
        elements: of a line. lines: that a group should fetch, 0 where that gains nothing. reason: why so many.
        least: elements that a body has to fetch, so that each pass fetches its share; less than a line a group where
            passes are many, whose groups fetch the same line several times rather than lines of the next pass.
    """

    buffer: str
    start: Dim
    walked: Dim
    unroll: int
    elements: int
    lines: int
    reason: str
    least: int

    def fetch(self, lines: int) -> Fetch:
        """The fetches when each group of unrolled bodies fetches so many lines."""
        step = lines * self.elements // self.unroll
        step = min(step, self.least) if lines == 1 else step
        return Fetch(self.buffer, self.start + self.walked * step, lines, step)


def next_panel(
    kernel: Kernel, loop: Loop, outer: Sequence[Loop], lane: Axis | None, expected: Expected
) -> Panel | Obstacle:
    """What an innermost loop of accumulations inside the `outer` ones could fetch; or why there is nothing."""
    trips = loop.end.constant
    if lane is None:
        return Obstacle("lanes", "nothing runs along lanes")
    if trips is None or loop.lower.constant != 0:
        return Obstacle("trips", "how many trips there are is known at run time only")
    if trips % loop.unroll:
        return Obstacle("groups", f"{trips} trips are no whole groups of {loop.unroll}")
    panel: Panel | Obstacle | None = None
    for item in loop.body:
        assert isinstance(item, Accumulate)
        for node in loads(item.value):
            if len(node.indices) != 1 or node.guards or node.indices[0].coefficient(lane) is not ONE:
                continue
            found = _panel(kernel, node, loop, outer, expected)
            if isinstance(found, Panel) and found.lines:
                return found
            if isinstance(found, Panel) or panel is None:
                panel = found
    return panel or Obstacle("lanes", "no operand lies along the lanes")


def _panel(kernel: Kernel, node: Load, loop: Loop, outer: Sequence[Loop], expected: Expected) -> Panel | Obstacle:
    """The panel that a load along the lanes walks through."""
    # Words are so many elements of memory.
    offset = node.indices[0] * (node.dtype.bytes // _bytes(kernel, node))
    around = [*kernel.grid, *(level.axis for level in outer)]  # slowest first
    # Innermost are axes that walk through the panel, around them those that pass over it again.
    inside = len(around)
    while inside and offset.depends_on(around[inside - 1]):
        inside -= 1
    if inside == 0:
        # Nothing passes over anything again: a stream, of which a panel is what the loop itself walks through.
        if len(around) == len(kernel.grid):
            return Obstacle("stream", f"{node.tensor} has another panel in each iteration")
        inside = len(around)
    slow = inside
    while slow and not offset.depends_on(around[slow - 1]):
        slow -= 1
    if slow == 0:
        return Obstacle("same", f"{node.tensor} is the same in all iterations")
    axis, faster = around[slow - 1], around[slow:inside]
    stride, apart = _constant(offset, loop.axis), _constant(offset, axis)
    if not stride or not apart or apart <= 0 or stride <= 0:
        return Obstacle("steps", f"{node.tensor} is not walked front to back at known distances")
    # The panel is walked through in order: position = walked + stride * k.
    walked, total = as_dim(0), expected(loop.end)
    for level in reversed(outer[max(0, inside - len(kernel.grid)) :]):
        step = _constant(offset, level.axis)
        if step is None or level.lower.constant != 0 or level.end.constant is None:
            return Obstacle("steps", f"{node.tensor} is not walked front to back at known distances")
        if step != total * stride:
            return Obstacle("steps", f"{node.tensor} is not walked front to back")
        walked = walked + level.axis.dim * total
        total *= level.end.constant
    panel = total * stride
    if panel > apart:
        return Obstacle("overlap", f"{node.tensor} has panels that overlap")
    each = _bytes(kernel, node)
    elements = LINE // each
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
    start = _begin(offset, around[:slow]) + apart + position * share * elements
    held = None if extent is None else extent * panel * each
    # Not less than an element: what a pass fetches at least, in lines, may be more than its share.
    least = elements if share.constant is None else max(1, -(-share.constant * elements // total))
    wanted, reason = min(MOST_LINES, lines), f"lines of the next panel of {node.tensor} every {loop.unroll} bodies"
    if loop.unroll == 1:
        wanted, reason = 0, "a fetch in each body costs more than it gains"
    elif groups < _FEWEST_FETCHES:
        wanted, reason = 0, f"{groups} groups of bodies a panel are few"
    elif held is not None and held < _SMALLEST_BYTES:
        wanted, reason = 0, f"the second-level cache keeps the {held:,} bytes of {node.tensor}"
    elif share.constant is not None and share.constant * _MOST_REPEATS * elements < total:
        wanted, reason = 0, f"{total} bodies would fetch {share} lines again and again"
    return Panel(node.tensor, start, walked, loop.unroll, elements, wanted, reason, least)


def _bytes(kernel: Kernel, node: Load) -> int:
    """Bytes of an element of the memory that a load reads."""
    return next(b.dtype for b in (*kernel.buffers, *kernel.scratch) if b.name == node.tensor).bytes


def _constant(offset: Dim, axis: Axis) -> int | None:
    slope = offset.coefficient(axis)
    return None if slope is None else slope.constant


def _begin(offset: Dim, slower: Sequence[Axis]) -> Dim:
    """Where the panel of an offset begins: the part that slower axes give, and its constant."""
    begin = as_dim(dict(offset.terms).get((), 0))
    for axis in slower:
        slope = offset.coefficient(axis)
        if slope is not None:
            begin = begin + slope * axis.dim
    return begin

"""Fetches weights into L2 before they are used: 5 to 30% where they are more than the caches hold (measured).

A panel is what a load of an inner loop walks through before it begins again: axes around it, of the grid or of loops,
pass over it several times. Each pass fetches its share of the panel that the next slower axis moves to. Where their
number is known at run time only, each fetches as much as it should at the expected sizes. Where loops move on without
a second pass, each trip of the innermost one has a panel of its own.

Where one pass is expected, as of one row, nothing is used again: a stream. Each group of bodies fetches what is read
`AHEAD` bytes later; so does each trip of the loop around it, of the scales of its block. A core that foresees streams
itself is left half of the lines of those that take longer to read than to multiply, or all of them: always all where
L3 keeps the weights of the whole model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opweld.schedule.cost import LINE, core_of
from opweld.schedule.expected import Expected
from opweld.target import Target
from opweld.tensor.dim import ONE, Axis, Dim, as_dim, ceildiv, product
from opweld.tensor.expr import Load, loads
from opweld.tile.tile import Accumulate, Fetch, Kernel, Loop, Tile

_FEWEST_FETCHES = 8
_SMALLEST_BYTES = 1 << 17  # a model has more weights than L2 holds, so each launch finds its own in L3
_SMALLEST_STREAM = 1 << 14  # of less, most is read before what was fetched has come
_MOST_REPEATS = 3
_FEWEST_PASSES = 2

AHEAD = 4096
"""Bytes that a stream is fetched ahead: memory answers in 200 ns, in which a core reads 2.5 KB (measured on Emerald
Rapids: 1.5 KB are 8% slower, 8 KB the same)."""

MOST_LINES = 8
"""Lines that a group of unrolled bodies fetches at most: more would keep it from loading what it needs itself."""

FORESEEN = 2
"""How many times longer than to multiply it has to take to read a line of a stream that the core foresees, for half of
the lines to be fetched. Of 160M weights times one row, on Zen 4: of none, half and all 20.8, 19.6 and 21.4 ms."""


@dataclass(frozen=True)
class Obstacle:
    """Why there is nothing to fetch: a code, one of lanes, trips, groups, same, stream, steps, overlap; and words."""

    code: str
    text: str


@dataclass(frozen=True)
class Panel:
    """Weights to fetch while others are used.

    Attributes:
        buffer: where they lie. start: the first element that a grid iteration fetches.
        walked: bodies that outer loops are past. unroll: bodies of a group.
        elements: of a line. lines: that a group should fetch, 0 where that gains nothing. reason: why so many.
        least: elements that a body has to fetch, so that each pass fetches its share; less than a line a group where
            passes are many, whose groups fetch the same line several times rather than lines of the next pass.
        stream: elements from one body to the next of a stream; None of a panel.
        passes: over the panel, where run time tells their number; None where it is known.
    """

    buffer: str
    start: Dim
    walked: Dim
    unroll: int
    elements: int
    lines: int
    reason: str
    least: int
    stream: int | None = None
    passes: Dim | None = None

    def fetch(self, lines: int) -> Fetch:
        """The fetches when each group of unrolled bodies fetches so many lines."""
        step = self.stream
        if step is None:
            step = lines * self.elements // self.unroll
            step = min(step, self.least) if lines == 1 else step
        return Fetch(self.buffer, self.start + self.walked * step, lines, step, self.passes)


def next_panel(
    kernel: Kernel,
    loop: Loop,
    outer: Sequence[Loop],
    tiles: Sequence[Tile],
    target: Target,
    expected: Expected,
    weights: float,
) -> Panel | Obstacle:
    """What an innermost loop of accumulations inside `outer` loops and tiles could fetch; or why there is nothing.
    weights: bytes of all weights of the model."""
    trips, lane, part = loop.end.constant, _lane_of(tiles), _part(tiles, target, weights)
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
            if not _along(node, lane.axis):
                continue
            stream = _stream(kernel, node, loop, outer, lane, part, expected)
            found = stream or _panel(kernel, node, loop, outer, expected)
            if isinstance(found, Panel) and found.lines:
                return found
            if isinstance(found, Panel) or panel is None:
                panel = found
    return panel or Obstacle("lanes", "no operand lies along the lanes")


def around_stream(
    kernel: Kernel, loop: Loop, outer: Sequence[Loop], tiles: Sequence[Tile], expected: Expected
) -> tuple[Fetch, ...]:
    """What each trip of a loop fetches for a later one, of the operands along the lanes that its own accumulations
    read once, where a loop inside it fetches ahead: as many trips ahead as that one is."""
    lane = _lane_of(tiles)
    width = None if lane is None else lane.axis.extent.constant
    if lane is None or width is None or loop.end.constant is None or loop.lower.constant != 0:
        return ()
    bytes_of = {buffer.name: buffer.dtype.bytes for buffer in kernel.buffers}
    inner = [fetch for item in loop.body if isinstance(item, Loop) for fetch in item.fetches]
    # What a trip moves on in the memory that the loops inside fetch.
    trip = max(((_constant(f.start, loop.axis) or 0) * bytes_of.get(f.buffer, 0) for f in inner), default=0)
    if trip <= 0:
        return ()
    around = [*kernel.grid, *(level.axis for level in outer)]
    found: dict[str, Fetch] = {}
    for item in loop.body:
        for node in loads(item.value) if isinstance(item, Accumulate) else ():
            if not _along(node, lane.axis):
                continue
            offset, lines = _offset(kernel, node), -(-width * node.dtype.bytes // LINE)
            step = _constant(offset, loop.axis)
            if step and lines <= MOST_LINES and _once(offset, around, expected):
                found[node.tensor] = Fetch(node.tensor, _begin(offset, around) + -(-AHEAD // trip) * step, lines, step)
    return tuple(found.values())


def _lane_of(tiles: Sequence[Tile]) -> Tile | None:
    """The tile along the lanes."""
    return next((tile for tile in tiles if tile.role == "lane"), None)


def _part(tiles: Sequence[Tile], target: Target, weights: float) -> float:
    """The part of a stream's lines that code fetches: the core has the others itself, and all that L3 keeps."""
    core = core_of(target)
    rows = max((tile.width for tile in tiles if tile.role == "row"), default=1)
    slower = LINE / core.dram_bytes * core.products / rows  # to read a line than to multiply it
    if not core.foresees or slower <= 1:
        return 1.0
    return 0.5 if slower >= FORESEEN and weights > target.l3_bytes else 0.0


def _along(node: Load, lane: Axis) -> bool:
    """Whether a load reads consecutive elements along the lanes."""
    return len(node.indices) == 1 and not node.guards and node.indices[0].coefficient(lane) is ONE


def _offset(kernel: Kernel, node: Load) -> Dim:
    """Where a load reads, in elements of memory: words are so many of them."""
    return node.indices[0] * (node.dtype.bytes // _bytes(kernel, node))


def _stream(
    kernel: Kernel,
    node: Load,
    loop: Loop,
    outer: Sequence[Loop],
    lane: Tile,
    part: float,
    expected: Expected,
) -> Panel | Obstacle | None:
    """What a load along the lanes reads later, where it is expected to read nothing twice; None where it does. part: of
    the lines, which code fetches."""
    offset, each, width = _offset(kernel, node), _bytes(kernel, node), lane.axis.extent.constant
    around = [*kernel.grid, *(level.axis for level in outer)]
    if width is None or not _once(offset, around, expected):
        return None
    stride = width * (node.dtype.bytes // each)
    if _constant(offset, loop.axis) != stride:
        return Obstacle("steps", f"{node.tensor} is not walked front to back")
    elements = LINE // each
    lines, reason = stride * loop.unroll // elements, f"lines of {node.tensor} that are read {AHEAD} bytes later"
    trips = expected(product(axis.extent for axis in around if offset.depends_on(axis)) * loop.end)
    held = trips * stride * each
    if held < _SMALLEST_STREAM:
        lines, reason = 0, f"{node.tensor} has {held:,} bytes"
    if part < 1:
        lines = int(lines * part)
        reason = f"lines of {node.tensor}, which the core foresees: it takes longer to read than to multiply"
    start = _begin(offset, around) + AHEAD // each
    return Panel(node.tensor, start, as_dim(0), loop.unroll, elements, min(MOST_LINES, lines), reason, 0, stride)


def _once(offset: Dim, around: Sequence[Axis], expected: Expected) -> bool:
    """Whether what is read there is read in one pass: each axis around moves it on, or has one step. Where any number
    of rows may come it is not, though one is expected: fetches that others repeat cost them a tenth of their time."""
    passing = product(axis.extent for axis in around if not _constant(offset, axis))
    return expected.known(passing) == 1


def _panel(kernel: Kernel, node: Load, loop: Loop, outer: Sequence[Loop], expected: Expected) -> Panel | Obstacle:
    """The panel that a load along the lanes walks through."""
    offset = _offset(kernel, node)
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
    # Where one row is expected there may be many, and nobody would need what the later ones fetch again. A single pass
    # fetches the same lines again: it waits for its own panel, and what else it fetched would be half of the next.
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
    counted = tiles if tiles.constant is None else None
    return Panel(node.tensor, start, walked, loop.unroll, elements, wanted, reason, least, passes=counted)


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

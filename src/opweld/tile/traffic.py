"""How long the memory accesses of a tile program take: bytes that each level of cache does not keep.

An access walks through the loops around it, outermost first, and then over its tile. What lies inside some loop and
fits a cache altogether is brought there once; whenever a loop further out moves to other elements, or has walked
through more than the cache holds, it is brought again. What a kernel reads first was mostly just written: it is in the
smallest level that holds all that the kernel touches. Weights were used a whole run ago, and come from the smallest
level that holds all weights of the model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from opweld.place.placed import Placed
from opweld.schedule.cost import LINE, core_of
from opweld.schedule.expected import Expected
from opweld.target import Target
from opweld.tensor.dim import Axis, Dim
from opweld.tensor.dtype import DType

USABLE = 0.75
"""The part of a cache that holds what a kernel wants to keep."""


@dataclass(frozen=True)
class Weights:
    """Which buffers are constants of the model, and the bytes of all of them."""

    names: frozenset[str] = field(default_factory=frozenset[str])
    bytes: int = 0


def weights_of(placed: Placed) -> Weights:
    """The constants that kernels read, as predictions of time want them: of what is packed or transformed, that alone,
    as what it was made from is not stored."""
    read: set[str] = set()
    for region in placed.regions:
        own = set(region.inputs)
        for tensor in region.tensors:
            lanes = placed.lanes.get(tensor.name)
            if lanes is not None and lanes.winograd and lanes.along is not None:
                own = own - {lanes.along.tensor} | {lanes.winograd}
        read |= own
    roots = {placed.storages[name].root: placed.storages[name] for name in placed.constants if name in read}
    sizes = (int(storage.elements) * storage.dtype.bytes for storage in roots.values())
    return Weights(frozenset(roots), sum(sizes))


@dataclass(frozen=True)
class Access:
    """A load or store: an offset of a buffer (in elements), for each iteration of `loops`: the grid, the loops and the
    tiles around it, as axes with their trip counts, outermost first."""

    buffer: str
    offset: Dim
    loops: tuple[tuple[Axis, float], ...]


@dataclass(frozen=True)
class _Walk:
    """An access in numbers: for each of its loops, how far a step goes (in elements; infinitely where unknown)."""

    buffer: str
    bytes: int
    steps: tuple[float, ...]
    trips: tuple[float, ...]

    def dense(self, depth: int) -> bool:
        """Whether the axes from `depth` on touch several elements of a line."""
        return self._spread(depth) <= LINE // 2

    def _spread(self, depth: int) -> float:
        """Bytes of cache lines that each element brings, what lies between it and the next one included."""
        return min(LINE, *(step * self.bytes for step in self.steps[depth:] if step), LINE)

    def footprint(self, depth: int) -> float:
        """Bytes of cache lines that the axes from `depth` on touch."""
        elements, span = 1.0, 1.0
        for step, trips in zip(self.steps[depth:], self.trips[depth:], strict=True):
            if step:
                elements *= trips
                span += step * (trips - 1)
        touched = elements * self._spread(depth)
        return max(LINE, min(touched, span * self.bytes if math.isfinite(span) else touched))


@dataclass(frozen=True)
class Traffic:
    """Where the bytes of a kernel come from.

    Attributes:
        seconds: that they take.
        l2, l3, dram: bytes that come to the first-level cache from the second or beyond; from the third; from memory.
    """

    seconds: float = 0.0
    l2: float = 0.0
    l3: float = 0.0
    dram: float = 0.0


def traffic_of(
    accesses: Sequence[Access],
    dtypes: Mapping[str, DType],
    grid: int,
    target: Target,
    expected: Expected,
    weights: Weights,
) -> Traffic:
    """What the accesses of a kernel move, all iterations of its `grid` axes together.

    Raises KeyError for an access to memory that has no dtype."""
    groups: dict[tuple[tuple[Axis, float], ...], dict[object, _Walk]] = {}
    for access in accesses:
        steps = tuple(_step(access.offset, axis, expected) for axis, _ in access.loops)
        trips = tuple(trips for _, trips in access.loops)
        walk = _Walk(access.buffer, dtypes[access.buffer].bytes, steps, trips)
        # Accesses that walk alike are neighbours in memory, but for what was sliced: those are few.
        groups.setdefault(access.loops, {})[walk] = walk
    walks = [list(group.values()) for group in groups.values()]
    levels = (target.l1_bytes, target.l2_bytes, target.l3_bytes)
    near, far, farthest = (_missed(walks, grid, USABLE * size) for size in levels)
    whole = _footprint(walks, 0)
    core = core_of(target)
    moved = sum(near.values()) / core.l2_bytes / core.hertz
    l3 = dram = 0.0
    for buffer, missed in far.items():
        held = max(weights.bytes, whole) if buffer in weights.names else whole
        # What passes through the last level once is still there when it is read again, if that is soon enough.
        distant = min(missed, farthest[buffer]) if held > target.l3_bytes else 0.0
        if held > USABLE * target.l2_bytes:
            l3, dram = l3 + missed - distant, dram + distant
    beyond = (l3 / core.l3_bytes + dram / core.dram_bytes) / core.hertz
    return Traffic(max(moved, beyond), sum(near.values()), l3, dram)


def _step(offset: Dim, axis: Axis, expected: Expected) -> float:
    if not offset.depends_on(axis):
        return 0.0
    step = offset.coefficient(axis)
    return math.inf if step is None else max(1, expected(step), expected(-step))


def _footprint(walks: Sequence[Sequence[_Walk]], depth: int) -> float:
    """Bytes that the axes from `depth` on touch; passes over the same buffer touch the same."""
    found: dict[str, float] = {}
    for group in walks:
        own: dict[str, float] = {}
        for walk in group:
            own[walk.buffer] = own.get(walk.buffer, 0.0) + walk.footprint(depth)
        for buffer, size in own.items():
            found[buffer] = max(found.get(buffer, 0.0), size)
    return sum(found.values())


def _missed(walks: Sequence[Sequence[_Walk]], grid: int, room: float) -> dict[str, float]:
    """For each buffer the bytes that come from beyond a cache."""
    shared = _footprint(walks, grid) <= room
    found: dict[str, float] = {}
    for group in walks:
        own: dict[str, float] = {}
        depth = next((d for d in range(len(group[0].trips)) if _footprint([group], d) <= room), len(group[0].trips))
        for walk in group:
            own[walk.buffer] = own.get(walk.buffer, 0.0) + _brought(walk, depth)
        for buffer, size in own.items():
            # Passes over what an iteration keeps bring it once.
            found[buffer] = max(found.get(buffer, 0.0), size) if shared else found.get(buffer, 0.0) + size
    return found


def _brought(walk: _Walk, depth: int) -> float:
    """Bytes brought to a cache that holds what the axes from `depth` on touch."""
    total, streams = walk.footprint(depth), False
    for position in reversed(range(depth)):
        step, trips = walk.steps[position], max(1.0, walk.trips[position])
        if position == depth - 1 and 0 < step * walk.bytes < LINE and not walk.dense(depth):
            # Neighbours of what is there, mostly in the same lines.
            trips = max(1.0, trips * step * walk.bytes / LINE)
        streams = streams or step > 0
        if streams:
            total *= trips
    return total

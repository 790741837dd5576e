"""The working sets with which each level of memory is measured."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from opweld.analysis.meter import Memory, Meter, Reading
from opweld.groups import free_memory
from opweld.target import MIB, Target

_PIECE = 4096
"""Sets are multiples of this, in bytes."""

_SEARCHES = 3
_LOADS_S = 0.002
"""The number of samples for the size of the last cache, and the seconds of each."""

_FOREIGN = 4
"""The size of a set, in multiples of the second level, of which little is found there."""

_OVER = 4
"""The size of the set for DRAM, in multiples of the last cache: lines are evicted before they are reused."""

WARM_S: Final = 0.0005
"""Seconds before a sample, in which caches fill and the clock frequency settles."""

SETTLE_S: Final = 0.002
"""Seconds before loads of a chain: until half of it was reached by loads, and until a virtual machine's own page tables
are cached; for DRAM, twice as long."""


@dataclass(frozen=True)
class Place:
    """The sets of a level.

    Attributes:
        one, all: bytes of the set for one core alone, and for each of all threads.
        chain: bytes of the chain of loads, a power of two.
        declared, seen: as in `Level`.
    """

    name: str
    one: int
    all: int
    chain: int
    declared: int
    seen: int


def places(target: Target, threads: int, seen: int, memory: Memory, far: Memory) -> tuple[Place, ...]:
    """The sets of each level: half of a core's private cache, and a share of a shared one."""
    found = [
        Place(name, _whole(size // 2), _whole(size // 2), power_of_two(size // 2), size, size)
        for name, size in (("L1", target.l1_bytes), ("L2", target.l2_bytes))
    ]
    if seen:
        # Large enough that little of it is in the second level, and small enough for all threads' sets.
        own = [max(2 * target.l2_bytes, min(_FOREIGN * target.l2_bytes, seen // 2 // n)) for n in (1, threads)]
        one, each = (_whole(min(size, memory.bytes // threads)) for size in own)
        found.append(Place("L3", one, each, power_of_two(one), target.l3_bytes, seen))
    found.append(Place("DRAM", memory.part(threads) * threads, memory.part(threads), far.bytes, 0, 0))
    return tuple(found)


def cache_seen(meter: Meter, target: Target, memory: Memory, far: Memory) -> int:
    """The size of the last cache available to one core: the largest set whose loads take less than the mean of the
    least times for a small set and for memory. Other users of the same processor may have the rest. 0 if there is no
    such cache."""
    if target.l3_bytes <= target.l2_bytes:
        return 0
    sizes = [power_of_two(4 * target.l2_bytes)]
    while sizes[-1] * 2 <= min(target.l3_bytes, memory.bytes):
        sizes.append(sizes[-1] * 2)
    taken: dict[int, list[float]] = {}
    at = far.bytes // 2
    for _ in range(_SEARCHES):
        for size in sizes:
            taken.setdefault(size, []).append(1 / chase(meter, memory, size, _LOADS_S).rate)
        reading = meter.read("chase", _LOADS_S, warm=2 * SETTLE_S, memory=far, size=far.bytes, at=at)
        taken.setdefault(0, []).append(1 / reading.rate)
        at = reading.at
    times = {size: min(values) for size, values in taken.items()}
    fit = [size for size in sizes if times[size] < (times[sizes[0]] + times[0]) / 2]
    return target.l3_bytes if fit == sizes else max(fit, default=sizes[0])


def chase(meter: Meter, memory: Memory, size: int, seconds: float) -> Reading:
    """Loads of a chain of the given size, written just before."""
    return meter.read("chase", seconds, warm=SETTLE_S, memory=memory, size=size, fresh=True)


def room(target: Target, threads: int) -> int:
    """The size of the set for DRAM: four times the last cache, but at most a quarter of the free memory."""
    return max(32 * MIB * threads, min(_OVER * target.l3_bytes, free_memory() // 4))


def _whole(size: int) -> int:
    return max(_PIECE, size // _PIECE * _PIECE)


def power_of_two(size: int) -> int:
    """The largest power of two up to a size, at least a page."""
    return 1 << int(math.log2(max(size, _PIECE)))

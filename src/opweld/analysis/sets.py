"""In which parts of memory each level is measured: sets that a cache holds, and room that none does."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from opweld.analysis.meter import Memory, Meter, Reading
from opweld.groups import group_memory
from opweld.target import MIB, Target

_PIECE = 4096
"""A set is a multiple of so many bytes."""

_SEARCHES = 3
_LOADS_S = 0.002
"""How often one looks for the end of the last cache, and how long at each size."""

_FOREIGN = 4
"""Of the second level's bytes, the multiple that a set needs for little of it to be found there."""

_OVER = 4
"""Of the last cache's bytes, the multiple in which DRAM is measured: what is met again is long gone."""

WARM_S: Final = 0.0005
"""Before a sample: caches fill, and the clock gets to where it will stay."""

SETTLE_S: Final = 0.002
"""Before loads of a chain: until half of it was met by loads and not as it was written, and until a virtual machine's
own tables of pages are in a cache; of the one in DRAM, twice as long."""


@dataclass(frozen=True)
class Place:
    """Where a level is measured.

    Attributes:
        one, all: bytes of the set of one core alone, and of each of all threads.
        chain: bytes that the chain of loads goes through, a power of two.
        declared, seen: as `Level` has them.
    """

    name: str
    one: int
    all: int
    chain: int
    declared: int
    seen: int


def places(target: Target, threads: int, seen: int, memory: Memory, far: Memory) -> tuple[Place, ...]:
    """The sets of each level: half of a cache that a core has to itself, and a part of one that all share."""
    found = [
        Place(name, _whole(size // 2), _whole(size // 2), power_of_two(size // 2), size, size)
        for name, size in (("L1", target.l1_bytes), ("L2", target.l2_bytes))
    ]
    if seen:
        # Large enough that the second level holds little of it, and that all threads' sets fit.
        own = [max(2 * target.l2_bytes, min(_FOREIGN * target.l2_bytes, seen // 2 // n)) for n in (1, threads)]
        one, each = (_whole(min(size, memory.bytes // threads)) for size in own)
        found.append(Place("L3", one, each, power_of_two(one), target.l3_bytes, seen))
    found.append(Place("DRAM", memory.part(threads) * threads, memory.part(threads), far.bytes, 0, 0))
    return tuple(found)


def cache_seen(meter: Meter, target: Target, memory: Memory, far: Memory) -> int:
    """How much of the last cache one core has: the largest set whose loads take less than the mean of what they take in
    a small one and from memory, each as fast as it was at best. Others on the same processor may have the rest. 0 where
    there is none."""
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
    """Loads of a chain through so many bytes, which were all written just before."""
    return meter.read("chase", seconds, warm=SETTLE_S, memory=memory, size=size, fresh=True)


def room(target: Target, threads: int) -> int:
    """Bytes in which DRAM is measured: four times the last cache, if a quarter of the free memory is as much."""
    return max(32 * MIB * threads, min(_OVER * target.l3_bytes, _free_memory() // 4))


def _free_memory() -> int:
    """Bytes that the system could give this process; a lot where it does not say."""
    found = 1 << 40
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                found = int(line.split()[1]) * 1024
    return min(found, group_memory() or found)


def _whole(size: int) -> int:
    return max(_PIECE, size // _PIECE * _PIECE)


def power_of_two(size: int) -> int:
    """The largest that is no more, but no less than a page."""
    return 1 << int(math.log2(max(size, _PIECE)))

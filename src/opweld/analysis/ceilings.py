"""Measures the ceilings of this machine with the microbenchmarks of ceilings.c, compiled as kernels are.

Everything is measured once in each of many rounds: interference by other programs affects all figures alike, and shows
as their spread. The figures:

- arithmetic: multiply-adds on registers alone, with enough accumulators to hide the latency;
- reading and writing: plain loads and stores of a set of half the size of a level, repeatedly, or, for DRAM, of one
  so large that no line is still cached when it is needed again;
- latency: a chain of loads in an order that prefetchers cannot predict, in huge pages if available;
- the barrier: of spinning threads, as the runtime's.
"""

from __future__ import annotations

import datetime
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import opweld
from opweld.analysis.machine import Figure, Level, Machine, Pair
from opweld.analysis.meter import Memory, Meter, Reading
from opweld.analysis.sets import SETTLE_S, WARM_S, Place, cache_seen, chase, places, power_of_two, room
from opweld.build.cache import Cache
from opweld.errors import OptionError
from opweld.options import available_cores
from opweld.target import MIB, Target, processor_name

Progress = Callable[[str, int, int], None]
"""Called with (activity, steps done, steps in all)."""

ROUNDS: Final = 40
SAMPLE_S: Final = 0.002
LONGEST_S: Final = 6.0
"""The number of rounds, and the seconds of a sample: shorter than a time slice of the system's scheduler. Half of the
longest, if nothing else runs."""

_OWN = 0.98
_TRIES = 8
"""The fraction of a sample's time in which all threads must have been running; and the most attempts."""

_NEEDS = {"fp32": (), "bf16": ("avx512bf16", "amx-bf16"), "int8": ("avx2", "avx512bw")}
"""Kinds of arithmetic, and the processor features of which one is required; none if not needed."""

_FILL = 10e9
"""The least assumed rate of filling a cache, in bytes per second."""


class _Samples:
    """The samples so far, by name of the figure."""

    def __init__(self, longest: float) -> None:
        self.values: dict[str, list[float]] = {}
        self.taken = self.disturbed = 0
        self._until = time.monotonic() + longest

    def take(self, name: str, ask: Callable[[], Reading], value: Callable[[float], float] = float) -> None:
        """Adds a sample. It is repeated if other programs used the processors, while there is time."""
        best = ask()
        self.taken += 1
        for _ in range(_TRIES - 1):
            if best.share >= _OWN or time.monotonic() > self._until:
                break
            self.taken += 1
            self.disturbed += 1
            best = max(best, ask(), key=lambda reading: reading.share)
        self.values.setdefault(name, []).append(value(best.rate))

    def figure(self, name: str) -> Figure:
        return figure_of(self.values[name])

    def pair(self, name: str) -> Pair:
        one = self.figure(f"{name} one")
        return Pair(one, self.figure(f"{name} all") if f"{name} all" in self.values else one)


def figure_of(samples: Sequence[float]) -> Figure:
    """The median of samples, and their spread from the 10th to the 90th percentile."""
    middle = statistics.median(samples)
    tenths = statistics.quantiles(samples, n=10, method="inclusive") if len(samples) > 1 else [middle]
    return Figure(middle, (tenths[-1] - tenths[0]) / middle, len(samples))


def measure(
    threads: int = 0,
    progress: Progress | None = None,
    *,
    rounds: int = ROUNDS,
    seconds: float = SAMPLE_S,
    cache: Cache | None = None,
) -> Machine:
    """Measures this machine, with this many threads (0: all processors). Does not store the result.

    Args:
        rounds: samples of each figure. seconds: duration of each.
        cache: for compiled programs.

    Raises OptionError for too many threads, ToolchainError, and RunError if memory is insufficient.
    """
    most = available_cores()
    threads = threads or most
    if not 1 <= threads <= most:
        raise OptionError(f"threads is {threads}, expected a number from 1 to {most}: each is measured on its own core")
    target = Target.native()
    tell = progress or _nothing
    tell("compiling", 0, 0)
    meter, size = Meter.open(threads, target, cache), room(target, threads)
    with meter.memory(size) as memory, meter.memory(power_of_two(size // 4)) as far:
        tell("allocating memory", 0, 0)
        meter.read("chain", 0, memory=far, size=far.bytes)
        meter.read("touch", 0, threads=threads, memory=memory, size=memory.part(threads))
        tell("finding the size of the last cache", 0, 0)
        found = places(target, threads, cache_seen(meter, target, memory, far), memory, far)
        huge = _huge_pages() / (memory.bytes + far.bytes)
        samples = _Course(meter, target, threads, found, memory, far, seconds).run(rounds, tell)
    levels = tuple(
        Level(
            place.name,
            place.seen,
            samples.pair(f"read {place.name}"),
            samples.pair(f"write {place.name}"),
            samples.figure(f"latency {place.name}"),
            place.declared,
        )
        for place in found
    )
    return Machine(
        processor=processor_name(),
        target=target.name,
        threads=threads,
        measured=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        opweld=opweld.__version__,
        compute={kind: samples.pair(kind) for kind in kinds(target)},
        levels=levels,
        barrier=samples.figure("barrier"),
        notes=_notes(samples, found, huge),
    )


def _nothing(what: str, done: int, total: int) -> None:
    """No progress is shown."""


def kinds(target: Target) -> tuple[str, ...]:
    """The kinds of arithmetic for which a target has an instruction that kernels may use."""
    return tuple(kind for kind, needs in _NEEDS.items() if not needs or set(needs) & set(target.features))


@dataclass
class _Course:
    """The measurements of a round."""

    meter: Meter
    target: Target
    threads: int
    places: Sequence[Place]
    memory: Memory
    far: Memory
    seconds: float

    def __post_init__(self) -> None:
        self._at: dict[tuple[str, int], int] = {}

    def run(self, rounds: int, tell: Progress) -> _Samples:
        """All samples of all figures."""
        samples = _Samples(LONGEST_S)
        for number in range(rounds):
            tell("measuring", number, rounds)
            self._round(samples)
        tell("measuring", rounds, rounds)
        return samples

    def _round(self, samples: _Samples) -> None:
        samples.take("clock", lambda: self.meter.read("clock", self.seconds, warm=WARM_S))
        for team, threads in {"one": 1, "all": self.threads}.items() if self.threads > 1 else [("one", 1)]:
            for kind in kinds(self.target):
                ask = partial(self.meter.read, kind, self.seconds, warm=WARM_S, threads=threads)
                samples.take(f"{kind} {team}", ask)
            for place in self.places:
                for kind in ("read", "write"):
                    samples.take(f"{kind} {place.name} {team}", partial(self._stream, kind, place, threads))
        for place in self.places:
            samples.take(f"latency {place.name}", partial(self._chase, place), lambda rate: 1 / rate)
        ask = partial(self.meter.read, "barrier", self.seconds, threads=self.threads)
        samples.take("barrier", ask, lambda rate: 1 / rate)

    def _stream(self, kind: str, place: Place, threads: int) -> Reading:
        """Reads or writes a set repeatedly, or continues in DRAM where the last sample ended."""
        size, endless = place.one if threads == 1 else place.all, place.name == "DRAM"
        found = self.meter.read(
            kind,
            self.seconds,
            warm=WARM_S + (0 if endless else size / _FILL),
            threads=threads,
            memory=self.memory,
            size=size,
            at=self._at.get((kind, threads), 0) if endless else 0,
        )
        if endless:
            self._at[kind, threads] = found.at
        return found

    def _chase(self, place: Place) -> Reading:
        """Follows a chain that was just written, or continues the one in DRAM."""
        if place.name != "DRAM":
            return chase(self.meter, self.memory, place.chain, self.seconds)
        at = self._at.get(("chase", 1), 0)
        found = self.meter.read("chase", self.seconds, warm=2 * SETTLE_S, memory=self.far, size=self.far.bytes, at=at)
        self._at["chase", 1] = found.at
        return found


def _huge_pages() -> int:
    """Bytes of this process's memory in huge pages."""
    with suppress(OSError, ValueError, IndexError):
        for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
            if line.startswith("AnonHugePages:"):
                return int(line.split()[1]) * 1024
    return 0


def _notes(samples: _Samples, places: Sequence[Place], huge: float) -> tuple[str, ...]:
    """Notes on conditions that differ between machines."""
    sets = ", ".join(f"{place.name} {_size(place.one)}" for place in places)
    again = f"{samples.disturbed} of {samples.taken} samples were repeated because other programs used the processors"
    small = f"memory: {_size(places[-1].one)} were available to measure DRAM, of which caches hold a part"
    return (
        f"clock: {samples.figure('clock').value / 1e9:.2f} GHz, from dependent additions",
        f"sets of one core: {sets}",
        f"huge pages: {min(huge, 1):.0%} of the memory"
        + ("" if huge > 0.9 else "; latencies of large sets include page walks"),
        "writing: plain stores; lines of DRAM are read before they are written",
        *([again] if samples.disturbed else []),
        *([small] if places[-1].one < 2 * max(place.seen for place in places) else []),
    )


def _size(count: int) -> str:
    return f"{count // MIB} MiB" if count >= MIB else f"{count // 1024} KiB"

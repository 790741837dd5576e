"""What keeps a kernel from being faster: the arithmetic of the machine, its memory, or neither.

The rule: a kernel whose operations take more than 60% of its time at the machine's peak is bound by arithmetic; one
whose bytes take more than 60% of it at the bandwidth of the level of memory that they come from is bound by that level;
what does neither waits, and is bound by latency. Of that there are four causes: `dependency`, results that go on from
one repetition to the next; `synchronisation`, threads that wait for each other; `too little work`, a kernel so short
that starting it counts; `instructions`, units other than the multipliers that are busy: loads of single elements,
indices, shuffles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from opweld.analysis.machine import Level, Machine
from opweld.record import Predicted

USED = 0.6
"""The part of a ceiling from which on a kernel is bound by it."""

SHORT_S = 5e-6
"""A kernel that takes its threads no longer together has too little work."""

WAITS = 0.25
"""The part of its threads' time from which on waiting for each other is what a kernel is bound by."""

SPECIAL = 40
"""Operations at the peak that one function such as exp, or one division, takes the time of: ten cycles a vector, of two
multiply-adds each."""

IMPOSSIBLE = 1.1
"""How much longer than a kernel took its bytes may seem to have taken, for ceilings are medians."""

DISAGREES = 2.0
"""The factor between predicted and measured seconds from which on they disagree."""

EXECUTED = {"winograd": 16 / 36}
"""The part of a kernel's operations that its algorithm does, where these are counted as the model has them."""

Kind = Literal["compute", "memory", "latency"]


@dataclass(frozen=True)
class KernelWork:
    """What a kernel has to do, at the sizes in question.

    Attributes:
        kind: of its members, as its name says: map, contraction, winograd, window, rows, block, scan, halo,
            extern.
        flops, special: floating-point operations, and those of them that are functions or divisions.
        read, written: bytes, each value once.
        predicted: seconds on one core by cause, and bytes by the level that they come from.
        threads: that compute it.
    """

    kind: str
    flops: int
    special: int
    read: int
    written: int
    predicted: Predicted
    threads: int = 1

    @property
    def seconds(self) -> float:
        """What it is predicted to take on its threads."""
        p = self.predicted
        return (max(p.arithmetic, p.traffic) + p.dependency) / max(1, self.threads) + p.launch


@dataclass(frozen=True)
class Bound:
    """A verdict.

    Attributes:
        kind: what the kernel is bound by. level: of memory, where that is memory. cause: where it is latency.
        compute, bandwidth: the parts of its time that operations at the peak, and bytes at their bandwidth, would take.
        floor: seconds that the larger of both takes at least, each value moved once.
        reason: the verdict in words. try_next: what to try.
    """

    kind: Kind
    level: str
    cause: str
    compute: float
    bandwidth: float
    floor: float
    reason: str
    try_next: str

    def to_json(self) -> dict[str, Any]:
        """As JSON types."""
        return {
            "kind": self.kind,
            "level": self.level,
            "cause": self.cause,
            "compute": self.compute,
            "bandwidth": self.bandwidth,
            "floor_seconds": self.floor,
            "reason": self.reason,
            "try": self.try_next,
        }

    @property
    def name(self) -> str:
        """The verdict in a word or two: `compute`, `L3`, `latency: dependency`."""
        return {"compute": "compute", "memory": self.level, "latency": f"latency: {self.cause}"}[self.kind]


def bound_of(work: KernelWork, machine: Machine, seconds: float | None = None, waiting: float = 0.0) -> Bound:
    """The verdict on a kernel that was measured to take `seconds`; or that is predicted to take `work.seconds`.

    `waiting`: seconds that its threads, together, spent on it without computing."""
    threads = max(1, work.threads)
    # A backend may predict nothing of a kernel.
    took = max(work.seconds if seconds is None else seconds, 1e-12)
    executed = work.flops * EXECUTED.get(work.kind, 1.0)
    calculating = (executed + (SPECIAL - 1) * work.special) / machine.compute["fp32"].at(threads)
    level, moving = _moving(work, machine, threads, took)
    floor = max(calculating, _least(work, machine, threads))
    compute, bandwidth = calculating / took, moving / took
    made = _Making(compute, bandwidth, floor)
    if compute > USED and compute >= bandwidth:
        reason = f"{compute:.0%} of the arithmetic that {_cores(threads)} can do"
        return made.bound("compute", "", "", reason, _COMPUTE.get(work.kind, _COMPUTE[""]))
    if bandwidth > USED:
        reason = f"{bandwidth:.0%} of what {level} delivers to {_cores(threads)}"
        return made.bound("memory", level, "", reason, _MEMORY[level])
    cause = _cause(work, took, calculating, waiting)
    reason = f"{compute:.0%} of the arithmetic, {bandwidth:.0%} of the bandwidth of {level}: {_CAUSES[cause][0]}"
    tiled = cause == "instructions" and work.kind in ("contraction", "winograd", "window", "block")
    return made.bound("latency", "", cause, reason, _TILE if tiled else _CAUSES[cause][1])


def disagreement(predicted: Bound, measured: Bound, expected: float, seconds: float) -> str:
    """Where a prediction and a measurement say different things, in words; "" where they agree."""
    factor = seconds / expected if expected > 0 else 1.0
    found: list[str] = []
    if not 1 / DISAGREES <= factor <= DISAGREES:
        found.append(f"{factor:.1f} times the predicted time")
    if (predicted.kind, predicted.level) != (measured.kind, measured.level):
        found.append(f"predicted {predicted.name}, measured {measured.name}")
    return "; ".join(found)


@dataclass(frozen=True)
class _Making:
    compute: float
    bandwidth: float
    floor: float

    def bound(self, kind: Kind, level: str, cause: str, reason: str, try_next: str) -> Bound:
        return Bound(kind, level, cause, self.compute, self.bandwidth, self.floor, reason, try_next)


def _moving(work: KernelWork, machine: Machine, threads: int, took: float) -> tuple[str, float]:
    """The level of memory whose bytes take the longest, and the seconds that they take.

    A level that could not have delivered them in the time that the kernel took did not: they were in a nearer one."""
    found = _sources(work, machine)
    times = {
        level.name: found[level.name] / _rate(work, level, threads) for level in machine.levels if found.get(level.name)
    }
    possible = {name: seconds for name, seconds in times.items() if seconds <= took * IMPOSSIBLE}
    if not possible:
        near = machine.levels[0]
        return near.name, (work.read + work.written) / _rate(work, near, threads)
    level = max(possible, key=lambda name: possible[name])
    return level, possible[level]


def _sources(work: KernelWork, machine: Machine) -> dict[str, float]:
    """The bytes that come from each level. What is larger than this machine's share of a shared L3 comes from DRAM."""
    p, last = work.predicted, machine.level("L3")
    if last is not None and work.read + work.written > last.bytes:
        return {"L2": p.l2, "L3": 0.0, "DRAM": p.l3 + p.dram}
    return {"L2": p.l2, "L3": p.l3, "DRAM": p.dram}


def _least(work: KernelWork, machine: Machine, threads: int) -> float:
    """Seconds that its bytes take at least, each value moved once, from the nearest level that could hold them."""
    moved = work.read + work.written
    shared = ("L3",)
    for level in machine.levels:
        if moved <= level.bytes * (1 if level.name in shared else threads):
            return moved / _rate(work, level, threads)
    return moved / _rate(work, machine.levels[-1], threads)


def _rate(work: KernelWork, level: Level, threads: int) -> float:
    """Bytes a second of a level, for reads and writes as the kernel mixes them."""
    moved = work.read + work.written
    share = work.written / moved if moved else 0.0
    return 1 / (share / level.write.at(threads) + (1 - share) / level.read.at(threads))


def _cause(work: KernelWork, took: float, calculating: float, waiting: float) -> str:
    threads = max(1, work.threads)
    if took * threads <= SHORT_S:
        return "too little work"
    if waiting / (took * threads) > WAITS:
        return "synchronisation"
    units = work.predicted.arithmetic / threads - calculating
    return "dependency" if work.predicted.dependency / threads > units else "instructions"


def _cores(threads: int) -> str:
    return "one core" if threads == 1 else f"{threads} threads"


_COMPUTE = {
    "contraction": "fewer operations, as fewer bits or a Winograd transform have; the kernel itself is near its limit",
    "winograd": "fewer operations, as fewer bits have; the kernel itself is near its limit",
    "block": "fewer operations, as fewer bits have; the kernel itself is near its limit",
    "": "simpler functions, or none: what is computed, not how, is what takes the time",
}
_MEMORY = {
    "L1": "compute it inside its neighbour, so that its values stay in registers: see `opweld explain --node`",
    "L2": "compute it inside its neighbour, so that its values stay in registers: see `opweld explain --node`",
    "L3": "compute it inside its neighbour, or part by part with it, so that its values stay in the second-level cache",
    "DRAM": "fewer bytes: fusion with its neighbours, or values and weights of fewer bits",
}
_TILE = "a register tile that uses what it loads more often: pin a larger schedule.height or schedule.vectors"
_CAUSES = {
    "dependency": (
        "each result waits for the one before",
        "more sums at a time: pin schedule.unroll, schedule.height or schedule.vectors to a larger alternative",
    ),
    "synchronisation": (
        "threads wait for each other",
        "fewer threads (--threads 1), or larger pieces: a larger batch, or fusion with a neighbour",
    ),
    "too little work": (
        "it is over before starting it has paid",
        "fusion with a neighbour, so that it is not started at all; or a larger batch",
    ),
    "instructions": (
        "units other than the multipliers are busy: loads of single elements, indices, shuffles",
        "another lane axis, so that memory is read in vectors: pin schedule.lane or place.order",
    ),
}

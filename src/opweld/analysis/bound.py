"""The bottleneck of a kernel: the arithmetic of the machine, its memory, or latency (a roofline model).

A kernel whose operations take more than 60% of its time at the machine's peak is bound by arithmetic; one whose bytes
take more than 60% of it at the bandwidth of their level of memory is bound by that level; otherwise it is bound by
latency. That has four causes: `dependency`, loop-carried dependencies; `synchronisation`, threads that wait for each
other; `too little work`, a kernel so short that its start matters; `instructions`, busy units other than the
multipliers: loads of single elements, indices,
shuffles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from opweld.analysis.machine import Level, Machine
from opweld.record import Predicted

USED = 0.6
"""The fraction of a ceiling above which a kernel is bound by it."""

SHORT_S = 5e-6
"""Seconds of all its threads together below which a kernel has too little work."""

WAITS = 0.25
"""The fraction of its threads' time above which a kernel is bound by synchronisation."""

SPECIAL = 40
"""The cost of a function such as exp, or of a division, in operations at the peak: ten cycles a vector, of two
multiply-adds each."""

IMPOSSIBLE = 1.1
"""The tolerance by which bytes may take longer than the kernel, since ceilings are medians."""

DISAGREES = 2.0
"""The factor between predicted and measured seconds above which they disagree."""

EXECUTED = {"winograd": 16 / 36}
"""The fraction of a kernel's operations that its algorithm executes, where the model's operations are counted."""

Kind = Literal["compute", "memory", "latency"]


@dataclass(frozen=True)
class KernelWork:
    """The work of a kernel at given sizes.

    Attributes:
        kind: of its members, from its name: map, contraction, winograd, window, rows, block, scan, halo,
            extern.
        flops, special: floating-point operations, of which functions and divisions.
        read, written: bytes, each value once.
        predicted: seconds on one core by cause, and bytes by source level.
        threads: that compute it.
        computes: what its products are of: fp32, bf16, int8. products: operations of these, of which a multiply-add is
            two; those of floats are among `flops`.
    """

    kind: str
    flops: int
    special: int
    read: int
    written: int
    predicted: Predicted
    threads: int = 1
    computes: str = "fp32"
    products: int = 0

    @property
    def seconds(self) -> float:
        """The predicted time on its threads."""
        p = self.predicted
        return (max(p.arithmetic, p.traffic) + p.dependency) / max(1, self.threads) + p.launch


@dataclass(frozen=True)
class Bound:
    """A verdict.

    Attributes:
        kind: the bottleneck. level: if that is memory. cause: if it is latency.
        compute, bandwidth: the fractions of its time for operations at the peak, and for bytes at their bandwidth.
        floor: a lower bound in seconds: the larger of both, with each value moved once.
        reason: the verdict in words. try_next: a suggestion.
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
    """The verdict on a kernel measured to take `seconds`, or else predicted to take `work.seconds`.

    `waiting`: idle seconds of all its threads together."""
    threads = max(1, work.threads)
    # A backend may predict nothing of a kernel.
    took = max(work.seconds if seconds is None else seconds, 1e-12)
    calculating = _calculating(work, machine, threads)
    level, moving = _moving(work, machine, threads, took)
    floor = max(calculating, _least(work, machine, threads))
    compute, bandwidth = calculating / took, moving / took
    made = _Making(compute, bandwidth, floor)
    if compute > USED and compute >= bandwidth:
        reason = f"{compute:.0%} of the arithmetic that {_cores(threads)} can do"
        return made.bound("compute", "", "", reason, _COMPUTE.get(work.kind, _COMPUTE[""]))
    if bandwidth > USED:
        reason = f"{bandwidth:.0%} of the bandwidth of {level} for {_cores(threads)}"
        return made.bound("memory", level, "", reason, _MEMORY[level])
    cause = _cause(work, took, calculating, waiting)
    reason = f"{compute:.0%} of the arithmetic, {bandwidth:.0%} of the bandwidth of {level}: {_CAUSES[cause][0]}"
    tiled = cause == "instructions" and work.kind in ("contraction", "winograd", "window", "block")
    return made.bound("latency", "", cause, reason, _TILE if tiled else _CAUSES[cause][1])


def _calculating(work: KernelWork, machine: Machine, threads: int) -> float:
    """Seconds of the operations of a kernel at the peak of what it computes in; at that of floats where the processor
    has no instruction for it."""
    floats = work.flops * EXECUTED.get(work.kind, 1.0) + (SPECIAL - 1) * work.special
    own = machine.compute.get(work.computes)
    if work.computes == "fp32" or own is None:
        return (floats + (work.products if work.computes == "int8" else 0)) / machine.compute["fp32"].at(threads)
    rest = floats if work.computes == "int8" else max(0.0, floats - work.products)
    return work.products / own.at(threads) + rest / machine.compute["fp32"].at(threads)


def disagreement(predicted: Bound, measured: Bound, expected: float, seconds: float) -> str:
    """The disagreement of a prediction and a measurement, in words; "" if they agree."""
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
    """The level of memory whose bytes take the longest, and their time in seconds.

    Bytes that a level could not have delivered in the kernel's time came from a nearer one."""
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
    """The bytes by source level. Sets larger than this machine's share of a shared L3 come from DRAM."""
    p, last = work.predicted, machine.level("L3")
    if last is not None and work.read + work.written > last.bytes:
        return {"L2": p.l2, "L3": 0.0, "DRAM": p.l3 + p.dram}
    return {"L2": p.l2, "L3": p.l3, "DRAM": p.dram}


def _least(work: KernelWork, machine: Machine, threads: int) -> float:
    """The least time of its bytes in seconds, each value moved once, from the nearest level that could hold them."""
    moved = work.read + work.written
    shared = ("L3",)
    for level in machine.levels:
        if moved <= level.bytes * (1 if level.name in shared else threads):
            return moved / _rate(work, level, threads)
    return moved / _rate(work, machine.levels[-1], threads)


def _rate(work: KernelWork, level: Level, threads: int) -> float:
    """Bytes a second of a level, for the kernel's mix of reads and writes."""
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

"""The time of a run by kernel, from many timed runs, mapped to the nodes of the file.

A run is divided at its phases, so that the parts of each run add up to the latency:

    call     before the first clock and after the last one: checking inputs, creating outputs
    before   waking the threads
    phase    from the first piece that any thread took of its kernels to the end of the last one
    between  the barrier of the threads
    after    waiting for the last thread

The time of a phase is divided among its kernels in proportion to the busy time of threads in each. So a kernel's
seconds are never less than what the threads of the run needed for it together, and no rate that is based on them
exceeds the machine's: kernels that run concurrently, each on a thread of its own, each have a part of the time, in
which all of these threads worked for it.

Of many runs, the median of each part is reported. Medians of parts add up to a little less than the median of the
whole, as in every run another part is late; means would add up, but a single interrupted run would shift them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from opweld.account.account import Account
from opweld.account.summary import sources_of
from opweld.analysis.bound import Bound
from opweld.analysis.counters import NONE, Counters
from opweld.analysis.disturbance import Disturbance
from opweld.analysis.sample import Samples
from opweld.display import Piece, Shown
from opweld.record import KernelEntry, VariantEntry
from opweld.runtime.plan import PlanDescription, Step
from opweld.runtime.profile import Clocked, Part, Profile, profile_of

Numbers: TypeAlias = npt.NDArray[np.float64]
Flags: TypeAlias = npt.NDArray[np.bool_]
Clocks: TypeAlias = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Spread:
    """Seconds of many runs: the median, the least, and the 90th percentile."""

    median: float
    best: float
    p90: float


@dataclass(frozen=True)
class Overhead:
    """The overhead of clocks, relative to a run without them.

    Attributes:
        added: the median over rounds of blocks with clocks and without; None if rounds differ by more, or if runs with
            clocks were not slower: then it cannot be determined.
        noise: the variation of rounds: half of their interquartile range.
    """

    added: float | None
    noise: float


@dataclass(frozen=True)
class Judgement:
    """The bottleneck of a kernel, as measured and as predicted, and how the two differ."""

    bound: Bound | None = None
    predicted: Bound | None = None
    disagreement: str = ""


@dataclass(frozen=True)
class KernelProfile:
    """One kernel in many runs; all times in seconds, medians unless noted.

    Attributes:
        name, region, phase, nodes: as in `KernelEntry`; phases are numbered through the run. sources: of each node,
            file:line or "".
        variant, segment: of the kernel. times: how often a run executes it; all figures below are of all of them.
        schedule: the line of its region in a schedules file.
        threads: the number of threads that computed it.
        seconds: its part of the run. wall: from its first piece to its last, including others of its phase.
        busy: the sum of its threads' computing time. waiting: idle time of all threads of its phase in its part of the
            run.
        share: of the medians of all kernels.
        flops, bytes: operations (of floats, and summed products of integers), and the least bytes read and
            written, at the sizes of the run.
        predicted: seconds on one core. denormals: whether it computes with denormal numbers, see
            `Session.denormal_steps`.
    """

    name: str
    phase: int
    region: str
    nodes: tuple[str, ...]
    sources: tuple[str, ...]
    schedule: str
    threads: int
    seconds: Spread
    wall: float
    busy: float
    waiting: float
    share: float
    flops: int
    bytes: int
    predicted: float
    judgement: Judgement = Judgement()
    variant: str = ""
    segment: int = 0
    times: int = 1
    denormals: bool = False

    @property
    def flops_per_s(self) -> float:
        """Operations per second of its part of the run."""
        return self.flops / self.seconds.median if self.seconds.median else 0.0

    @property
    def bytes_per_s(self) -> float:
        """The least bytes moved per second of its part of the run."""
        return self.bytes / self.seconds.median if self.seconds.median else 0.0


Judge: TypeAlias = Callable[[KernelProfile], Judgement]


@dataclass(frozen=True)
class Idle:
    """Seconds of a timed run in which no kernel runs, medians; see the module."""

    call: float
    before: float
    between: float
    after: float


@dataclass(frozen=True, eq=False, repr=False)
class ModelProfile(Shown):
    """A model in many runs.

    Attributes:
        variant, threads: of the plan, see `PlanDescription`. inputs: their shapes. segments: the number of executed
            ones.
        plain: seconds of each run without clocks. timed: of those with clocks. in_kernels: of each of the latter, what
            kernels took. overhead: of clocks. disturbance: interference by other programs.
        idle: time outside of kernels. kernels: in the order of the plan, each once. steps: for each step of the plan,
            the index of its kernel.
        typical: the timed run that is nearest to the median. counters: of the hardware.
    """

    variant: str
    threads: int
    inputs: Mapping[str, tuple[int, ...]]
    plain: Numbers
    timed: Numbers
    in_kernels: Numbers
    overhead: Overhead
    disturbance: Disturbance
    idle: Idle
    kernels: tuple[KernelProfile, ...]
    typical: Profile
    steps: tuple[int, ...]
    segments: int = 1
    counters: Counters = NONE

    def shown(self) -> Sequence[Piece]:
        """The slowest kernels, and the latency."""
        from opweld.analysis.profile_text import pieces_of

        return pieces_of(self)

    @property
    def latency(self) -> Spread:
        """Of runs without clocks."""
        return _spread(self.plain)

    @property
    def accounted(self) -> float:
        """The median fraction of a timed run in kernels; the rest is `idle`."""
        return float(np.median(self.in_kernels / self.timed))

    @property
    def per_second(self) -> float:
        """Runs a second, one after the other."""
        return 1 / float(np.mean(self.plain))

    def judged(self, judge: Judge) -> ModelProfile:
        """With the bottleneck of each kernel."""
        return replace(self, kernels=tuple(replace(kernel, judgement=judge(kernel)) for kernel in self.kernels))


def _spread(seconds: Numbers) -> Spread:
    """The spread of one number for each run."""
    return Spread(float(np.median(seconds)), float(np.min(seconds)), float(np.percentile(seconds, 90)))


def overhead_of(samples: Samples) -> Overhead:
    """The overhead of clocks. Only blocks of the same round are compared, since the speed of machines drifts."""
    plain, timed = samples.rounds
    shared = np.intersect1d(plain, timed)
    ratios = [np.median(samples.timed[timed == r]) / np.median(samples.plain[plain == r]) - 1 for r in shared]
    low, middle, high = (float(part) for part in np.percentile(ratios, (25, 50, 75)))
    noise = (high - low) / 2
    return Overhead(middle if middle > noise else None, noise)


def model_profile(
    samples: Samples, account: Account, counters: Counters = NONE, denormals: Collection[int] = ()
) -> ModelProfile:
    """Combines runs; `account` is that of the compilation. `denormals`: the steps that compute with denormal
    numbers."""
    plan = samples.plan
    spans = _Spans.of(plan, samples.wall, samples.timings)
    sources = sources_of(account)
    found = _steps_of_kernels(account, plan)
    spreads = [_spread(spans.seconds[:, own.steps].sum(axis=1)) for own in found]
    total = sum(spread.median for spread in spreads)
    kernels: list[KernelProfile] = []
    for own, spread in zip(found, spreads, strict=True):
        steps = [plan.steps[i] for i in own.steps]
        kernel, variant = own.kernel, own.variant
        nodes = _origins(steps[0]) if kernel is None else tuple(dict.fromkeys(kernel.nodes))
        region = "" if kernel is None else kernel.region
        schedule = account.schedules.regions.get((variant, region)) if kernel else None
        kernels.append(
            KernelProfile(
                name=steps[0].name,
                phase=steps[0].phase,
                region=region,
                nodes=nodes,
                sources=tuple(sources.get(name, "") for name in nodes),
                schedule="" if schedule is None else schedule.text,
                threads=round(float(np.median(spans.threads[:, own.steps].max(axis=1)))),
                seconds=spread,
                wall=float(np.median(spans.wall[:, own.steps].sum(axis=1))),
                busy=float(np.median(spans.busy[:, own.steps].sum(axis=1))),
                waiting=float(np.median(spans.waiting[:, own.steps].sum(axis=1))),
                share=spread.median / total if total else 0.0,
                flops=sum(step.flops for step in steps),
                bytes=sum(step.bytes for step in steps),
                predicted=sum(step.work for step in steps) * 1e-9,
                variant=variant,
                segment=own.segment,
                times=len(steps),
                denormals=any(i in denormals for i in own.steps),
            )
        )
    nearest = int(np.argmin(np.abs(samples.timed - np.median(samples.timed))))
    return ModelProfile(
        variant=", ".join(dict.fromkeys(own.variant for own in found)) or plan.variant,
        threads=plan.threads,
        inputs=samples.shapes,
        plain=samples.plain,
        timed=samples.timed,
        in_kernels=spans.seconds.sum(axis=1),
        overhead=overhead_of(samples),
        disturbance=samples.disturbance,
        idle=Idle(
            float(np.median(samples.timed - samples.wall * 1e-9)),
            *(float(np.median(part)) for part in (spans.before, spans.between, spans.after)),
        ),
        kernels=tuple(kernels),
        typical=profile_of([], plan, int(samples.wall[nearest]), samples.timings[nearest]),
        steps=tuple(number for _, number in sorted((i, n) for n, own in enumerate(found) for i in own.steps)),
        segments=len({visit.segment for visit in plan.segments}),
        counters=counters,
    )


@dataclass(frozen=True, eq=False)
class _Own:
    """A kernel of a plan, and its steps: several, if a segment is executed repeatedly."""

    segment: int
    variant: str
    kernel: KernelEntry | None
    steps: list[int]


def _steps_of_kernels(account: Account, plan: PlanDescription) -> list[_Own]:
    """The kernels of a plan, in the order of first execution."""
    found: dict[tuple[int, str, int], _Own] = {}
    for visit in plan.segments:
        own = range(visit.first, visit.first + visit.steps)
        entry = entry_called(account, visit.variant, [plan.steps[i].name for i in own])
        for position, i in enumerate(own):
            key = visit.segment, visit.variant, position
            if key not in found:
                kernel = None if entry is None else entry.kernels[position]
                found[key] = _Own(visit.segment, visit.variant if entry is None else entry.name, kernel, [])
            found[key].steps.append(i)
    return list(found.values())


def entry_of(account: Account, plan: PlanDescription) -> VariantEntry | None:
    """The variant that was run, for a plan of one segment."""
    return entry_called(account, plan.variant, [step.name for step in plan.steps])


def entry_called(account: Account, variant: str, kernels: Sequence[str]) -> VariantEntry | None:
    """The variant of these kernels that has the name, or, if that was too long for a message, by its kernels."""
    alike = [v for v in account.record.variants if [kernel.name for kernel in v.kernels] == list(kernels)]
    return next((v for v in alike if v.name == variant), alike[0] if len(alike) == 1 else None)


def step_seconds(plan: PlanDescription, clocks: Sequence[Clocked]) -> Numbers:
    """The part of each run that each step takes, in seconds [runs, steps]; see the module."""
    wall = np.array([clock.wall for clock in clocks], np.int64)
    return _Spans.of(plan, wall, np.stack([clock.timings for clock in clocks])).seconds


def _origins(step: Step) -> tuple[str, ...]:
    return tuple(filter(None, step.origin.split(", ")))


@dataclass(frozen=True, eq=False)
class _Spans:
    """By run and step: the number of threads that computed it; in seconds, its part of the run and the threads' times
    in it. By run: the seconds around phases."""

    threads: Numbers
    seconds: Numbers
    wall: Numbers
    busy: Numbers
    waiting: Numbers
    before: Numbers
    between: Numbers
    after: Numbers

    @classmethod
    def of(cls, plan: PlanDescription, wall: Clocks, timings: Clocks) -> _Spans:
        begin, end, busy, pieces = (timings[..., field] for field in range(4))
        took: Flags = pieces > 0
        runs, steps = len(wall), len(plan.steps)
        begins = np.where(took, begin, wall[:, None, None]).min(axis=1)
        ends = np.where(took, end, 0).max(axis=1)
        computing = busy.sum(axis=1)
        ran: Flags = np.any(took, axis=1)
        seconds, waiting = np.zeros((runs, steps)), np.zeros((runs, steps))
        before, between, at = wall.astype(np.float64), np.zeros(runs), np.zeros(runs)
        begun: Flags = np.zeros(runs, np.bool_)
        for own in _phases(plan):
            there: Flags = np.any(ran[:, own], axis=1)
            first = np.maximum(begins[:, own].min(axis=1), at)
            final = np.maximum(ends[:, own].max(axis=1), first)
            before = np.where(there & ~begun, first, before)
            between += np.where(there & begun, first - at, 0)
            part = np.where(there, final - first, 0)
            at, begun = np.where(there, final, at), begun | there
            total = computing[:, own].sum(axis=1, keepdims=True)
            seconds[:, own] = part[:, None] * computing[:, own] / np.maximum(total, 1)
            present = np.any(took[:, :, own], axis=2).sum(axis=1)
            waiting[:, own] = np.maximum(present[:, None] * seconds[:, own] - computing[:, own], 0)
        after = np.where(begun, wall - at, 0)
        threads = took.sum(axis=1).astype(np.float64)
        lasted = np.where(ran, ends - begins, 0)
        times = (part * 1e-9 for part in (seconds, lasted, computing, waiting, before, between, after))
        return cls(threads, *times)


def _phases(plan: PlanDescription) -> list[list[int]]:
    """The steps of each phase, in order."""
    found: dict[int, list[int]] = {}
    for i, step in enumerate(plan.steps):
        found.setdefault(step.phase, []).append(i)
    return [found[phase] for phase in sorted(found)]


def timeline(profile: Profile) -> tuple[Part, ...]:
    """The parts of a run by thread, in order of time."""
    return tuple(sorted(profile.parts, key=lambda part: (part.begin, part.thread, part.step)))

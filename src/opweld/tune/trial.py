"""A model compiled one way or another, and what its kernels take beside those of another way."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from opweld.account.account import Account
from opweld.analysis.alternate import PAUSE_S, Blocks, alternate_runs
from opweld.analysis.profile import entry_of, step_seconds
from opweld.errors import InputError, UnsupportedError
from opweld.record import VariantEntry
from opweld.runtime.profile import Clocked
from opweld.runtime.session import Session
from opweld.verification.compare import SCALE_TOLERANCE, relative_error

Array = npt.NDArray[Any]
Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Trial:
    """A model that was compiled for a try: its folder, what compiling left, for how many threads it is (0: all), and
    the seconds that compiling took."""

    folder: Path
    account: Account
    threads: int
    seconds: float

    @cached_property
    def session(self) -> Session:
        """Opened when something is run: what is compiled for another machine is never."""
        return Session(self.folder, threads=self.threads or None)

    @cached_property
    def _taken(self) -> Mapping[str, str]:
        return {decision.id: decision.taken for decision in self.account.ledger}

    def took(self, ids: Sequence[str], alternative: str) -> bool:
        """Whether decisions were taken as they were requested: what is not legal is passed over."""
        return all(self._taken.get(identity) == alternative for identity in ids)

    def discard(self) -> None:
        """Removes the folder: weights of many trials would fill a disk. The session goes on with what it has open."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def entry(self, feeds: Mapping[str, Array]) -> VariantEntry:
        """The variant that runs for these feeds. Raises UnsupportedError for a model of several segments."""
        if self.session.has_dynamic_control_flow:
            raise UnsupportedError(
                "it has dynamic control flow (a size, a branch or the end of a loop depends on data)"
            )
        found = entry_of(self.account, self.session.plan(feeds))
        if found is None:
            raise InputError("the variant that runs is none that was compiled")
        return found


@dataclass(frozen=True, eq=False)
class Times:
    """Seconds of many runs, in order: `runs` in all, and of the kernels of each region."""

    runs: Numbers
    regions: Mapping[str, Numbers]

    def of(self, regions: Sequence[str]) -> Numbers:
        """Of these regions together."""
        return sum((self.regions[region] for region in regions), np.zeros(len(self.runs)))


@dataclass(frozen=True)
class Gain:
    """How one way does beside another: the other's seconds by its own, above 1 where it is faster; `low` is the lower
    quartile over blocks of runs. `before`, `after`: seconds of the other one and of this."""

    ratio: float
    low: float
    before: float
    after: float


def differs(base: Session, trial: Session, feeds: Mapping[str, Array]) -> str:
    """Which output of a trial is not what it was but for rounding; "" where all are."""
    for info, was, now in zip(base.manifest.outputs, base.run_tensors(feeds), trial.run_tensors(feeds), strict=True):
        error, _ = relative_error(now, was)
        if error > 10 * SCALE_TOLERANCE.get(info.dtype, 0.0):
            return f"{info.name} by {error:.2g} of its scale"
    return ""


def race_seconds(run: float, blocks: Blocks) -> float:
    """What `race` will take, roughly; `run`: seconds of a run."""
    return 2 * blocks.rounds * (PAUSE_S + run * (2 + blocks.count(0, run)))


def race(trials: Sequence[Trial], feeds: Mapping[str, Array], blocks: Blocks) -> list[Times]:
    """What each takes, in alternating blocks of runs."""
    contestants = {str(number): partial(trial.session.clocked, feeds) for number, trial in enumerate(trials)}
    made = alternate_runs(contestants, blocks)
    return [
        _times(trial, feeds, [run.answer for run in runs]) for trial, runs in zip(trials, made.values(), strict=True)
    ]


def _times(trial: Trial, feeds: Mapping[str, Array], clocks: Sequence[Clocked]) -> Times:
    runs = np.array([clock.wall * 1e-9 for clock in clocks])
    return times_of(trial.entry(feeds), runs, step_seconds(trial.session.plan(feeds), clocks))


def times_of(entry: VariantEntry, runs: Numbers, seconds: Numbers) -> Times:
    """What regions of a variant took; `seconds` of each run and kernel."""
    regions: dict[str, Numbers] = {}
    for number, kernel in enumerate(entry.kernels):
        regions[kernel.region] = regions.get(kernel.region, np.zeros(len(runs))) + seconds[:, number]
    return Times(runs, regions)


def gain(before: Numbers, after: Numbers, rounds: int) -> Gain:
    """Of seconds of runs in so many blocks each, which took turns."""
    parts = zip(np.array_split(before, rounds), np.array_split(after, rounds), strict=True)
    ratios = [float(np.median(b) / max(np.median(a), 1e-12)) for b, a in parts if len(b) and len(a)]
    was, now = float(np.median(before)), float(np.median(after))
    return Gain(float(np.median(ratios)), float(np.percentile(ratios, 25)), was, now)

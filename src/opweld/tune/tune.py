"""The search behind `--tune`: other schedules are compiled, run beside what was chosen, and kept where they are faster.

A trial changes one field of the schedule of every kernel that is worth it, each to an alternative of its own, for
kernels do not depend on each other's fields: so a few compilations try many. What is kept is measured once more, all of
it together, against what it was tried beside, and given up where it does not gain or answers differently.

What was measured becomes part of the decisions (`Ledger`, `measured`), of what was tried in vain too, so that the
ledger of a tuned model says what each alternative took.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from opweld.analysis.alternate import Blocks
from opweld.errors import InputError, OpweldError
from opweld.ledger import MEASURED, Measured
from opweld.tune.changes import Change, Group, groups_of, structure_of
from opweld.tune.effort import Effort
from opweld.tune.trial import Gain, Times, Trial, differs, gain, race, race_seconds
from opweld.verification.expected import expectation_of
from opweld.verification.inputs import fitting_inputs

Array = npt.NDArray[Any]

WORTH = 1.03
"""How much faster something must be to be kept: less may be noise."""

_log = logging.getLogger("opweld")

KEEPING = 3
"""Trials for which time is left at the end: one of all that gained, and others without what that one showed to lose."""

CERTAIN = 3
"""What is kept is measured in so many times the blocks of a trial: it decides about everything that was found."""

Build = Callable[[Mapping[str, Measured]], Trial]
"""Compiles the model with what was measured."""

Told = Callable[[str, int, int], None]
"""What is being done, steps done, steps in all."""


@dataclass
class _Found:
    """What is known of a group: the best change and its gain, what every change that was tried took, and which of them
    gained alone and not together with what else was kept."""

    group: Group
    best: Change | None = None
    gain: Gain | None = None
    tried: list[tuple[Change, Gain]] = field(default_factory=list["tuple[Change, Gain]"])
    given_up: list[Change] = field(default_factory=list[Change])


def tune(
    base: Trial, build: Build, effort: Effort, hints: Mapping[str, int], begun: float, told: Told | None = None
) -> tuple[Trial, Mapping[str, Measured]]:
    """The model as fast as trials make it, and all that was measured; `base` is what prediction chose. `hints`: sizes
    that it is run at. `begun`: when its compilation began, by the monotonic clock.

    Raises OpweldError where the model cannot be run with inputs made for it, has dynamic control flow, or takes too
    long to compile for a single trial."""
    return _Search(base, build, effort, told or _silent, feeds_of(base, hints), begun).run()


def _silent(what: str, done: int, of: int) -> None:
    """Nobody is told."""


def feeds_of(base: Trial, hints: Mapping[str, int]) -> Mapping[str, Array]:
    """Made inputs of the sizes that the model is expected to be run at, or else of those that it takes."""
    usual, inputs, check = base.account.record.usual[0], base.session.manifest.inputs, base.session.check
    dims = {dim for info in inputs for dim in info.shape or () if isinstance(dim, str)}
    sizes = {symbol.dim: usual.sizes[name] for name, symbol in usual.symbols.items()} | dict(hints)
    expected, named = expectation_of(base.folder), {dim: sizes[dim] for dim in dims & sizes.keys()}
    try:
        return fitting_inputs(inputs, check, given={}, dims=named, expected=expected)[0]
    except OpweldError:
        return fitting_inputs(inputs, check, given={}, dims={}, expected=expected)[0]


class _Search:
    def __init__(
        self, first: Trial, build: Build, effort: Effort, told: Told, feeds: Mapping[str, Array], begun: float
    ) -> None:
        self._first = first
        self._build = build
        self._effort = effort
        self._told = told
        self._feeds = feeds
        self._begun = begun
        self._trial = 0.0
        """Seconds that a trial takes."""
        self._limit = effort.seconds
        """Seconds since the beginning after which no trial may end: more for models that take long to compile."""
        self._left = False
        """Whether something was not tried for want of time."""

    def _compiled(self, measured: Mapping[str, Measured]) -> Trial | None:
        """The model with what was measured; None where it cannot be made so: another one can, and is there."""
        passed, whole = int(time.monotonic() - self._begun), int(self._limit)
        self._told("tuning", min(passed, whole), whole)
        try:
            return self._build(measured)
        except Exception as error:  # noqa: BLE001 - a mistake of ours in one trial must not take the model
            _log.warning("tuning: a trial failed: %s", error)
            return None

    def _late(self) -> bool:
        """Whether the time would be over before another trial, and those of what is kept."""
        late = self._over(1 + KEEPING)
        self._left = self._left or late
        return late

    def _over(self, trials: int) -> bool:
        """Whether so many trials would end too late."""
        return time.monotonic() + trials * self._trial > self._begun + self._limit

    def run(self) -> tuple[Trial, Mapping[str, Measured]]:
        """The best trial, and of everything that was tried what it took."""
        measured: dict[str, Measured] = {}
        best = self._first
        for _ in range(self._effort.passes):
            found, measured = self._fields(best, measured)
            if found is best:
                break
            best = found
        if self._effort.structure:
            best, measured = self._structure(best, measured)
        if not measured and self._left:
            passed, limit = time.monotonic() - self._begun, self._limit
            raise InputError(
                f"after {passed:.0f} s another trial, of {self._trial:.0f} s, and what is kept of it would not end "
                f"within {limit:.0f} s"
            )
        if not measured:
            _log.warning("tuning: there was nothing to try")
        return best, measured

    def _drop(self, trial: Trial) -> None:
        """Not the first one: it is what the model is where tuning fails."""
        if trial is not self._first:
            trial.discard()

    def _race(self, first: Trial, second: Trial, blocks: Blocks) -> tuple[Times, Times]:
        before, after = race((first, second), self._feeds, blocks)
        return before, after

    def _fields(self, base: Trial, measured: dict[str, Measured]) -> tuple[Trial, dict[str, Measured]]:
        """Tries fields of the schedules of single kernels."""
        (took,) = race((base,), self._feeds, replace(self._effort.blocks, rounds=1))
        self._trial = base.seconds + race_seconds(float(np.median(took.runs)), self._effort.blocks)
        if self._effort.least:
            passed = time.monotonic() - self._begun
            self._limit = max(self._limit, passed + (self._effort.least + KEEPING) * self._trial)
        seconds = {region: float(np.median(values)) for region, values in took.regions.items()}
        founds = [_Found(group) for group in groups_of(base.account, base.entry(self._feeds), seconds, self._effort)]
        for number in range(self._effort.trials):
            requests = [(f, f.group.changes[number]) for f in founds if number < len(f.group.changes)]
            if not requests or self._late():
                break
            result = self._raced(base, measured, [change for _, change in requests])
            if result is None:
                continue
            before, after, trial = result
            for found, change in requests:
                if not trial.took(change.ids, change.alternative):
                    continue
                one = self._gain(before, after, found.group.regions, self._effort.blocks)
                found.tried.append((change, one))
                if one.ratio > max(WORTH, found.gain.ratio if found.gain else 0.0) and one.low > 1:
                    found.best, found.gain = change, one
        return self._together(base, measured, founds)

    def _together(
        self, base: Trial, measured: dict[str, Measured], founds: Sequence[_Found]
    ) -> tuple[Trial, dict[str, Measured]]:
        """What is kept of all that gained, measured once more and together."""
        blocks = replace(self._effort.blocks, rounds=CERTAIN * self._effort.blocks.rounds)
        while True:
            known = _told_of(founds, measured)
            kept = [found for found in founds if found.best is not None]
            if not kept:
                return base, known
            trial, lost = self._compiled(known), kept
            if trial is not None and self._same(base, trial):
                before, after = self._race(base, trial, blocks)
                lost = [f for f in kept if self._gain(before, after, f.group.regions, blocks).ratio < 1]
                whole = gain(before.runs, after.runs, blocks.rounds)
                if not lost and whole.ratio >= 1:
                    self._drop(base)
                    return trial, known
            if trial is not None:
                trial.discard()
            for found in kept if self._over(1) or not lost else lost:
                if found.best is not None:
                    found.given_up.append(found.best)
                found.best = None

    def _structure(self, base: Trial, measured: dict[str, Measured]) -> tuple[Trial, dict[str, Measured]]:
        """Tries what changes more than one kernel, by whole runs; what is faster is kept at once."""
        for change in structure_of(base.account, base.entry(self._feeds), self._effort):
            if self._late():
                break
            result = self._raced(base, measured, [change])
            if result is None:
                continue
            before, after, trial = result
            if not trial.took(change.ids, change.alternative):
                continue
            one = gain(before.runs, after.runs, self._effort.blocks.rounds)
            better = one.ratio > WORTH and one.low > 1
            taken = change.alternative if better else change.taken
            known = measured | _measured(taken, [(change, one)], 1, measured, _why(taken, [(change, one)]))
            made = self._compiled(known) if better else base
            if made is None:
                continue
            measured = known
            if made is not base:
                self._drop(base)
                base = made
        return base, measured

    def _raced(
        self, base: Trial, measured: Mapping[str, Measured], changes: Iterable[Change]
    ) -> tuple[Times, Times, Trial] | None:
        """A trial of changes beside the base; None where it cannot be compiled or its answer differs."""
        begun = time.monotonic()
        wanted = {identity: Measured(change.alternative, {}) for change in changes for identity in change.ids}
        trial = self._compiled({**measured, **wanted})
        if trial is None:
            return None
        try:
            return (*self._race(base, trial, self._effort.blocks), trial) if self._same(base, trial) else None
        finally:
            trial.discard()
            self._trial = time.monotonic() - begun

    def _same(self, base: Trial, trial: Trial) -> bool:
        """Whether a trial answers what the base does."""
        wrong = differs(base.session, trial.session, self._feeds)
        if wrong:
            _log.warning("tuning: a trial answers differently, and is given up: %s", wrong)
        return not wrong

    @staticmethod
    def _gain(before: Times, after: Times, regions: Sequence[str], blocks: Blocks) -> Gain:
        return gain(before.of(regions), after.of(regions), blocks.rounds)


def _told_of(founds: Iterable[_Found], known: Mapping[str, Measured]) -> dict[str, Measured]:
    """What was measured, by decision, and what was known before."""
    made = dict(known)
    for found in founds:
        tried: dict[tuple[str, ...], list[tuple[Change, Gain]]] = {}
        for change, one in found.tried:
            tried.setdefault(change.ids, []).append((change, one))
        for ids, entries in tried.items():
            best = found.best if found.best is not None and found.best.ids == ids else None
            taken = best.alternative if best else entries[0][0].taken
            why = _why(taken, entries, found.best, found.given_up)
            made |= _measured(taken, entries, len(found.group.regions), known, why)
    return made


def _why(
    taken: str, tried: Sequence[tuple[Change, Gain]], best: Change | None = None, given_up: Sequence[Change] = ()
) -> str:
    """Why an alternative is kept, beside those that were measured: by how much it or another is faster."""
    fastest, one = max(tried, key=lambda entry: entry[1].ratio)
    if taken != fastest.taken:
        own = next(gain for change, gain in tried if change.alternative == taken)
        return f"{MEASURED}: {_apart(own.ratio)} than {fastest.taken}"
    other = f"{MEASURED}: {fastest.alternative} is {_apart(one.ratio)}"
    if one.ratio <= 1:
        return other
    if fastest in given_up:
        return f"{other} alone, and is not together with what else was faster"
    if one.ratio <= WORTH:
        return f"{other}, which may be noise"
    if one.low <= 1:
        return f"{other}, but not in all blocks of runs"
    if best is not None:
        return f"{other}, and {best} gained more: one change of a kernel is kept at a time"
    return f"{other}, and was not kept"


def _apart(ratio: float) -> str:
    """How much faster something is, `ratio` being the other's time by its own."""
    return f"{ratio - 1:.0%} faster" if ratio > 1 else f"{1 / ratio - 1:.0%} slower"


def _measured(
    taken: str, tried: Sequence[tuple[Change, Gain]], regions: int, known: Mapping[str, Measured], why: str
) -> dict[str, Measured]:
    """Seconds of one of so many regions each: of what was taken, of what was tried beside it, of what was before."""
    first = tried[0][0]
    seconds = {first.taken: tried[0][1].before / regions}
    seconds |= {change.alternative: one.after / regions for change, one in tried}
    nothing = Measured(taken, {})
    return {i: Measured(taken, {**known.get(i, nothing).seconds, **seconds}, why) for i in first.ids}

"""What other packages would put in the place of nodes and have measured (`Rule.measured`): kernels written by hand.

All of them are tried at once, beside the model without them. Each is judged by the kernels that differ around it; those
that are right and faster are tried again by themselves, until all that is left is kept, as one model that was run. None
of them runs in this process before: it might take it along (`tried.py`)."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from opweld.analysis.alternate import Blocks
from opweld.analysis.profile import entry_called
from opweld.errors import InputError
from opweld.ledger import MEASURED, Decision, Measured
from opweld.record import KernelEntry, VariantEntry
from opweld.rewrite.hoist import BASELINE, TAKEN
from opweld.tune.effort import Effort
from opweld.tune.trial import Gain, Times, Trial, gain, times_of
from opweld.tune.tried import Side, Tried, try_out
from opweld.tune.tune import WORTH, Build

Array = npt.NDArray[Any]

SECONDS = 60.0
"""After so many nothing more is tried."""

SLOWER = 0.995
"""A run may not become slower, but for noise: what a kernel asks of memory may cost its neighbours."""

RIGHT = "it answers what these nodes do, interpreted; how fast it is only a GPU tells, or a pin takes it"
"""What is told of a candidate that is not timed."""

_log = logging.getLogger("opweld")


def prove(
    base: Trial,
    build: Build,
    candidates: Sequence[Decision],
    feeds: Mapping[str, Array],
    effort: Effort,
    *,
    timed: bool = True,
) -> tuple[Trial, Mapping[str, Measured]]:
    """The model with what is kept, which is `base` where nothing is, and what was found of each candidate, by its id.
    `build` compiles the model anew, rewriting included. Where nothing is `timed`, as an interpreter's runs tell nothing
    of a GPU's, candidates are checked, and none is kept."""
    proof = _Proof(base, build, feeds, effort)
    return proof.run(candidates) if timed else proof.check(candidates)


class _Proof:
    def __init__(self, base: Trial, build: Build, feeds: Mapping[str, Array], effort: Effort) -> None:
        self._base = base
        self._build = build
        self._feeds = feeds
        self._effort = effort
        self._until = time.monotonic() + SECONDS
        self._found: dict[str, Measured] = {}

    def run(self, candidates: Sequence[Decision]) -> tuple[Trial, Mapping[str, Measured]]:
        wanted = list(candidates)
        while wanted:
            trial = self._right(wanted, self._effort.blocks)
            if trial is None:
                left = self._right_ones(wanted)
                wanted = left if len(left) < len(wanted) else []  # right each, and not together
                continue
            made, tried = trial
            kept, whole = self._judged(made, tried, wanted)
            if len(kept) == len(wanted) and whole >= SLOWER:
                return made, self._found
            made.discard()
            if len(kept) == len(wanted):
                self._give_up(kept, f"a run takes {1 / whole:.2f} times as long with it")
            wanted = kept if len(kept) < len(wanted) else []
        return self._base, self._found

    def check(self, candidates: Sequence[Decision]) -> tuple[Trial, Mapping[str, Measured]]:
        """Whether candidates are right."""
        trial = self._right(candidates)
        if trial is not None:
            trial[0].discard()
        right = candidates if trial is not None else self._right_ones(candidates)
        self._found |= {candidate.id: Measured(BASELINE, {}, RIGHT) for candidate in right}
        return self._base, self._found

    def _give_up(self, candidates: Sequence[Decision], why: str) -> None:
        _log.warning("%s is left out: %s", ", ".join(dict.fromkeys(c.rule for c in candidates)), why)
        self._found |= {candidate.id: Measured(BASELINE, {}, why) for candidate in candidates}

    def _right(self, candidates: Sequence[Decision], blocks: Blocks | None = None) -> tuple[Trial, Tried] | None:
        """The model with these candidates, if it compiles, runs and answers what it did; and what it took in blocks."""
        if time.monotonic() > self._until:
            self._give_up(candidates, f"nothing is measured after {SECONDS:.0f} s")
            return None
        try:
            trial = self._build({candidate.id: Measured(TAKEN, {}) for candidate in candidates})
        except Exception as error:  # noqa: BLE001 - what another package brings must not take the model
            first = next(iter(str(error).strip().splitlines()), "")
            self._give_up(candidates, f"it fails: {type(error).__name__}: {first}")
            return None
        tried = try_out(self._base, trial, self._feeds, blocks)
        if tried.why:
            trial.discard()
            self._give_up(candidates, tried.why)
            return None
        return trial, tried

    def _right_ones(self, candidates: Sequence[Decision]) -> list[Decision]:
        """Those of several candidates which are right, where all of them together are not: by halves."""
        found: list[Decision] = []
        middle = len(candidates) // 2
        for half in (candidates[:middle], candidates[middle:]) if middle else ():
            trial = self._right(half)
            if trial is not None:
                trial[0].discard()
            found += self._right_ones(half) if trial is None else half
        return found

    def _judged(self, trial: Trial, tried: Tried, candidates: Sequence[Decision]) -> tuple[list[Decision], float]:
        """The candidates that are faster, by what the kernels around them took without and with them, and how often
        faster a run is."""
        assert tried.sides is not None
        rounds = self._effort.blocks.rounds
        kept: list[Decision] = []
        entries = [_entry(one, side) for one, side in zip((self._base, trial), tried.sides, strict=True)]
        was, now = (times_of(entry, s.runs, s.seconds) for entry, s in zip(entries, tried.sides, strict=True))
        before, after = (entry.kernels for entry in entries)
        for group in _apart(candidates, before, after):
            own = gain(was.of(_regions(before, group.nodes)), now.of(_regions(after, group.nodes)), rounds)
            faster = own.ratio > WORTH and own.low > 1
            seconds = {BASELINE: own.before, TAKEN: own.after}
            measured = Measured(TAKEN if faster else BASELINE, seconds, _why(own, faster))
            self._found |= {candidate.id: measured for candidate in group.candidates}
            kept += group.candidates if faster else ()
        return kept, gain(_all(was), _all(now), rounds).ratio


def _why(own: Gain, faster: bool) -> str:
    """What was measured of a candidate, in words."""
    by = f"{own.ratio - 1:.0%} faster" if own.ratio > 1 else f"{1 / max(own.ratio, 1e-9) - 1:.0%} slower"
    noise = "" if faster or own.ratio <= 1 else ", which may be noise"
    return f"{MEASURED}: it is {by}{noise}"


def _entry(trial: Trial, side: Side) -> VariantEntry:
    """The variant that ran."""
    found = entry_called(trial.account, side.variant, side.kernels)
    if found is None:
        raise InputError("the variant that runs is none that was compiled")
    return found


def _all(times: Times) -> npt.NDArray[Any]:
    return times.of(list(times.regions))


@dataclass
class _Group:
    """Candidates whose kernels cannot be told apart, and the nodes that these compute, without or with them."""

    nodes: set[str]
    candidates: list[Decision]

    def join(self, other: _Group) -> _Group:
        return _Group(self.nodes | other.nodes, [*other.candidates, *self.candidates])


def _apart(candidates: Sequence[Decision], before: Sequence[KernelEntry], after: Sequence[KernelEntry]) -> list[_Group]:
    """Candidates by what their kernels compute: where something was fused with one of them, without or with it, that
    belongs to the comparison, and so on until both sides compute the same nodes.

    All are one group where another kernel is on one side only: a rule may have added a node of whatever name."""
    kernels = (*before, *after)
    groups: list[_Group] = []
    for candidate in candidates:
        mine = _Group(_closed(set(candidate.site), kernels), [candidate])
        for other in [group for group in groups if not group.nodes.isdisjoint(mine.nodes)]:
            groups.remove(other)
            mine = mine.join(other)
        groups.append(mine)
    known = {node for group in groups for node in group.nodes}
    sides = [{kernel.nodes for kernel in side} for side in (before, after)]
    strange = {node for nodes in sides[0] ^ sides[1] for node in nodes} - known
    if not strange:
        return groups
    whole = _Group(_closed(strange | known, kernels), [])
    for group in groups:
        whole = group.join(whole)
    return [whole]


def _closed(nodes: set[str], kernels: Sequence[KernelEntry]) -> set[str]:
    """These nodes and all that some kernel computes with one of them."""
    while True:
        reached = {n for kernel in kernels if not nodes.isdisjoint(kernel.nodes) for n in kernel.nodes}
        if reached <= nodes:
            return nodes
        nodes = nodes | reached


def _regions(kernels: Sequence[KernelEntry], nodes: set[str]) -> list[str]:
    return list(dict.fromkeys(kernel.region for kernel in kernels if not nodes.isdisjoint(kernel.nodes)))

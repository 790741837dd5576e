"""What other packages would put in the place of nodes and have measured (`Rule.measured`): kernels written by hand.

All of them are tried at once, beside the model without them. Each is judged by the kernels that differ around it, and
kept where these are right and faster; what was kept is then tried once more, all of it together."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from opweld.ledger import MEASURED, Decision, Ledger, Measured
from opweld.record import KernelEntry
from opweld.rewrite.added import Added
from opweld.rewrite.engine import BASELINE, TAKEN
from opweld.rewrite.rule import Rule
from opweld.tune.effort import Effort
from opweld.tune.trial import Trial, differs, gain, race
from opweld.tune.tune import WORTH, Build

Array = npt.NDArray[Any]

_log = logging.getLogger("opweld")


def candidates_of(ledger: Ledger, rules: Iterable[Added]) -> list[Decision]:
    """What waits to be measured: nothing pins it, disables it or is above its level."""
    waiting = {rule.name for rule in rules if isinstance(rule, Rule) and rule.measured}
    return [d for d in ledger if d.rule in waiting and TAKEN in d.legal and not d.fired and ledger.free(d)]


def prove(
    base: Trial, build: Build, candidates: Sequence[Decision], feeds: Mapping[str, Array], effort: Effort
) -> Mapping[str, Measured]:
    """What to do about each candidate, by its id. `build` compiles the model anew, rewriting included."""
    found: dict[str, Measured] = {}
    good = _tried(base, build, candidates, feeds, effort, found)
    if not good and len(candidates) > 1:
        for candidate in candidates:
            _tried(base, build, [candidate], feeds, effort, found)
    kept = [candidate for candidate in candidates if found[candidate.id].taken == TAKEN]
    if len(kept) > (0 if good else 1) and not (good and len(kept) == len(candidates)):
        _tried(base, build, kept, feeds, effort, found)  # which were not tried by themselves, or not together
    return found


def _tried(
    base: Trial,
    build: Build,
    candidates: Sequence[Decision],
    feeds: Mapping[str, Array],
    effort: Effort,
    found: dict[str, Measured],
) -> bool:
    """Compiles the model with these candidates and adds what that showed; whether it answers the same."""
    why = ""
    try:
        trial = build({candidate.id: Measured(TAKEN, {}) for candidate in candidates})
        try:
            why = differs(base, trial, feeds)
            if not why:
                found |= _judged(base, trial, candidates, feeds, effort)
                return True
            why = f"it answers differently: {why}"
        finally:
            trial.discard()
    except Exception as error:  # noqa: BLE001 - what another package brings must not take the model
        why = f"it fails: {str(error).strip().splitlines()[0]}"
    _log.warning("%s is left out: %s", ", ".join(dict.fromkeys(candidate.rule for candidate in candidates)), why)
    found |= {candidate.id: Measured(BASELINE, {}, why) for candidate in candidates}
    return False


def _judged(
    base: Trial, trial: Trial, candidates: Sequence[Decision], feeds: Mapping[str, Array], effort: Effort
) -> dict[str, Measured]:
    """Each candidate with what the kernels around it took without and with it."""
    was, now = race(base, trial, feeds, effort.blocks)
    before, after = base.entry(feeds).kernels, trial.entry(feeds).kernels
    made: dict[str, Measured] = {}
    for group in _apart(candidates, before, after):
        own = gain(was.of(group.before), now.of(group.after), effort.blocks.rounds)
        taken = TAKEN if own.ratio > WORTH and own.low > 1 else BASELINE
        seconds = {BASELINE: own.before, TAKEN: own.after}
        made |= {candidate.id: Measured(taken, seconds, MEASURED) for candidate in group.candidates}
    return made


@dataclass
class _Group:
    """Candidates whose kernels cannot be told apart, and the regions that hold their nodes without and with them."""

    nodes: set[str]
    candidates: list[Decision]
    before: list[str]
    after: list[str]


def _apart(candidates: Sequence[Decision], before: Sequence[KernelEntry], after: Sequence[KernelEntry]) -> list[_Group]:
    """Candidates by what their kernels compute: where something was fused with one of them, without or with it, that
    belongs to the comparison, and so on until both sides compute the same nodes."""
    groups: list[_Group] = []
    for candidate in candidates:
        nodes = set(candidate.site)
        while True:
            reached = {n for kernel in (*before, *after) if not nodes.isdisjoint(kernel.nodes) for n in kernel.nodes}
            if reached <= nodes:
                break
            nodes |= reached
        known = next((group for group in groups if not group.nodes.isdisjoint(nodes)), None)
        if known is None:
            groups.append(_Group(nodes, [candidate], _regions(before, nodes), _regions(after, nodes)))
        else:
            known.candidates.append(candidate)
    return groups


def _regions(kernels: Sequence[KernelEntry], nodes: set[str]) -> list[str]:
    return list(dict.fromkeys(kernel.region for kernel in kernels if not nodes.isdisjoint(kernel.nodes)))

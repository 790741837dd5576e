"""What can be tried: other alternatives of decisions, together for all kernels that are alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from opweld.account.account import Account
from opweld.ledger import Decision
from opweld.record import VariantEntry
from opweld.tune.effort import Effort

SMALLEST = 0.01
"""Of a run: kernels that take less, all alike together, are not worth a trial."""

UNPRICED = {"schedule.order": 1.02, "schedule.prefetch": 1.05, "schedule.taps": 1.08, "schedule.keep": 1.1}
"""What an alternative that nobody prices is thought to take beside what was chosen: as it was on models that were tuned
in full, where these won at times and the others (vectors of maps and rows, unrolling) seldom."""
SELDOM = 1.2

STRUCTURE = ("fuse.", "place.", "schedule.lane", "schedule.phase")
"""Decisions that change more than one kernel: what is computed together, where values lie, what runs side by side."""


@dataclass(frozen=True)
class Change:
    """Another alternative of decisions that are alike.

    Attributes:
        ids: of the decisions. rule, part, taken, alternative: the same of all of them.
        predicted: seconds of the alternative as a part of what was taken.
    """

    ids: tuple[str, ...]
    rule: str
    part: str
    taken: str
    alternative: str
    predicted: float

    def __str__(self) -> str:
        return f"{self.rule} {self.taken} -> {self.alternative}"


@dataclass(frozen=True)
class Group:
    """Regions that are computed by the same text, and what can be tried for them, the most promising first."""

    regions: tuple[str, ...]
    changes: tuple[Change, ...]


def groups_of(account: Account, entry: VariantEntry, seconds: Mapping[str, float], effort: Effort) -> list[Group]:
    """The regions of a variant that are worth a trial, the longest first; `seconds` of a run by region."""
    decisions: dict[str, list[Decision]] = {}
    for decision in account.ledger:
        if decision.part and decision.variant == entry.name and account.ledger.may_change(decision):
            decisions.setdefault(decision.region, []).append(decision)
    alike: dict[object, list[str]] = {}
    for region in seconds:
        kernels = tuple((k.costs, k.predicted) for k in entry.kernels if k.region == region)
        line = account.schedules.regions.get((entry.name, region))
        asked = tuple((d.rule, d.part, d.taken, tuple(d.legal)) for d in decisions.get(region, ()))
        alike.setdefault((kernels, line.text if line else "", asked), []).append(region)
    total = sum(seconds.values())
    ordered = sorted(alike.values(), key=lambda regions: -sum(map(seconds.__getitem__, regions)))
    found: list[Group] = []
    covered = 0.0
    for regions in ordered:
        share = sum(map(seconds.__getitem__, regions)) / total if total else 0.0
        if covered >= effort.share or share < SMALLEST:
            break
        covered += share
        rows = list(zip(*(decisions.get(region, ()) for region in regions), strict=True))
        changes = [c for row in rows if not row[0].rule.startswith(STRUCTURE) for c in _changes(row, effort)]
        found.append(Group(tuple(regions), tuple(sorted(changes, key=lambda change: change.predicted))))
    return found


def structure_of(account: Account, entry: VariantEntry, effort: Effort) -> list[Change]:
    """What changes more than one kernel: decisions whose alternatives are predicted to be near each other, those first
    at which most is at stake."""
    alike: dict[object, list[Decision]] = {}
    for decision in account.ledger:
        own = decision.variant == entry.name and decision.rule.startswith(STRUCTURE)
        if own and account.ledger.may_change(decision):
            priced = tuple((a.name, a.seconds) for a in decision.alternatives)
            alike.setdefault((decision.rule, decision.taken, priced, tuple(decision.legal)), []).append(decision)
    found: list[tuple[float, Change]] = []
    for decisions in alike.values():
        seconds = {a.name: a.seconds for a in decisions[0].alternatives}
        stake = len(decisions) * (seconds[decisions[0].taken] or 0.0)
        found += [(stake, change) for change in _changes(decisions, effort)]
    return [change for _, change in sorted(found, key=lambda entry: -entry[0])]


def _changes(decisions: Sequence[Decision], effort: Effort) -> Iterable[Change]:
    """The other legal alternatives of decisions that are alike."""
    first = decisions[0]
    seconds = {a.name: a.seconds for a in first.alternatives}
    base = seconds[first.taken]
    ids = tuple(decision.id for decision in decisions)
    for name in first.legal:
        mine = seconds[name]
        predicted = mine / base if mine is not None and base else UNPRICED.get(first.rule, SELDOM)
        if name != first.taken and predicted <= effort.within:
            yield Change(ids, first.rule, first.part, first.taken, name, predicted)

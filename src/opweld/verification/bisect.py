"""Which decision breaks a model: the ledger, cut in halves.

The decisions that took more than their baseline are granted up to one of them, in the order of the ledger; all others
stay at their baseline. That is a right compiler wherever the cut is. Up to the cut it decides as the whole did, so that
the decisions on both sides of it are the same ones in every run; what only comes up because later ones were refused is
refused too. Between a cut that is good and one that is bad there is a decision at which good becomes bad.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from opweld.ledger import Decision, Ledger


@dataclass(frozen=True)
class Trial:
    """How a model did that was made under some decisions.

    Attributes:
        good: whether it is what was asked for.
        figure: what says so: an error as a part of its scale, a time as a multiple of another; infinite where the model
            could not be made or run.
        problem: what was wrong with it, in words; empty when it is good.
    """

    good: bool
    figure: float
    problem: str = ""


@dataclass(frozen=True, eq=False)
class Attempt:
    """A model made under some decisions: what was decided on the way, and how it did."""

    ledger: Ledger
    trial: Trial


Attempting = Callable[[Collection[str] | None, str], Attempt]
"""Makes the model with these decisions granted, by id, and nothing else better than its baseline; with all of them
where None. A second decision, where it is not empty, stays at its baseline."""


@dataclass(frozen=True, eq=False)
class Bisection:
    """What halving found.

    Attributes:
        decisions: those that could be the one, in order.
        whole, bare: how the model did with all of them granted, and with none.
        runs: how often it was made to find out.
        found: the decision that breaks it; None where all granted is good, or none granted is bad already.
        before, after: with the decisions up to the one that was found, without it and with it.
        without: with all decisions but that one.
    """

    decisions: tuple[Decision, ...]
    whole: Trial
    bare: Trial
    runs: int
    found: Decision | None = None
    before: Trial | None = None
    after: Trial | None = None
    without: Trial | None = None


def bisect(attempt: Attempting) -> Bisection:
    """Finds the decision that breaks a model, in at most 2 + ceil(log2(n)) runs, n decisions having taken more than
    their baseline, and one more to see whether the model is good without that decision alone."""
    first = attempt(None, "")
    decisions = tuple(decision for decision in first.ledger if decision.fired and not decision.pinned)
    ids = [decision.id for decision in decisions]
    runs = 1

    def trial(count: int) -> Trial:
        nonlocal runs
        runs += 1
        return attempt(frozenset(ids[:count]), "").trial

    whole = first.trial
    if whole.good or not decisions:
        return Bisection(decisions, whole, whole, runs)
    bare = before = trial(0)
    if not bare.good:
        return Bisection(decisions, whole, bare, runs)
    after = whole
    good, bad = 0, len(decisions)
    while bad - good > 1:
        middle = (good + bad) // 2
        made = trial(middle)
        if made.good:
            good, before = middle, made
        else:
            bad, after = middle, made
    found = decisions[good]
    return Bisection(decisions, whole, bare, runs, found, before, after, attempt(None, found.id).trial)

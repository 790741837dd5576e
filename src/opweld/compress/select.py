"""Which changes are made: those that lose least at the outputs by second that they save."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from opweld.compress.change import Change

LEAST = 1e-12
"""Seconds that count as something saved."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A change, the error at the outputs where it alone is made, and the seconds that it saves."""

    change: Change
    error: float
    saved: float


Setting = tuple[Candidate, ...]
"""Changes that are made together."""


def settings(groups: Iterable[Sequence[Candidate]]) -> list[Setting]:
    """Settings of less and less error, the last of which changes nothing. At most one of each group is in one, and none
    that excludes another.

    The squares of errors are taken to add up: from nothing on, what adds least to them by second saved comes next, a
    candidate or a larger one in its place."""
    steps = sorted((step for i, group in enumerate(groups) for step in _hull(i, group)), key=lambda step: step[0])
    chosen: dict[int, Candidate] = {}
    found: list[Setting] = [()]
    for _, group, candidate in steps:
        others = (one for place, one in chosen.items() if place != group)
        if any(one.change.claims & candidate.change.claims for one in others):
            continue
        chosen[group] = candidate
        found.append(tuple(chosen.values()))
    return found[::-1]


def _hull(group: int, candidates: Sequence[Candidate]) -> list[tuple[float, int, Candidate]]:
    """The candidates that are best for some price of a second, with the squared error that each adds by second more
    than the one before saves."""
    found: list[tuple[float, int, Candidate]] = []
    error, saved = 0.0, 0.0
    while True:
        better = [one for one in candidates if one.saved > saved + LEAST]
        if not better:
            return found
        slopes = [max(0.0, one.error**2 - error) / (one.saved - saved) for one in better]
        place = min(range(len(better)), key=lambda i: (slopes[i], -better[i].saved))
        best = better[place]
        found.append((slopes[place], group, best))
        error, saved = best.error**2, best.saved

"""Which changes are made: those that lose least at the outputs by second that they save."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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
"""Changes that are made together: none excludes another."""

Step = tuple[int, Candidate]
"""A change, in the place of another one of its group where that is made: the group's number, and the change."""


def steps_of(groups: Iterable[Sequence[Candidate]]) -> list[Step]:
    """What adds least to the sum of squared errors by second saved, first."""
    steps = [(slope, i, one) for i, group in enumerate(groups) for slope, one in _hull(group)]
    return [(i, one) for _, i, one in sorted(steps, key=lambda step: step[0])]


def settings(steps: Iterable[Step]) -> list[Setting]:
    """Settings of less and less error, by all steps, by fewer, by none."""
    chosen: dict[int, Candidate] = {}
    found: list[Setting] = [()]
    for step in steps:
        if _fits(chosen, step):
            chosen[step[0]] = step[1]
            found.append(tuple(chosen.values()))
    return found[::-1]


def grown(setting: Setting, steps: Sequence[Step], allowed: Callable[[Setting, Candidate], bool]) -> Setting:
    """A setting with those of the steps that are not in it and are allowed there, tried in order.

    `allowed` is asked of what the setting would be, and the change that is new in it. Of a group no step is tried after
    one that is not allowed."""
    group_of = {one: group for group, one in steps}
    chosen = {group_of[one]: one for one in setting}
    refused: set[int] = set()
    for step in steps:
        group, one = step
        saved = chosen[group].saved if group in chosen else 0.0
        if group in refused or one.saved <= saved or not _fits(chosen, step):
            continue
        made = {**chosen, group: one}
        if allowed(tuple(made.values()), one):
            chosen = made
        else:
            refused.add(group)
    return tuple(chosen.values())


def _fits(chosen: dict[int, Candidate], step: Step) -> bool:
    """Whether what is chosen of other groups leaves alone what a step changes."""
    group, one = step
    return not any(other.change.claims & one.change.claims for i, other in chosen.items() if i != group)


def _hull(candidates: Sequence[Candidate]) -> list[tuple[float, Candidate]]:
    """The candidates that are best for some price of a second, with the squared error that each adds by second more
    than the one before saves."""
    found: list[tuple[float, Candidate]] = []
    error, saved = 0.0, 0.0
    while True:
        better = [one for one in candidates if one.saved > saved + LEAST]
        if not better:
            return found
        slopes = [max(0.0, one.error**2 - error) / (one.saved - saved) for one in better]
        place = min(range(len(better)), key=lambda i: (slopes[i], -better[i].saved))
        best = better[place]
        found.append((slopes[place], best))
        error, saved = best.error**2, best.saved

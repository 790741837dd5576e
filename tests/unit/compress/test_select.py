"""Which changes come first, and which exclude each other."""

from __future__ import annotations

from typing import Any, cast

from opweld.compress.change import Change, Claim
from opweld.compress.select import Candidate, Setting, grown, settings, steps_of


class Named:
    def __init__(self, name: str, *claims: Claim) -> None:
        self.name, self.claims = name, frozenset(claims)


def candidate(name: str, error: float, saved: float, *claims: Claim) -> Candidate:
    return Candidate(cast(Change, Named(name, *claims)), error, saved)


def settings_of(groups: list[list[Candidate]]) -> list[Setting]:
    return settings(steps_of(groups))


def names(found: Any) -> list[list[str]]:
    return [sorted(one.change.name for one in setting) for setting in found]


def test_what_loses_least_by_second_saved_comes_first() -> None:
    first = [candidate("a1", 0.1, 1.0), candidate("a2", 0.3, 4.0)]
    second = [candidate("b1", 0.2, 4.0), candidate("worse", 0.5, 3.0), candidate("b2", 0.9, 5.0)]
    found = names(settings_of([first, second]))
    assert found == [["a2", "b2"], ["a2", "b1"], ["a1", "b1"], ["a1"], []]


def test_changes_of_the_same_weights_exclude_each_other() -> None:
    one = [candidate("rank", 0.1, 1.0, (3, "inputs"), (3, "results"))]
    other = [candidate("cut", 0.1, 2.0, (1, "results"), (3, "inputs"))]
    assert names(settings_of([one, other])) == [["cut"], []]
    apart = [candidate("before", 0.1, 2.0, (1, "results"))]
    assert names(settings_of([one, apart])) == [["before", "rank"], ["before"], []]


def test_what_costs_nothing_at_the_outputs_is_always_worth_it() -> None:
    found = settings_of([[candidate("free", 0.0, 1.0), candidate("dear", 0.5, 2.0)], [candidate("slow", 0.1, 0.0)]])
    assert names(found) == [["dear"], ["free"], []]


def test_what_is_not_allowed_stops_its_own_group_alone() -> None:
    first = [candidate("seems free", 0.0, 1.0), candidate("more of it", 0.1, 2.0)]
    second = [candidate("b1", 0.2, 1.0), candidate("b2", 0.4, 2.0)]
    steps = steps_of([first, second])
    asked: list[str] = []

    def allowed(setting: Setting, new: Candidate) -> bool:
        asked.append(cast(Any, new.change).name)
        return first[0] not in setting and second[1] not in setting

    assert names([grown((), steps, allowed)]) == [["b1"]]
    assert asked == ["seems free", "b1", "b2"]
    assert names([grown((second[0],), steps, lambda _, one: one is second[1])]) == [["b2"]]

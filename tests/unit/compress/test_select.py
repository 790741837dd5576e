"""Which changes come first, and which exclude each other."""

from __future__ import annotations

from typing import Any, cast

from opweld.compress.change import Change, Claim
from opweld.compress.select import Candidate, settings


class Named:
    def __init__(self, name: str, *claims: Claim) -> None:
        self.name, self.claims = name, frozenset(claims)


def candidate(name: str, error: float, saved: float, *claims: Claim) -> Candidate:
    return Candidate(cast(Change, Named(name, *claims)), error, saved)


def names(found: Any) -> list[list[str]]:
    return [sorted(one.change.name for one in setting) for setting in found]


def test_what_loses_least_by_second_saved_comes_first() -> None:
    first = [candidate("a1", 0.1, 1.0), candidate("a2", 0.3, 4.0)]
    second = [candidate("b1", 0.2, 4.0), candidate("worse", 0.5, 3.0), candidate("b2", 0.9, 5.0)]
    found = names(settings([first, second]))
    assert found == [["a2", "b2"], ["a2", "b1"], ["a1", "b1"], ["a1"], []]


def test_changes_of_the_same_weights_exclude_each_other() -> None:
    one = [candidate("rank", 0.1, 1.0, (3, "inputs"), (3, "results"))]
    other = [candidate("cut", 0.1, 2.0, (1, "results"), (3, "inputs"))]
    assert names(settings([one, other])) == [["cut"], []]
    apart = [candidate("before", 0.1, 2.0, (1, "results"))]
    assert names(settings([one, apart])) == [["before", "rank"], ["before"], []]


def test_what_costs_nothing_at_the_outputs_is_always_worth_it() -> None:
    found = settings([[candidate("free", 0.0, 1.0), candidate("dear", 0.5, 2.0)], [candidate("slow", 0.1, 0.0)]])
    assert names(found) == [["dear"], ["free"], []]

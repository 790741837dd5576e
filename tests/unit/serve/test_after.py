"""What happens a fixed time after something began."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from opweld.serve.after import After


class Clock:
    """A loop with its time, which a test moves."""

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, seconds: float, act: Callable[[], None]) -> object:
        self.timers.append((self.now + seconds, act))
        return act

    def move(self, seconds: float) -> None:
        """Lets the timers fire that are due by then."""
        end = self.now + seconds
        while due := sorted([one for one in self.timers if one[0] <= end], key=lambda one: one[0]):
            self.timers.remove(due[0])
            self.now = due[0][0]
            due[0][1]()
        self.now = end


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: made)
    monkeypatch.setattr(time, "monotonic", lambda: made.now)
    return made


def test_each_is_due_by_its_own_time_and_one_timer_waits_for_all(clock: Clock) -> None:
    due: list[str] = []
    after = After[str](10.0, due.append)
    for name in ("first", "over", "third"):
        after.add(name)
        clock.move(3.0)
    after.discard("over")
    assert len(clock.timers) == 1 and not due
    clock.move(1.5)  # 10.5 s after the first, 4.5 s after the third
    assert due == ["first"] and len(clock.timers) == 1
    clock.move(5.0)
    assert due == ["first"]
    clock.move(1.0)
    assert due == ["first", "third"] and not clock.timers


def test_nothing_waits_once_all_are_over(clock: Clock) -> None:
    due: list[str] = []
    after = After[str](10.0, due.append)
    for number in range(1000):
        after.add(f"{number}")
        after.discard(f"{number}")
    assert len(clock.timers) == 1
    clock.move(10.0)
    assert not clock.timers and not due
    after.add("late")
    clock.move(10.0)
    assert due == ["late"]


def test_a_timer_that_fires_early_waits_on(clock: Clock) -> None:
    due: list[str] = []
    after = After[str](10.0, due.append)
    after.add("one")
    ((_, early),) = clock.timers
    clock.timers.clear()
    clock.now += 9.9998
    early()
    assert not due
    ((when, _),) = clock.timers
    assert when - clock.now >= 0.001  # a loop that counts milliseconds waits, too
    clock.move(0.01)
    assert due == ["one"]


def test_what_is_due_may_end_others(clock: Clock) -> None:
    due: list[str] = []

    def act(name: str) -> None:
        due.append(name)
        for other in list(after):
            after.discard(other)

    after = After[str](10.0, act)
    for name in ("first", "second"):
        after.add(name)
    clock.move(1.0)
    after.add("third")
    clock.move(20.0)
    assert due == ["first"] and not list(after) and not clock.timers

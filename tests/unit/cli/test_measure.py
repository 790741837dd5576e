from __future__ import annotations

from collections.abc import Callable

import pytest

from opweld.analysis import alternate as blocks
from opweld.experiments.measure import Timing, alternate


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "PAUSE_S", 0.0)


def test_blocks_alternate_and_the_order_turns() -> None:
    calls: list[str] = []

    def contestant(name: str) -> Callable[[], None]:
        return lambda: calls.append(name)

    seen: list[tuple[int, int]] = []
    alternate({"a": contestant("a"), "b": contestant("b")}, rounds=3, block_s=0.0, progress=lambda *p: seen.append(p))
    blocks = [name for i, name in enumerate(calls) if i == 0 or calls[i - 1] != name]
    # a b, b a, a b: blocks of one contestant that meet look like one.
    assert blocks == ["a", "b", "a", "b"]
    assert calls.count("a") == calls.count("b") == 3 * 6
    assert seen == [(i, 6) for i in range(1, 7)]


class Clock:
    """Time that passes when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(blocks.time, "perf_counter", lambda: self.now)
        monkeypatch.setattr(blocks.time, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        """So many seconds later."""
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_times_are_medians_and_the_first_runs_do_not_count(clock: Clock) -> None:
    count = 0

    def slow_at_first() -> None:
        nonlocal count
        count += 1
        clock.sleep(2**-4 if count <= 3 else 2**-8 if count % 5 == 0 else 2**-9)

    timing = alternate({"x": slow_at_first}, rounds=1, block_s=1.0)["x"]
    assert timing == Timing(2**-9, 2**-8, 2**-9, 16), "as many as fit, by what the fastest of the first took"


def test_faster_is_seen_as_faster(clock: Clock) -> None:
    contestants = {"slow": lambda: clock.sleep(2**-8), "fast": lambda: clock.sleep(2**-10)}
    timings = alternate(contestants, rounds=2, block_s=2**-5)
    assert timings == {"slow": Timing(2**-8, 2**-8, 2**-8, 2 * 8), "fast": Timing(2**-10, 2**-10, 2**-10, 2 * 32)}

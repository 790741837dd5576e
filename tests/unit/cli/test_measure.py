from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from opweld.analysis import alternate as blocks
from opweld.cli.measure import alternate


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


def test_times_are_medians_and_the_first_runs_do_not_count() -> None:
    count = 0

    def slow_at_first() -> None:
        nonlocal count
        count += 1
        time.sleep(0.05 if count <= 3 else 0.002)

    timing = alternate({"x": slow_at_first}, rounds=1, block_s=0.1)["x"]
    assert 0.002 <= timing.best_s <= timing.median_s < 0.04
    assert timing.runs >= 2


def test_faster_is_seen_as_faster() -> None:
    timings = alternate({"slow": lambda: time.sleep(0.004), "fast": lambda: time.sleep(0.001)}, rounds=2, block_s=0.02)
    assert timings["slow"].median_s > 2 * timings["fast"].median_s

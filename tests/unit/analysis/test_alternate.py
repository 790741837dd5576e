"""Blocks of runs that take turns: how many there are of each, and what they answer."""

from __future__ import annotations

import pytest

from opweld.analysis import alternate
from opweld.analysis.alternate import Blocks, alternate_runs


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alternate, "PAUSE_S", 0.0)


@pytest.mark.parametrize("runs", [5, 7, 12])
def test_as_many_runs_count_as_were_asked_for(runs: int) -> None:
    made = alternate_runs({"a": lambda: 1, "b": lambda: 2}, Blocks(rounds=5, runs=runs))
    assert [len(own) for own in made.values()] == [runs, runs]
    assert {run.answer for run in made["b"]} == {2}
    assert all(run.seconds > 0 for run in made["a"])


def test_a_block_holds_what_fits_but_never_too_few_nor_too_many() -> None:
    blocks = Blocks(block_s=1.0, most=50)
    assert [blocks.count(0, seconds) for seconds in (0.1, 10.0, 1e-6)] == [10, 3, 50]


@pytest.mark.parametrize(("runs", "most"), [(0, 9), (40, 40)])
def test_a_block_that_is_disturbed_ends(monkeypatch: pytest.MonkeyPatch, runs: int, most: int) -> None:
    """The first three runs, which warm, take 0.01 s each by the clock, all others 0.1 s."""
    now, calls = 0.0, 0

    def run() -> int:
        nonlocal now, calls
        calls += 1
        now += 0.01 if calls <= 3 else 0.1
        return calls

    monkeypatch.setattr(alternate.time, "perf_counter", lambda: now)
    (made,) = alternate_runs({"a": run}, Blocks(rounds=1, block_s=0.25, runs=runs)).values()
    assert 3 <= len(made) <= most
    assert runs in (0, len(made)), "so many as were asked for, whatever they take"

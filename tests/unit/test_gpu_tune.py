"""`python -m benchmarks.gpu_tune`: candidates take turns, and it ends when its seconds are over. These need no GPU."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from benchmarks import gpu_tune

ENDLESS = """
import time
from benchmarks import gpu_tune

def rows():
    yield {"ms": 1}
    time.sleep(600)

gpu_tune.items = lambda: [rows]
gpu_tune.main(["--seconds", "0.5", "--json", "FILE"])
"""


def test_the_best_is_first_and_what_does_not_run_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    order: list[float] = []

    def median(calls: Sequence[Callable[[], Any]], _: int) -> float:
        order.append(calls[0]())
        return order[-1]

    def failing() -> float:
        raise RuntimeError("out of shared memory")

    monkeypatch.setattr(gpu_tune, "median_ms", median)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    calls = {"slow": [lambda: 4.0], "library": [lambda: 2.0], "fails": [failing], "fast": [lambda: 1.0]}
    rows = list(gpu_tune.measure("products", calls, "library"))
    assert [(row["configuration"], row["of_reference"]) for row in rows] == [("fast", 2), ("library", 1), ("slow", 0.5)]
    assert order == [4.0, 2.0, 1.0] * gpu_tune.ROUNDS
    assert "products fails: RuntimeError: out of shared memory" in capsys.readouterr().out


def test_it_ends_when_the_seconds_are_over(tmp_path: Any) -> None:
    file = tmp_path / "tune.json"
    ended = subprocess.run(
        [sys.executable, "-c", ENDLESS.replace("FILE", str(file))],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert "the seconds are over" in ended.stdout
    assert '"ms": 1' in file.read_text()

"""What `python -m benchmarks.programs` compares with, and that every program has a driver and exact versions."""

from __future__ import annotations

import re
from importlib import util
from typing import Any

import numpy as np
import pytest

from benchmarks.programs import environment
from benchmarks.programs.answers import difference
from benchmarks.programs.catalogue import PROGRAMS, Program


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("text", "text"),
        (None, None),
        (3, 3),
        ([1.0, 2.0], (1.0, 2.0005)),
        ({"a": [["x", 0.5], ["y", 0.25]]}, {"a": [["x", 0.5001], ["y", 0.25]]}),
        (np.array([np.nan, 100.0]), np.array([np.nan, 100.05])),
        ([np.zeros((0, 4)), np.zeros(2)], [np.zeros((0, 4)), np.zeros(2)]),
    ],
)
def test_answers_are_the_same_up_to_rounding(theirs: Any, ours: Any) -> None:
    apart, problem = difference(theirs, ours, 1e-3)
    assert apart <= 1e-3 and problem == ""


@pytest.mark.parametrize(
    ("theirs", "ours", "problem"),
    [
        ("text", "test", "answer is 'test', expected 'text'"),
        (None, 0, "answer is 0, expected None"),
        (3, 4, "answer is 1 off in whole numbers"),
        (True, False, "answer is False, expected True"),
        ([1.0, 2.0], [1.0, 2.1], "answer is 0.1 off at a scale of 2"),
        ([1.0, 2.0], [1.0], "answer has shape [1], expected [2]"),
        (["a", 1], ["a"], "answer has 1 entries, expected 2"),
        (["a", "b"], ["a", "c"], "answer[1] is 'c', expected 'b'"),
        ([["x", 0.5], ["yz", [1, 2]]], [["x", 0.5], ["yz", [1, 3]]], "answer[1][1] is 1 off in whole numbers"),
        ({"a": 1}, {"b": 1}, "answer has ['b'], expected ['a']"),
        ({"a": {"b": np.ones(3)}}, {"a": {"b": np.full(3, np.nan)}}, "answer['a']['b'] is NaN elsewhere"),
    ],
)
def test_answers_that_differ_are_told_where(theirs: Any, ours: Any, problem: str) -> None:
    apart, told = difference(theirs, ours, 1e-3)
    assert apart > 1e-3 and problem in told


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_programs_are_pinned_and_driven(program: Program) -> None:
    assert util.find_spec(f"benchmarks.programs.drivers.use_{program.name}") is not None
    lines = (environment.LOCKS / f"{program.environment or program.name}.txt").read_text().splitlines()
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines), lines
    assert set(environment.BASE) <= set(lines)
    torch = [line for line in lines if line.startswith("torch==")]
    assert torch in ([], ["torch==2.13.0"])

"""Small models that ask for much compile with little work and in little memory."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from benchmarks.compile_time import EnoughError, compiled, measured
from benchmarks.hard_models import HARD
from tests.counted import calls

CALLS = 60_000_000
"""Of all stages before the C compiler; the most that one takes is a third of it."""

KILOBYTES = 1_000_000

LONG = ("concat", "sum")
NAMES = [pytest.param(name, marks=[pytest.mark.slow] if name in LONG else []) for name in HARD if name != "elementwise"]


@pytest.mark.parametrize("name", NAMES)
def test_a_hard_model_compiles_with_little_work(name: str) -> None:
    make, nodes = HARD[name]
    model = make(nodes)

    def until_rendered(stage: str, run: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        made = run(*args, **kwargs)
        if stage == "render":
            raise EnoughError
        return made

    def compiling() -> None:
        with contextlib.suppress(EnoughError):
            compiled(model, "all", until_rendered)

    count, _ = calls(compiling, CALLS)
    assert count > 1000, "nothing was compiled"


@pytest.mark.parametrize("name", NAMES)
def test_a_hard_model_compiles_in_little_memory(name: str) -> None:
    found = measured(name, HARD[name][1], "all", "render", 3600)
    assert max(found.kilobytes.values()) < KILOBYTES
    assert not found.failed and "render" in found.seconds

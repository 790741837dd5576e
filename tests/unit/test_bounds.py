"""Small models that ask for much compile soon and in little memory."""

from __future__ import annotations

import pytest

from benchmarks.compile_time import measured
from benchmarks.hard_models import HARD

SECONDS = 10
"""Processor time of all stages before the C compiler; what is measured is a fraction of it."""

KILOBYTES = 1_000_000


@pytest.mark.parametrize("name", [name for name in HARD if name != "elementwise"])
def test_a_hard_model_compiles(name: str) -> None:
    found = measured(name, HARD[name][1], "all", "render", 120)
    assert sum(found.seconds.values()) < SECONDS
    assert max(found.kilobytes.values()) < KILOBYTES
    assert not found.failed and "render" in found.seconds

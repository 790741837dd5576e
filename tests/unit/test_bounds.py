"""Small models that ask for much compile or are refused by name, soon and in little memory."""

from __future__ import annotations

import pytest

from benchmarks.compile_time import measured
from benchmarks.hard_models import HARD

SECONDS = 10
"""Processor time of all stages before the C compiler; what is measured is a fraction of it."""

KILOBYTES = 1_000_000

REFUSED = {
    "squares": "ConstantOfShape_10",
    "squares-expand": "Expand_10",
    "squares-reshape": "Reshape_10",
    "powers": "ConstantOfShape_9",
}
"""The node that the error names."""


@pytest.mark.parametrize("name", [name for name in HARD if name != "elementwise"])
def test_a_hard_model_compiles_or_is_refused(name: str) -> None:
    found = measured(name, HARD[name][1], "all", "render", 120)
    assert sum(found.seconds.values()) < SECONDS
    assert max(found.kilobytes.values()) < KILOBYTES
    if name in REFUSED:
        assert f"UnsupportedError: node '{REFUSED[name]}'" in found.failed and "--dim" in found.failed
    else:
        assert not found.failed and "render" in found.seconds

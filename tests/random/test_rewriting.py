"""Random graphs stay right whatever of the optimiser's requests are granted."""

from __future__ import annotations

import pytest

from opweld.cached import sources_digest
from tests.random.rewriting import rewrite

FRESH = 100
"""Graphs of the long run; `python -m tests.random.rewriting` goes on."""


@pytest.mark.parametrize("seed", range(12))
def test_fixed_seeds(seed: int) -> None:
    assert not rewrite(seed).wrong


@pytest.mark.parametrize("seed", range(100, 108))
def test_fixed_seeds_in_float16(seed: int) -> None:
    assert not rewrite(seed, half=True).wrong


@pytest.mark.slow
def test_fresh_seeds() -> None:
    """Other graphs for every change of the compiler, the same for the same text."""
    first = int(sources_digest()[:8], 16)
    for seed in range(first, first + FRESH):
        made = rewrite(seed)
        assert not made.wrong, f"seed {made.seed}: {made.wrong}"

"""Decoders whose products round rows to 8 bits: near those that do not, and the same bits however steps are divided."""

from __future__ import annotations

import numpy as np
import pytest

from opweld.llm.step import Span
from opweld.tensor.rounded import _matrix, panels_of  # pyright: ignore[reportPrivateUsage]
from tests.unit.llm.decoder import Decoder
from tests.unit.llm.decoders import CONFIGS, runner_of, weights_of
from tests.unit.llm.test_compiled import LENGTH, run_in, tokens_of


@pytest.mark.parametrize("bits", [4, 8])
def test_panels_hold_every_code(bits: int) -> None:
    codes = np.random.default_rng(bits).integers(0, 1 << bits, (37, 96)).astype(np.uint8)
    np.testing.assert_array_equal(_matrix(panels_of(codes, bits), bits, 37, 96), codes)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_rows_are_rounded_alike_whatever_shares_their_step(name: str) -> None:
    config, tokens = CONFIGS[name], tokens_of()
    weights = weights_of(config, blocked=True)
    model = runner_of(config, weights, rounded=True, threads=2)
    whole = model.run([Span(tokens, 0, range(20), LENGTH)])
    right = Decoder(config, weights).logits(tokens)
    error = np.sqrt(((whole - right) ** 2).mean() / (right**2).mean())
    # Each element is off by up to 1/254 of the largest of its group, in two layers and the head.
    assert 0 < error < 0.03
    for counts in ((1, 6, 33, 250, 1, 9, 300), (599, 1), (16, 17, 15, 552)):
        np.testing.assert_array_equal(run_in(model, tokens, counts, range(20)), whole)
    alone = runner_of(config, weights, rounded=True, threads=1)
    np.testing.assert_array_equal(run_in(alone, tokens, (300, 299, 1), range(20)), whole)
    narrow = runner_of(config, weights, rounded=True, threads=1, target="x86-64-v3")
    found = narrow.run([Span(tokens, 0, range(20), LENGTH)])
    np.testing.assert_allclose(found, whole, atol=0.03 * np.abs(whole).max(), rtol=0)

"""A million tokens of context: every address of a cache in blocks is the right one."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.long_context import CONFIG, LONGEST, ROPE, filled, weights
from opweld.llm.load import BLOCK
from opweld.llm.step import Span
from tests.unit.llm.decoder import Array, Decoder, softmax

TOKEN = 7


def expected(keys: Array, values: Array) -> Array:
    """The logits of a token behind those whose keys and values [tokens, size] are given."""
    model, position, heads = Decoder(CONFIG, weights()), len(keys), CONFIG.heads
    x = model.weights["embedding"][TOKEN]
    given = model.norm(x, "layers.0.attention_norm")
    query, key, value = (model.linear(given, f"layers.0.{part}").reshape(-1, 32) for part in ("query", "key", "value"))
    query, key = (_turned(part, position) for part in (query, key))
    shares = softmax(query @ np.concatenate([keys, key]).T * CONFIG.scale)
    assert (np.sort(shares)[:, -1000:].sum(-1) > 0.3).all(), "a few keys matter, so that a wrong one shows"
    mixed = shares @ np.concatenate([values, value])
    x = x + model.linear(mixed.reshape(heads * 32), "layers.0.output")
    x = x + model.dense(model.norm(x, "layers.0.feed_norm"), "layers.0.")
    return model.norm(x, "norm") @ model.weights["head"].T


def _turned(x: Array, position: int) -> Array:
    angles = position * ROPE.frequencies
    first, second = x[:, :16], x[:, 16:]
    return np.concatenate(
        [first * np.cos(angles) - second * np.sin(angles), second * np.cos(angles) + first * np.sin(angles)], axis=1
    )


@pytest.mark.slow
@pytest.mark.parametrize("length", [1000, LONGEST // 3, LONGEST - 1])
def test_a_token_sees_every_key_of_its_context(length: int) -> None:
    runner, table = filled(length + 1, threads=2)
    memory = runner.memory()
    # [blocks, 1, size, block] and [blocks, 1, block, size], in the order of the sequence.
    keys = memory["keys.0"][table][:, 0].transpose(0, 2, 1).reshape(-1, 32)[:length].astype(np.float64)
    values = memory["values.0"][table][:, 0].reshape(-1, 32)[:length].astype(np.float64)
    found = runner.run([Span((TOKEN,), length, table, 1)])[0]
    right = expected(keys, values)
    # Sums in float32; measured 6e-7. A block in the place of another one changes 1.6e-4.
    np.testing.assert_allclose(found, right, atol=1e-5 * np.abs(right).max(), rtol=0)
    assert len(table) == -(-(length + 1) // BLOCK)

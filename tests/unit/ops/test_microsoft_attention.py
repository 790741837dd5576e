from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opweld.errors import UnsupportedError
from tests.unit.ops.one_node import Array, flow_of, normal
from tests.unit.ops.runtime_node import MICROSOFT, check_runtime, runtime_model


def projection(width: int = 8, out: int = 24) -> list[Array]:
    return [normal(2, 5, width), normal(width, out), normal(out)]


@pytest.mark.parametrize("causal", [0, 1])
def test_attention(causal: int) -> None:
    options: dict[str, Any] = {"num_heads": 2, "unidirectional": causal}
    check_runtime("Attention", projection(), constant=(1, 2), dims={0: ["n", "s", 8]}, **options)
    check_runtime("Attention", projection(out=20), qkv_hidden_sizes=[8, 8, 4], scale=0.3, **options)
    bias = normal(2, 2, 5, 5)
    check_runtime("Attention", [*projection(), None, None, bias], **options)


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize(
    "mask",
    [
        np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32),
        np.array([3, 5], np.int32),
        np.array([4, 5, 1, 0], np.int32),
        np.tril(np.ones((2, 5, 5), np.int32)),
    ],
)
def test_masks(mask: Array, causal: int) -> None:
    check_runtime("Attention", [*projection(), mask], num_heads=2, unidirectional=causal)


def test_attention_with_a_past() -> None:
    past = normal(2, 2, 2, 3, 4)
    options: dict[str, Any] = {"num_heads": 2, "unidirectional": 1, "outputs": 2}
    check_runtime("Attention", [*projection(), None, past], dims={0: [2, "s", 8], 4: [2, 2, 2, "p", 4]}, **options)


@pytest.mark.parametrize("causal", [0, 1])
def test_multi_head_attention(causal: int) -> None:
    q, k, v = normal(2, 5, 8), normal(2, 5, 8, seed=1), normal(2, 5, 8, seed=2)
    options: dict[str, Any] = {"num_heads": 2, "unidirectional": causal}
    dims = {position: ["n", "s", 8] for position in range(3)}
    check_runtime("MultiHeadAttention", [q, k, v], dims=dims, **options)
    check_runtime("MultiHeadAttention", [q, k, v, normal(24)], **options)
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    check_runtime("MultiHeadAttention", [q, k, v, None, mask, normal(1, 2, 5, 5)], **options)


def test_cross_attention() -> None:
    q, k, v = normal(2, 3, 8), normal(2, 7, 8), normal(2, 7, 12)
    check_runtime("MultiHeadAttention", [q, k, v], num_heads=4)
    heads = normal(2, 2, 7, 4), normal(2, 2, 7, 4, seed=1)
    check_runtime("MultiHeadAttention", [q, *heads], num_heads=2)


def test_multi_head_attention_with_a_past() -> None:
    q, k, v = normal(2, 1, 8), normal(2, 1, 8, seed=1), normal(2, 1, 8, seed=2)
    past = normal(2, 2, 6, 4), normal(2, 2, 6, 4, seed=1)
    check_runtime("MultiHeadAttention", [q, k, v, None, None, None, *past], num_heads=2, outputs=3)


def angles(length: int, pairs: int) -> list[Array]:
    x = np.arange(length)[:, None] / 10 ** (np.arange(pairs) / pairs)
    return [np.cos(x).astype(np.float32), np.sin(x).astype(np.float32)]


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_embedding(interleaved: int) -> None:
    places = np.array([[0, 1, 2, 3, 4], [3, 4, 5, 6, 7]])
    options: dict[str, Any] = {"interleaved": interleaved}
    check_runtime("RotaryEmbedding", [normal(2, 5, 16), places, *angles(9, 4)], constant=(2, 3), **options)
    check_runtime("RotaryEmbedding", [normal(2, 2, 5, 8), places, *angles(9, 4)], **options)
    check_runtime("RotaryEmbedding", [normal(2, 5, 16), np.array([2]), *angles(9, 4)], **options)
    partly: dict[str, Any] = {"num_heads": 2, "rotary_embedding_dim": 4, **options}
    check_runtime("RotaryEmbedding", [normal(2, 5, 16), places, *angles(9, 2)], **partly)


def grouped(past: int, new: int, batch: int = 2, size: int = 8, capacity: int | None = None) -> list[Array | None]:
    """Inputs of two key heads for four heads, that all have so many places in the past."""
    inputs = [normal(batch, new, 4 * size), normal(batch, new, 2 * size, seed=1), normal(batch, new, 2 * size, seed=2)]
    room = past if capacity is None else capacity
    caches = [normal(batch, 2, room, size, seed=seed) for seed in (3, 4)] if past else [None, None]
    total = past + new
    return [*inputs, *caches, np.full(batch, total - 1, np.int32), np.array(total, np.int32)]


GROUPED: dict[str, Any] = {"num_heads": 4, "kv_num_heads": 2, "outputs": 3}


@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize("past", [0, 6])
def test_group_query_attention(past: int, rotary: bool) -> None:
    inputs = grouped(past, 1 if past else 5, size=16)
    turned: dict[str, Any] = {"do_rotary": 1} if rotary else {}
    tables = angles(16, 8) if rotary else []
    check_runtime("GroupQueryAttention", [*inputs, *tables], constant=(6,), **turned, **GROUPED)
    packed = np.concatenate([array for array in inputs[:3] if array is not None], 2)
    check_runtime("GroupQueryAttention", [packed, None, None, *inputs[3:], *tables], constant=(6,), **turned, **GROUPED)


def test_total_lengths_are_fed() -> None:
    dims = {0: [2, "s", 32], 1: [2, "s", 16], 2: [2, "s", 16]}
    check_runtime("GroupQueryAttention", grouped(0, 5), dims=dims, more=[grouped(0, 3)], **GROUPED)
    dims = {3: [2, 2, "p", 8], 4: [2, 2, "p", 8]}
    check_runtime("GroupQueryAttention", grouped(6, 1), dims=dims, more=[grouped(9, 1)], **GROUPED)


def test_rows_with_pasts_of_their_own() -> None:
    inputs = grouped(6, 1)
    inputs[5] = np.array([4, 6], np.int32)
    check_runtime("GroupQueryAttention", inputs, constant=(6,), **GROUPED)


def test_windows_and_caps() -> None:
    check_runtime("GroupQueryAttention", grouped(0, 9), constant=(6,), local_window_size=3, softcap=2.0, **GROUPED)
    check_runtime("GroupQueryAttention", grouped(9, 1), constant=(6,), local_window_size=4, scale=0.2, **GROUPED)


@pytest.mark.parametrize("past", [0, 6])
def test_a_softmax_beside_a_sink(past: int) -> None:
    inputs = grouped(past, 1 if past else 5)
    check_runtime("GroupQueryAttention", inputs, constant=(6,), smooth_softmax=1, **GROUPED)
    check_runtime("GroupQueryAttention", inputs, constant=(6,), smooth_softmax=1, local_window_size=3, **GROUPED)
    sinks = [*inputs, None, None, None, None, np.array([-9, 0.5, 2, 30], np.float32)]
    check_runtime("GroupQueryAttention", sinks, constant=(6,), **GROUPED)


def test_attention_that_is_not_supported_says_why() -> None:
    with pytest.raises(UnsupportedError, match="packed queries, keys and values"):
        flow_of(runtime_model("MultiHeadAttention", [normal(2, 5, 2, 3, 4)], MICROSOFT, num_heads=2))
    with pytest.raises(UnsupportedError, match="qk_output=1 is not supported"):
        inputs = grouped(0, 5)
        flow_of(runtime_model("GroupQueryAttention", inputs, MICROSOFT, constant=(6,), qk_output=1, **GROUPED))

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.unit.ops.one_node import normal
from tests.unit.ops.runtime_node import check_runtime
from tests.unit.ops.test_microsoft_quantized import quantized, scale, small


@pytest.mark.parametrize("group", [1, 3])
def test_convolutions_with_channels_last(group: int) -> None:
    x, w, bias = normal(2, 9, 8, 6), normal(9, 6 // group, 3, 2), normal(9)
    options: dict[str, Any] = {"pads": [1, 0, 1, 1], "strides": [2, 1], "group": group, "constant": (1, 2)}
    check_runtime("NhwcConv", [x, np.moveaxis(w, 1, 3), bias], **options)
    options |= {"activation": "Relu", "dims": {0: ["n", "h", 8, 6]}}
    check_runtime("NhwcFusedConv", [x, w, bias, normal(2, 5, 8, 9)], **options)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_largest_with_channels_last(dtype: Any) -> None:
    options = {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]}
    check_runtime("NhwcMaxPool", [small(dtype, 2, 9, 8, 5)], **options, **quantized(dtype))


@pytest.mark.parametrize("last", [0, 1])
def test_quantized_convolutions(last: int) -> None:
    x, w = small(np.uint8, 2, 6, 9, 8), small(np.int8, 5, 6, 3, 3, seed=1)
    data = np.ascontiguousarray(np.moveaxis(x, 1, 3)) if last else x
    inputs = [
        data, scale(0.03), np.array(120, np.uint8),
        w, (0.002 + 0.001 * np.abs(normal(5))).astype(np.float32), np.zeros(5, np.int8),
        scale(0.11), np.array(127, np.uint8), small(np.int8, 5).astype(np.int32) * 50,
    ]  # fmt: skip
    options: dict[str, Any] = {"constant": tuple(range(1, 9)), "pads": [1, 1, 1, 1], "strides": [2, 1]}
    check_runtime("QLinearConv", inputs, channels_last=last, **options, **quantized(np.uint8))


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_averages(dtype: Any, last: int) -> None:
    zero = np.array(5, dtype)
    options = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 1, 1, 0], "channels_last": last}
    inputs = [small(dtype, 2, 7, 8, 9), scale(0.0513), zero, scale(0.0397), np.array(9, dtype)]
    check_runtime("QLinearAveragePool", inputs, **options, **quantized(dtype))


def test_choices() -> None:
    chosen = normal(3, 1, 40) > 0
    zero = np.array(9, np.uint8)
    sides = [small(np.uint8, 5, 40), scale(0.05), zero, small(np.uint8, 3, 5, 1, seed=1), scale(0.08), zero]
    check_runtime(
        "QLinearWhere", [chosen, *sides, scale(0.1), zero], constant=(2, 3, 5, 6, 7, 8), **quantized(np.uint8)
    )


@pytest.mark.parametrize("across", [(0, 0), (1, 0), (0, 1), (1, 1)])
@pytest.mark.parametrize("per_column", [False, True])
def test_products(per_column: bool, across: tuple[int, int]) -> None:
    a, b = small(np.uint8, 7, 12), small(np.int8, 12, 9, seed=1)
    units = np.abs(normal(9)) * np.float32(0.01) + np.float32(0.01) if per_column else scale(0.02)
    zeros = small(np.int8, 9, seed=2) if per_column else np.array(3, np.int8)
    sides = (a.T.copy() if across[0] else a), (b.T.copy() if across[1] else b)
    inputs = [sides[0], scale(0.03), np.array(120, np.uint8), sides[1], units, zeros]
    options: dict[str, Any] = {"transA": across[0], "transB": across[1], "constant": (1, 2, 3, 4, 5, 6, 7, 8)}
    addend = small(np.int8, 1, 9, seed=3).astype(np.int32) * 100
    check_runtime("QGemm", [*inputs, addend], alpha=0.5, tolerance=1e-6, **options)
    check_runtime("QGemm", [*inputs, addend, scale(0.9), np.array(99, np.uint8)], **options, **quantized(np.uint8))
    check_runtime("QGemm", [*inputs, None, scale(0.9), np.array(99, np.uint8)], **options, **quantized(np.uint8))


@pytest.mark.parametrize("causal", [0, 1])
def test_attention(causal: int) -> None:
    batch, steps, hidden, heads = 2, 6, 8, 2
    x, w = small(np.uint8, batch, steps, hidden), small(np.int8, hidden, 3 * hidden, seed=1)
    mask = np.array([6, 4], np.int32)
    inputs = [x, w, normal(3 * hidden), scale(0.02), scale(0.01), mask, np.array(128, np.uint8), np.array(2, np.int8)]
    options: dict[str, Any] = {"num_heads": heads, "unidirectional": causal, "constant": (1, 2, 3, 4, 6, 7)}
    check_runtime("QAttention", inputs, tolerance=1e-5, **options)


def test_embedding() -> None:
    hidden, steps = 8, 5
    random = np.random.default_rng(0)
    ids = random.integers(0, 11, (2, steps)).astype(np.int32)
    segments, mask = random.integers(0, 2, (2, steps)).astype(np.int32), np.ones((2, steps), np.int32)
    tables = [small(np.uint8, rows, hidden, seed=rows) for rows in (11, 7, 2)]
    vectors = [small(np.uint8, hidden, seed=seed) for seed in (1, 2)]
    scales = [scale(0.01 * k) for k in range(1, 6)]
    zeros = [np.array(100 + k, np.uint8) for k in range(5)]
    inputs = [ids, segments, *tables, *vectors, mask, *scales, *zeros]
    options: dict[str, Any] = {"outputs": 2, "types": {1: 6}, "constant": (*range(2, 7), *range(8, 18))}
    check_runtime("QEmbedLayerNormalization", inputs, tolerance=2e-5, **options)

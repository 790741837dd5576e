from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.unit.ops.one_node import check, normal


def small(dtype: type[np.integer[Any]], *shape: int) -> np.ndarray:
    limits = np.iinfo(dtype)
    return np.random.default_rng(sum(shape)).integers(limits.min, limits.max, shape, endpoint=True).astype(dtype)


def scale(*values: float) -> np.ndarray:
    return np.array(values[0] if len(values) == 1 else values, np.float32)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16])
def test_quantize_and_back(dtype: type[np.integer[Any]]) -> None:
    zero = np.array(3, dtype)
    check("QuantizeLinear", [normal(4, 5) * 40, scale(0.25), zero], dims={0: ["n", 5]})
    check("DequantizeLinear", [small(dtype, 4, 5), scale(0.25), zero], constant=(1, 2))


def test_scales_along_an_axis() -> None:
    scales, zeros = scale(0.1, 2.0, 7.5), np.array([0, 100, 255], np.uint8)
    for axis, shape in ((0, (3, 4)), (1, (2, 3, 4)), (-1, (5, 3))):
        check("QuantizeLinear", [normal(*shape) * 90, scales, zeros], constant=(1, 2), axis=axis)
        check("DequantizeLinear", [small(np.uint8, *shape), scales, zeros], axis=axis)


def test_a_single_scale_may_have_an_axis() -> None:
    one, zero = np.array([0.25], np.float32), np.array([3], np.uint8)
    check("QuantizeLinear", [normal(4, 5) * 40, one, zero])
    check("DequantizeLinear", [small(np.uint8, 4, 5), one, zero])
    operands = [small(np.uint8, 3, 7), one, zero, small(np.uint8, 7, 2), one, zero, np.array([9.0], np.float32), zero]
    check("QLinearMatMul", operands)


def test_blocks() -> None:
    scales = np.abs(normal(3, 2)) + np.float32(0.5)
    zeros = small(np.int8, 3, 2)
    check("QuantizeLinear", [normal(3, 8) * 90, scales, zeros], axis=1, block_size=4)
    check("DequantizeLinear", [small(np.int8, 3, 8), scales, zeros], axis=1, block_size=4)


def test_halves_are_rounded_to_even_and_ends_cut_off() -> None:
    x = np.array([-0.5, 0.5, 1.5, 2.5, 254.5, 300, -7], np.float32)
    check("QuantizeLinear", [x, scale(1.0)])
    check("QuantizeLinear", [x, scale(1.0), np.array(0, np.int8)])


def test_no_zero_point() -> None:
    check("DequantizeLinear", [small(np.int32, 3, 4), scale(1e-6)])


@pytest.mark.parametrize("depth", [7, 300])
@pytest.mark.parametrize("zeros", [(), (12, 240)])
def test_matmul_integer(depth: int, zeros: tuple[int, ...]) -> None:
    a, b = small(np.uint8, 2, 5, depth), small(np.uint8, depth, 6)
    check("MatMulInteger", [a, b, *(np.array(zero, np.uint8) for zero in zeros)], dims={0: [2, "m", depth]})


def test_matmul_integer_by_row_and_column() -> None:
    a, b = small(np.uint8, 5, 7), small(np.int8, 7, 3)
    check("MatMulInteger", [a, b, np.array(9, np.uint8), small(np.int8, 3)], constant=(1, 3))


@pytest.mark.parametrize("depth", [7, 400])
def test_qlinear_matmul(depth: int) -> None:
    a, b = small(np.uint8, 2, 5, depth), small(np.int8, depth, 6)
    operands = [a, scale(0.02), np.array(110, np.uint8), b, scale(0.03), np.array(-4, np.int8)]
    operands += [scale(0.9), np.array(128, np.uint8)]
    check("QLinearMatMul", operands, constant=(1, 2, 3, 4, 5, 6, 7))


@pytest.mark.parametrize("attributes", [{}, {"pads": [1, 1, 1, 1], "strides": [2, 1]}, {"group": 2}])
def test_convolutions(attributes: dict[str, Any]) -> None:
    x, w = small(np.uint8, 1, 4, 6, 5), small(np.int8, 6, 4 // attributes.get("group", 1), 3, 3)
    bias = np.arange(6, dtype=np.int32) * 100
    operands = [x, scale(0.02), np.array(110, np.uint8), w, scale(*(0.01 * np.arange(1, 7))), np.zeros(6, np.int8)]
    operands += [scale(0.7), np.array(30, np.uint8), bias]
    options: dict[str, Any] = {"constant": tuple(range(1, 9)), **attributes}
    check("QLinearConv", operands, **options)
    unsigned = [x, small(np.uint8, *w.shape), np.array(110, np.uint8)]
    check("ConvInteger", unsigned, **attributes)

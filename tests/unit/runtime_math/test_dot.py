"""Dot products of words against NumPy: of bytes, their extremes among them, as nothing saturates and sums wrap; of
integers of 16 bits; of bfloat16, whose sums are rounded to float32 twice. And integers as bytes that saturate."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tests.unit.runtime_math.conftest import Kernels


def test_dot_products_of_bytes(dots: Kernels) -> None:
    generator = np.random.default_rng(3)
    unsigned = generator.integers(0, 256, (1024, 4)).astype(np.uint8)
    signed = generator.integers(-128, 128, (1024, 4)).astype(np.int8)
    unsigned[:3], signed[0], signed[1], signed[2] = 255, 127, -128, (127, -128, 127, -128)
    start = generator.integers(-(2**31), 2**31, 1024).astype(np.int32)
    wanted = start.astype(np.int64) + (unsigned.astype(np.int64) * signed.astype(np.int64)).sum(-1)
    found = start.copy()
    dots.call("dot4_add", found, unsigned, signed, found.size)
    np.testing.assert_array_equal(found, wanted.astype(np.int32))


def test_dot_products_of_bytes_whose_pairs_fit_16_bits(dots: Kernels) -> None:
    generator = np.random.default_rng(6)
    unsigned = generator.integers(0, 256, (1024, 4)).astype(np.uint8)
    signed = generator.integers(-64, 65, (1024, 4)).astype(np.int8)
    unsigned[:3], signed[0], signed[1], signed[2] = 255, 64, -64, (127, 1, -128, 127)
    start = generator.integers(-(2**31), 2**31, 1024).astype(np.int32)
    wanted = start.astype(np.int64) + (unsigned.astype(np.int64) * signed.astype(np.int64)).sum(-1)
    found = start.copy()
    dots.call("dot4s_add", found, unsigned, signed, found.size)
    np.testing.assert_array_equal(found, wanted.astype(np.int32))


def test_dot_products_of_integers_of_16_bits(dots: Kernels) -> None:
    generator = np.random.default_rng(5)
    x, y = (generator.integers(-(2**15), 2**15, (1024, 2)).astype(np.int16) for _ in range(2))
    x[:2], y[0], y[1] = -(2**15), -(2**15), 2**15 - 1
    start = generator.integers(-(2**31), 2**31, 1024).astype(np.int32)
    wanted = start.astype(np.int64) + (x.astype(np.int64) * y.astype(np.int64)).sum(-1)
    found = start.copy()
    dots.call("dot2i_add", found, x, y, found.size)
    np.testing.assert_array_equal(found, wanted.astype(np.int32))


def test_dot_products_of_bfloat16(dots: Kernels) -> None:
    """A product of two bfloat16 is exact in float32, so that each of two sums is off by half a unit in its last place:
    2 ** -24 of the largest magnitude on the way, of all three numbers together at most."""
    generator = np.random.default_rng(4)
    x, y = (generator.standard_normal((1024, 2)).astype(ml_dtypes.bfloat16) for _ in range(2))
    start = generator.standard_normal(1024).astype(np.float32)
    products = x.astype(np.float64) * y.astype(np.float64)
    found = start.copy()
    dots.call("dot2_add", found, x, y, found.size)
    bound = 2 * 2.0**-24 * (np.abs(start.astype(np.float64)) + np.abs(products).sum(-1))
    assert (np.abs(found - (start + products.sum(-1))) <= bound).all()


def test_dot_products_of_bfloat16_keep_infinities_and_nans(dots: Kernels) -> None:
    found = np.zeros(1024, np.float32)
    x = np.ones((1024, 2), ml_dtypes.bfloat16)
    x[0, 0], x[1, 1], x[2] = np.inf, np.nan, (np.inf, -np.inf)
    dots.call("dot2_add", found, x, np.ones_like(x), found.size)
    assert found[0] == np.inf and np.isnan(found[1:3]).all() and (found[3:] == 2).all()


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("vectors", [1, 2, 4])
def test_integers_become_the_nearest_bytes(dots: Kernels, vectors: int, dtype: type[np.integer]) -> None:
    generator = np.random.default_rng(7)
    x = generator.integers(-400, 400, 1024).astype(np.int32)
    x[::7] = generator.integers(-(2**31), 2**31, x[::7].size)
    x[:4] = -(2**31), 2**31 - 1, -1, 256
    found, limits = np.zeros(1024, dtype), np.iinfo(dtype)
    dots.call(f"narrow_{vectors}_{'u8' if dtype is np.uint8 else 'i8'}", found, x, found.size)
    np.testing.assert_array_equal(found, np.clip(x, limits.min, limits.max).astype(dtype))


@pytest.mark.parametrize("op", ["dot4", "dot4s", "dot2i"])
def test_the_lower_half_of_a_vector_is_that_of_the_whole_one(dots: Kernels, op: str) -> None:
    generator = np.random.default_rng(8)
    x, y, start = (generator.integers(-(2**31), 2**31, 1024).astype(np.int32) for _ in range(3))
    x, y = (value & 0x3F3F3F3F for value in (x, y))  # pairs of products fit 16 bits
    found, wanted = start.copy(), start.copy()
    dots.call(f"{op}_add_half", found, x, y, found.size)
    dots.call(f"{op}_add", wanted, x, y, wanted.size)
    found, wanted = (value.reshape(-1, dots.lanes)[:, : dots.lanes // 2] for value in (found, wanted))
    np.testing.assert_array_equal(found, wanted)


def test_products_in_the_lower_half_of_a_vector_are_rounded_once_or_twice(dots: Kernels) -> None:
    generator = np.random.default_rng(9)
    x, y, start = (generator.standard_normal(1024).astype(np.float32) for _ in range(3))
    found, exact = start.copy(), start + x.astype(np.float64) * y
    dots.call("multiply_add_half", found, x, y, found.size)
    bound = 2.0**-23 * (np.abs(start.astype(np.float64)) + np.abs(x.astype(np.float64) * y))
    lower = np.arange(1024) % dots.lanes < dots.lanes // 2
    assert (np.abs(found - exact) <= bound)[lower].all()


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.float32, np.int64])
@pytest.mark.parametrize("lanes", [1, 2, 3, 4, 8])
def test_lanes_of_a_known_number_are_moved_and_no_others(dots: Kernels, lanes: int, dtype: type) -> None:
    if lanes > dots.lanes or (lanes == 8 and (dots.lanes < 16 or dtype not in (np.uint8, np.float32))):
        pytest.skip("no part of a vector")
    x = np.arange(1, 129).astype(dtype)
    found, wanted = np.full(128, 7, dtype), np.full(128, 7, dtype)
    short = {np.uint8: "u8", np.int16: "i16", np.float32: "f32", np.int64: "i64"}[dtype]
    dots.call(f"part_{lanes}_{short}", found, x, found.size)
    wanted.reshape(-1, 16)[:, :lanes] = 2 * x.reshape(-1, 16)[:, :lanes]
    np.testing.assert_array_equal(found, wanted)

"""Codes of 8 bits and fewer against ml_dtypes: every code, and numbers on, beside and between all that a type has."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from opweld.tensor.dtype import DType
from opweld.tensor.semantics import apply_cast
from tests.unit.runtime_math.conftest import Kernels

_FLOATS = [dtype for dtype in DType if dtype.is_storage_only and dtype.is_float]
_INTEGERS = [dtype for dtype in DType if dtype.is_storage_only and dtype.is_integer]


def _every_code(dtype: DType) -> NDArray:
    return np.arange(1 << dtype.bits, dtype=np.uint8)


def _numbers(dtype: DType) -> NDArray:
    """What a type has, the middle of every two of them, their neighbours, and a sweep of all float32."""
    exact = np.unique(_every_code(dtype).view(dtype.numpy).astype(np.float64))
    exact = exact[np.isfinite(exact)]
    beyond = [exact[-1] + (exact[-1] - exact[-2]), 2 * exact[-1]]
    marks = np.concatenate([exact, beyond, (exact[1:] + exact[:-1]) / 2, [exact[-1] + (exact[-1] - exact[-2]) / 2]])
    with np.errstate(over="ignore"):
        marks = marks.astype(np.float32)
    neighbours = [np.nextafter(marks, np.float32(way)) for way in (np.inf, -np.inf)]
    sweep = np.arange(0, 1 << 32, 99991, dtype=np.uint64).astype(np.uint32).view(np.float32)
    ends = np.array([0.0, -0.0, np.inf, -np.inf, 1e-45, -1e-45, 3.4e38, -3.4e38], np.float32)
    numbers = np.concatenate([marks, -marks, *neighbours, *(-n for n in neighbours), sweep, ends])
    return numbers[~np.isnan(numbers)]


@pytest.mark.parametrize("dtype", _FLOATS)
def test_every_code_as_a_number(kernels: Kernels, dtype: DType) -> None:
    codes = _every_code(dtype)
    y = np.empty(codes.shape, np.float32)
    kernels.call(f"convert_{dtype.short}_f32", y, codes, codes.size)
    expected = codes.view(dtype.numpy).astype(np.float32)
    np.testing.assert_array_equal(y, expected)
    there = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(y[there]), np.signbit(expected[there]))


@pytest.mark.parametrize("dtype", _FLOATS)
def test_every_number_as_a_code(kernels: Kernels, dtype: DType) -> None:
    x = _numbers(dtype)
    y = np.empty(x.shape, np.uint8)
    kernels.call(f"convert_f32_{dtype.short}", y, x, x.size)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(y, x.astype(dtype.numpy).view(np.uint8))


@pytest.mark.parametrize("dtype", _FLOATS)
def test_a_nan_stays_one_where_there_is_one(kernels: Kernels, dtype: DType) -> None:
    x = np.array([0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFFFFFFF, 0x7FFFFFFF], np.uint32).view(np.float32)
    y = np.empty(x.shape, np.uint8)
    kernels.call(f"convert_f32_{dtype.short}", y, x, x.size)
    if dtype is DType.F4E2M1:
        assert y.view(dtype.numpy).astype(np.float32).tolist() == [0] * 5
        return
    assert np.isnan(y.view(dtype.numpy).astype(np.float32)).all()
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(y, x.astype(dtype.numpy).view(np.uint8))


def test_bits_above_a_code_do_not_matter(kernels: Kernels) -> None:
    y = np.empty(256, np.float32)
    codes = np.arange(256, dtype=np.uint8)
    kernels.call("convert_f4e2m1_f32", y, codes, 256)
    np.testing.assert_array_equal(y, (codes & 15).view(ml_dtypes.float4_e2m1fn).astype(np.float32))


@pytest.mark.parametrize("dtype", _INTEGERS)
def test_small_integers_wrap(kernels: Kernels, dtype: DType) -> None:
    wide, every_byte = dtype.computed, np.arange(256, dtype=np.uint8)
    y = np.empty(256, wide.numpy)
    kernels.call(f"convert_{dtype.short}_{wide.short}", y, every_byte, 256)
    np.testing.assert_array_equal(y, every_byte.view(dtype.numpy).astype(wide.numpy))
    codes = np.empty(256, np.uint8)
    x = every_byte.view(wide.numpy)
    kernels.call(f"convert_{wide.short}_{dtype.short}", codes, x, 256)
    np.testing.assert_array_equal(codes, x.astype(dtype.numpy).view(np.uint8))


def _nearest(x: NDArray, narrow: np.dtype) -> NDArray:
    """The numbers of a type that are nearest to positive float64, looked up among all of them; of two, the even one."""
    stored = np.uint8 if narrow.itemsize == 1 else np.uint16
    with np.errstate(invalid="ignore"):  # NaNs
        has = np.arange(1 << (8 * narrow.itemsize - 1), dtype=stored).view(narrow).astype(np.float64)
    has = has[np.isfinite(has)]  # in the order of their codes
    high = np.clip(np.searchsorted(has, x), 1, len(has) - 1)
    below, above = x - has[high - 1], has[high] - x
    return has[np.where((below < above) | ((below == above) & (high % 2 == 1)), high - 1, high)]


@pytest.mark.parametrize("dtype", [DType.F16, DType.BF16, DType.F8E4M3FN, DType.F8E4M3FNUZ, DType.F8E5M2])
def test_a_float64_is_rounded_once(kernels: Kernels, dtype: DType) -> None:
    generator = np.random.default_rng(5)
    digits = {DType.F16: 10, DType.BF16: 7}.get(dtype, 2 if dtype is DType.F8E5M2 else 3)
    # numbers of the type, and the middles of two of them, moved by less than a float32 can tell
    known = 1 + generator.integers(0, 2 << digits, 5000) * 2.0 ** -(digits + 1)
    x = (
        known
        * 2.0 ** generator.integers(-9, 5, known.shape)
        * (1 + generator.choice([-1, 0, 1], known.shape) * 2.0**-40)
    )
    y = np.empty(x.shape, np.float32)
    kernels.call("convert_f64_odd", y, x, x.size)
    np.testing.assert_array_equal(y.astype(dtype.numpy).astype(np.float64), _nearest(x, dtype.numpy))
    np.testing.assert_array_equal(apply_cast(x, dtype.numpy).astype(np.float64), _nearest(x, dtype.numpy))


def test_float64_beyond_the_range_of_float32(kernels: Kernels) -> None:
    x = np.array([1e300, -1e300, 1e-300, -1e-300, np.inf, -np.inf, 0.0, -0.0, np.nan, 3.0])
    y = np.empty(x.shape, np.float32)
    kernels.call("convert_f64_odd", y, x, x.size)
    with np.errstate(over="ignore"):
        narrow = y.astype(np.float16)
    np.testing.assert_array_equal(narrow, [np.inf, -np.inf, 0, 0, np.inf, -np.inf, 0, 0, np.nan, 3])
    assert np.signbit(y).tolist() == np.signbit(x).tolist()

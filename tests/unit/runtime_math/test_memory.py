"""Loads and stores: which lanes they fill, and that they never touch memory beyond."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from opweld.tile.squares import SQUARES
from tests.unit.runtime_math.conftest import DTYPES, Kernels

_PAGE = mmap.PAGESIZE
_MEMORY = [*DTYPES, "b8", "f16", "bf16"]
_HALVES = {"f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}


def _stored(dtype: str, count: int) -> NDArray:
    """Different non-zero elements as they lie in memory."""
    numbers = np.arange(1, count + 1)
    if dtype == "b8":
        return (numbers % 3 != 0).astype(np.uint8)
    if dtype in _HALVES:
        return (numbers % 100).astype(_HALVES[dtype]).view(np.uint16)
    return (numbers % 120).astype(DTYPES[dtype])


def _registers(dtype: str, stored: NDArray) -> NDArray:
    """What registers hold for elements in memory."""
    if dtype == "b8":
        return -(stored != 0).astype(np.int32)
    return stored.view(_HALVES[dtype]).astype(np.float32) if dtype in _HALVES else stored


@pytest.fixture(scope="module")
def last_page() -> Iterator[int]:
    """The address where a page that may not be touched begins, with a page of memory before it."""
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    library.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    library.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    private_anonymous = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    base = library.mmap(None, 2 * _PAGE, mmap.PROT_READ | mmap.PROT_WRITE, private_anonymous, -1, 0)
    assert base
    assert library.mprotect(base + _PAGE, _PAGE, 0) == 0
    yield base + _PAGE
    library.munmap(base, 2 * _PAGE)


def _before(end: int, dtype: np.dtype, count: int) -> NDArray:
    """An array whose last element ends at the address."""
    size = dtype.itemsize * count
    raw = (ctypes.c_uint8 * size).from_address(end - size)
    return np.ctypeslib.as_array(raw).view(dtype) if size else np.empty(0, dtype)


@pytest.mark.parametrize("dtype", _MEMORY)
def test_partial_loads_and_stores_at_the_end_of_a_page(kernels: Kernels, dtype: str, last_page: int) -> None:
    n = kernels.lanes
    elements = _stored(dtype, n)
    full = _registers(dtype, elements)
    for count in range(n + 1):
        memory = _before(last_page, elements.dtype, count)
        address = last_page - elements.itemsize * count
        memory[:] = elements[:count]
        y = np.full_like(full, 77)
        function = getattr(kernels.library, f"load_partial_{dtype}")
        function(ctypes.c_void_p(y.ctypes.data), ctypes.c_void_p(address), ctypes.c_int64(count))
        np.testing.assert_array_equal(y[:count], full[:count])
        np.testing.assert_array_equal(y[count:], np.zeros(n - count, y.dtype))
        memory[:] = 0
        function = getattr(kernels.library, f"store_partial_{dtype}")
        function(ctypes.c_void_p(address), ctypes.c_void_p(full.ctypes.data), ctypes.c_int64(count))
        np.testing.assert_array_equal(memory, elements[:count])


@pytest.mark.parametrize("dtype", _MEMORY)
def test_partial_stores_leave_the_rest(kernels: Kernels, dtype: str) -> None:
    n = kernels.lanes
    elements = _stored(dtype, n)
    for count in range(n + 1):
        y = np.full(n + 8, 9, elements.dtype)
        kernels.call(f"store_partial_{dtype}", y, _registers(dtype, elements), count)
        np.testing.assert_array_equal(y, np.concatenate([elements[:count], np.full(n + 8 - count, 9, y.dtype)]))


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        *(("f32", "u8"), ("f32", "i8"), ("f32", "i16"), ("i32", "i8"), ("i32", "u16")),
        *(("i64", "i8"), ("i64", "i32"), ("f64", "f32")),
    ],
)
def test_partial_stores_of_narrowed_elements_leave_the_rest(
    kernels: Kernels, wide: str, narrow: str, count: int
) -> None:
    """clang 22 stored all four bytes where it saw that there is one lane."""
    x = np.arange(5, 5 + kernels.lanes).astype(DTYPES[wide])
    y = np.full(kernels.lanes + 8, 9, DTYPES[narrow])
    kernels.call(f"narrowed_{wide}_{narrow}_{count}", y, x)
    np.testing.assert_array_equal(y[:count], x[:count].astype(y.dtype))
    np.testing.assert_array_equal(y[count:], 9)


@pytest.mark.parametrize("dtype", _MEMORY)
@pytest.mark.parametrize("shift", [0, 1])
def test_whole_vectors_at_any_alignment(kernels: Kernels, dtype: str, shift: int) -> None:
    n = kernels.lanes
    elements = _stored(dtype, n + 1)
    y = np.empty_like(_registers(dtype, elements[:n]))
    kernels.call(f"load_{dtype}", y, elements[shift:])
    np.testing.assert_array_equal(y, _registers(dtype, elements[shift : shift + n]))
    z = np.zeros_like(elements)
    kernels.call(f"store_{dtype}", z[shift:], y)
    np.testing.assert_array_equal(z[shift : shift + n], elements[shift : shift + n])


@pytest.mark.parametrize("dtype", _MEMORY)
@pytest.mark.parametrize("stride", [0, 1, 2, 3, 4, 7, -1, -3])
def test_strides(kernels: Kernels, dtype: str, stride: int, last_page: int) -> None:
    n = kernels.lanes
    length = 1 + (n - 1) * abs(stride)
    x = _before(last_page, _stored(dtype, 1).dtype, length)
    x[:] = _stored(dtype, length)
    first = length - 1 if stride < 0 else 0
    positions = first + stride * np.arange(n)
    expected = _registers(dtype, x[positions])
    y = np.empty_like(expected)
    kernels.call(f"load_strided_{dtype}", y, x[first:], stride)
    np.testing.assert_array_equal(y, expected)
    # Fewer lanes end earlier, so the array may begin or end earlier too.
    for count in range(n + 1):
        part = _before(last_page, x.dtype, max(1 + (count - 1) * abs(stride), 1))
        part[:] = _stored(dtype, len(part))
        start = len(part) - 1 if stride < 0 else 0
        kernels.call(f"load_strided_partial_{dtype}", y, part[start:], stride, count)
        wanted = _registers(dtype, part[start + stride * np.arange(count)])
        np.testing.assert_array_equal(y[:count], wanted)
        np.testing.assert_array_equal(y[count:], np.zeros(n - count, y.dtype))
        if stride:
            z = np.zeros(length, x.dtype)
            kernels.call(f"store_strided_partial_{dtype}", z[first:], expected, stride, count)
            filled = np.zeros_like(z)
            filled[positions[:count]] = _stored(dtype, length)[positions[:count]]
            np.testing.assert_array_equal(z, filled)
    if stride:
        z = np.zeros(length, x.dtype)
        kernels.call(f"store_strided_{dtype}", z[first:], expected, stride)
        filled = np.zeros_like(z)
        filled[positions] = _stored(dtype, length)[positions]
        np.testing.assert_array_equal(z, filled)


@pytest.mark.parametrize("dtype", _MEMORY)
@pytest.mark.parametrize("stride", [2, 3, 4, 7, -1, -3])
def test_strides_under_masks(kernels: Kernels, dtype: str, stride: int, last_page: int) -> None:
    """What is masked is not touched: the last element that is may be the last of a page."""
    n = kernels.lanes
    for seed in range(8):
        mask = np.random.default_rng(seed).integers(0, 2, n).astype(bool)
        lanes = np.flatnonzero(mask)
        first = -stride * (n - 1) if stride < 0 else 0
        positions = first + stride * np.arange(n)
        length = 1 + int(max(positions[lanes], default=0))
        x = _before(last_page, _stored(dtype, 1).dtype, length)
        x[:] = values = _stored(dtype, length)
        wanted = np.zeros_like(_registers(dtype, np.resize(values, n)))
        wanted[lanes] = _registers(dtype, values[positions[lanes]])
        start = ctypes.c_void_p(x.ctypes.data + first * x.itemsize)
        y, chosen = np.full_like(wanted, 77), mask.astype(np.uint8)
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (y, chosen)]
        step = ctypes.c_int64(stride)
        getattr(kernels.library, f"load_strided_masked_{dtype}")(pointers[0], start, step, pointers[1])
        np.testing.assert_array_equal(y, wanted)
        x[:] = 0
        getattr(kernels.library, f"store_strided_masked_{dtype}")(start, pointers[0], step, pointers[1])
        filled = np.zeros_like(values)
        filled[positions[lanes]] = values[positions[lanes]]
        np.testing.assert_array_equal(x, filled)


@pytest.mark.parametrize("dtype", sorted(dtype.short for dtype in SQUARES))
def test_square(kernels: Kernels, dtype: str, last_page: int) -> None:
    """Rows become lanes; nothing is read but the square."""
    n = kernels.lanes
    for stride in (n, n + 5, 64):
        length = (n - 1) * stride + n
        x = _before(last_page, _stored(dtype, 1).dtype, length)
        x[:] = _stored(dtype, length)
        y = np.zeros((n, n), x.dtype)
        kernels.call(f"load_square_{dtype}", y, x, stride)
        np.testing.assert_array_equal(y, [[x[lane * stride + row] for lane in range(n)] for row in range(n)])


@pytest.mark.parametrize("dtype", _MEMORY)
def test_gather(kernels: Kernels, dtype: str) -> None:
    n = kernels.lanes
    elements = _stored(dtype, 100)
    index = np.random.default_rng(1).integers(0, 100, n)
    expected = _registers(dtype, elements[index])
    y = np.empty_like(expected)
    kernels.call(f"gather_{dtype}", y, elements, index)
    np.testing.assert_array_equal(y, expected)
    wild = np.full(n, 1 << 50)
    for count in range(n + 1):
        wild[:count] = index[:count]
        kernels.call(f"gather_partial_{dtype}", y, elements, wild, count)
        np.testing.assert_array_equal(y, np.where(np.arange(n) < count, expected, 0))


@pytest.mark.parametrize("dtype", DTYPES)
def test_scatter(kernels: Kernels, dtype: str) -> None:
    n = kernels.lanes
    x = _stored(dtype, n)
    index = np.random.default_rng(2).integers(0, n, n)  # with repeats: the last one stays
    expected = np.zeros(n, x.dtype)
    for lane in range(n):
        expected[index[lane]] = x[lane]
    y = np.zeros_like(x)
    kernels.call(f"scatter_{dtype}", y, x, index)
    np.testing.assert_array_equal(y, expected)
    wild = np.full(n, 1 << 50)
    wild[:3] = [2, 0, 2]
    y = np.zeros_like(x)
    kernels.call(f"scatter_partial_{dtype}", y, x, wild, 3)
    assert y[:3].tolist() == [x[1], 0, x[2]]
    assert not y[3:].any()


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_half_precision(kernels: Kernels, dtype: str) -> None:
    n = kernels.lanes
    every = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
    with np.errstate(all="ignore"):
        wide = every.view(_HALVES[dtype]).astype(np.float32)
    y = np.empty(n, np.float32)
    for start in range(0, 1 << 16, n):
        kernels.call(f"load_{dtype}", y, every[start:])
        np.testing.assert_array_equal(y, wide[start : start + n])
    generator = np.random.default_rng(5)
    finite = np.sort(wide[np.isfinite(wide)])
    halfway = ((finite[1:].astype(np.float64) + finite[:-1]) / 2).astype(np.float32)
    random = (generator.standard_normal(4096) * 2.0 ** generator.integers(-30, 20, 4096)).astype(np.float32)
    x = np.concatenate([halfway, random, [np.inf, -np.inf, np.nan, 3e38, -3e38, 1e-45, 0.0, -0.0]]).astype(np.float32)
    x = np.concatenate([x, np.zeros(-len(x) % n, np.float32)])
    z = np.empty(len(x), np.uint16)
    for start in range(0, len(x), n):
        kernels.call(f"store_{dtype}", z[start:], x[start:])
    with np.errstate(all="ignore"):
        expected = x.astype(_HALVES[dtype])
    stored = z.view(_HALVES[dtype])
    np.testing.assert_array_equal(np.isnan(stored), np.isnan(expected))
    same = ~np.isnan(expected)
    np.testing.assert_array_equal(z[same], expected.view(np.uint16)[same])

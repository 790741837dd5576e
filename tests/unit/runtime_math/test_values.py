"""Order, selection, reduction, integers and conversions against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.unit.runtime_math.conftest import DTYPES, INTEGERS, Kernels

_COMPARISONS = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def _values(dtype: type, count: int = 403) -> NDArray:
    """Numbers of the type, its limits and zero among them; for floats, also infinities and NaN."""
    generator = np.random.default_rng(7)
    if np.issubdtype(dtype, np.floating):
        special = [0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0]
        return np.concatenate([special, generator.standard_normal(count - 7) * 100]).astype(dtype)
    limits = np.iinfo(dtype)
    special = np.array([0, 1, limits.max, limits.min, limits.max - 1, 2, 3], dtype)
    small = generator.integers(max(limits.min, -20), 20, (count - 7) // 2).astype(dtype)
    wide = generator.integers(limits.min, limits.max, count - 7 - len(small), dtype=dtype, endpoint=True)
    return np.concatenate([special, small, wide])


def _pairs(dtype: type) -> tuple[NDArray, NDArray]:
    """Every pair of the special values, and pairs of others."""
    values = _values(dtype)
    x, y = (grid.ravel() for grid in np.meshgrid(values[:60], values[:60]))
    return np.concatenate([x, values]), np.concatenate([y, np.roll(values, 5)])


@pytest.mark.parametrize("dtype", DTYPES)
def test_order(kernels: Kernels, dtype: str) -> None:
    x, y = _pairs(DTYPES[dtype])
    for name, function in _COMPARISONS.items():
        np.testing.assert_array_equal(kernels.binary(f"{name}_{dtype}", x, y, np.uint8), function(x, y), err_msg=name)
    for name, function in (("max", np.maximum), ("min", np.minimum)):
        np.testing.assert_array_equal(kernels.binary(f"{name}_{dtype}", x, y), function(x, y), err_msg=name)
        np.testing.assert_array_equal(kernels.binary(f"scalar_{name}_{dtype}", x, y), function(x, y), err_msg=name)


@pytest.mark.parametrize("dtype", DTYPES)
def test_abs_and_sign(kernels: Kernels, dtype: str) -> None:
    x = _values(DTYPES[dtype])
    np.testing.assert_array_equal(kernels.unary(f"abs_{dtype}", x), np.abs(x))
    np.testing.assert_array_equal(kernels.unary(f"sign_{dtype}", x), np.sign(x))


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_float_classes(kernels: Kernels, dtype: str) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0], DTYPES[dtype])
    y = np.empty(4, np.uint8)
    kernels.call(f"isnan_{dtype}", y, x, 4)
    assert y.tolist() == [1, 0, 0, 0]
    kernels.call(f"isinf_{dtype}", y, x, 4)
    assert y.tolist() == [0, 1, 1, 0]


@pytest.mark.parametrize("dtype", DTYPES)
def test_select_and_splat(kernels: Kernels, dtype: str) -> None:
    n = kernels.lanes
    x, y = np.arange(n).astype(DTYPES[dtype]), np.arange(n, 2 * n).astype(DTYPES[dtype])
    mask = (np.arange(n) % 3 == 0).astype(np.uint8) * 7  # any byte but 0 is true
    z = np.empty_like(x)
    kernels.call(f"select_{dtype}", z, mask, x, y)
    np.testing.assert_array_equal(z, np.where(mask, x, y))
    for value in _values(DTYPES[dtype])[:7]:
        kernels.call(f"splat_{dtype}", z, np.array([value]))
        assert z.tobytes() == np.full_like(z, value).tobytes(), "a zero must keep its sign"


@pytest.mark.parametrize("dtype", DTYPES)
def test_reductions(kernels: Kernels, dtype: str) -> None:
    generator = np.random.default_rng(3)
    for _ in range(20):
        x = generator.choice(_values(DTYPES[dtype])[5:], kernels.lanes)
        if dtype == "f32":
            x = x.astype(np.float64).round(1).astype(np.float32)
        y = np.empty(1, x.dtype)
        for kind, expected in (("min", x.min()), ("max", x.max())):
            kernels.call(f"reduce_{kind}_{dtype}", y, x)
            assert y[0] == expected
        for kind, function in (("add", np.add), ("mul", np.multiply)):
            tree = x
            while len(tree) > 1:
                half = len(tree) // 2
                with np.errstate(all="ignore"):
                    tree = function(tree[:half], tree[half:])
            kernels.call(f"reduce_{kind}_{dtype}", y, x)
            assert y[0] == tree[0], "a reduction adds the halves, then the halves of that"


@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("kind", ["min", "max"])
def test_a_nan_in_any_lane_wins_a_reduction(kernels: Kernels, dtype: str, kind: str) -> None:
    for lane in range(kernels.lanes):
        x = np.arange(kernels.lanes).astype(DTYPES[dtype])
        x[lane] = np.nan
        y = np.zeros(1, x.dtype)
        kernels.call(f"reduce_{kind}_{dtype}", y, x)
        assert np.isnan(y[0])


def test_masks(kernels: Kernels) -> None:
    n = kernels.lanes
    y = np.empty(1, np.int32)
    for bits in ({*range(n)}, set[int](), {0}, {n - 1}, {*range(1, n)}):
        x = np.array([lane in bits for lane in range(n)], np.uint8)
        kernels.call("reduce_or_b8", y, x)
        assert bool(y[0]) == x.any()
        kernels.call("reduce_and_b8", y, x)
        assert bool(y[0]) == x.all()
    for count in range(n + 1):
        mask = np.empty(n, np.uint8)
        kernels.call("first_lanes", mask, count)
        np.testing.assert_array_equal(mask, np.arange(n) < count)


def _divided(x: NDArray, y: NDArray) -> tuple[list[int], list[int]]:
    """(truncated quotients, floored quotients) in Python's integers; 0 for a zero divisor."""
    floored = [int(a) // int(b) if b else 0 for a, b in zip(x, y, strict=True)]
    cut = [q + 1 if b and q < 0 and q * int(b) != int(a) else q for q, a, b in zip(floored, x, y, strict=True)]
    return cut, floored


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_division(kernels: Kernels, dtype: str) -> None:
    x, y = _pairs(DTYPES[dtype])
    zero = y == 0
    cut, floored = _divided(x, y)

    def wrapped(numbers: list[int]) -> NDArray:
        return np.array([number % (1 << 64) for number in numbers], np.uint64).astype(x.dtype)

    def rest(quotients: list[int]) -> NDArray:
        whole = wrapped([int(a) - q * int(b) for a, q, b in zip(x, quotients, y, strict=True)])
        return np.where(zero, 0, whole).astype(x.dtype)

    np.testing.assert_array_equal(kernels.binary(f"div_{dtype}", x, y), wrapped(cut))
    np.testing.assert_array_equal(kernels.binary(f"floordiv_{dtype}", x, y), wrapped(floored))
    np.testing.assert_array_equal(kernels.binary(f"fmod_{dtype}", x, y), rest(cut))
    np.testing.assert_array_equal(kernels.binary(f"mod_{dtype}", x, y), rest(floored))
    for name, expected in (("div", wrapped(cut)), ("floordiv", wrapped(floored)), ("mod", rest(floored))):
        z, error = np.empty_like(x), np.zeros(1, np.int64)
        kernels.call(f"scalar_{name}_{dtype}", z, x, y, x.size, error)
        np.testing.assert_array_equal(z, expected, err_msg=name)
        assert error[0] > 0
        kernels.call(
            f"scalar_{name}_{dtype}", z, x[~zero], y[~zero], int((~zero).sum()), error := np.zeros(1, np.int64)
        )
        assert error[0] == 0


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_power_and_shifts(kernels: Kernels, dtype: str) -> None:
    x, y = _pairs(DTYPES[dtype])
    small = (y % 9).astype(x.dtype)
    np.testing.assert_array_equal(kernels.binary(f"pow_{dtype}", x, small), np.power(x, small))
    with np.errstate(all="ignore"):
        count = (y % 70).astype(x.dtype) & 127
    for name, function in (("shl", np.left_shift), ("shr", np.right_shift)):
        np.testing.assert_array_equal(kernels.binary(f"{name}_{dtype}", x, count), function(x, count), err_msg=name)
    if dtype.startswith("i"):
        bases = np.array([1, -1, -1, 2, -3], x.dtype)
        powers = np.array([-3, -3, -4, -1, -2], x.dtype)
        assert kernels.binary(f"pow_{dtype}", bases, powers).tolist() == [1, -1, 1, 0, 0]


@pytest.mark.parametrize("source", [*DTYPES, "b8"])
@pytest.mark.parametrize("target", [*DTYPES, "b8"])
def test_conversions(kernels: Kernels, source: str, target: str) -> None:
    x = np.array([0, 1, 5, 255], np.uint8) if source == "b8" else _values(DTYPES[source])
    if source.startswith("f") and not target.startswith("f"):
        low = -1e9 if target in ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "b8") else 0
        x = np.concatenate([x[np.isfinite(x)], [1e9, low, 0.99, 254.7]]).astype(x.dtype)
        x = x[x > -1] if target == "u64" else x
    y = np.empty(x.shape, np.uint8 if target == "b8" else DTYPES[target])
    kernels.call(f"convert_{source}_{target}", y, x, x.size)
    truth = x != 0 if "b8" in (source, target) else x
    if source.startswith("f") and target[0] in "iu":
        truth = x.astype(np.int64)  # as a C cast; then wrap
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(y, truth.astype(y.dtype))

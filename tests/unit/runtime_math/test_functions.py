"""Mathematical functions against float64: the error in units in the last place, and the special values."""

from __future__ import annotations

import math
import timeit
from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.unit.runtime_math.conftest import Kernels

_erf = np.vectorize(math.erf, otypes=[np.float64])


def _softplus(x: NDArray) -> NDArray:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _sigmoid(x: NDArray) -> NDArray:
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), np.where(np.isnan(x), x, small / (1 + small)))


def _rsqrt(x: NDArray) -> NDArray:
    return 1 / np.sqrt(x)


def _reciprocal(x: NDArray) -> NDArray:
    return 1 / x


Function = Callable[[NDArray], NDArray]

# name: (float64 reference, limit in units in the last place of float32; what is measured is about a tenth less)
_FUNCTIONS: dict[str, tuple[Function, float]] = {
    "exp": (np.exp, 1.0),
    "log": (np.log, 1.0),
    "log1p": (np.log1p, 1.6),
    "expm1": (np.expm1, 1.5),
    "tanh": (np.tanh, 5.0),
    "erf": (_erf, 2.4),
    "sigmoid": (_sigmoid, 2.5),
    "softplus": (_softplus, 2.0),
    "sqrt": (np.sqrt, 0.5001),
    "rsqrt": (_rsqrt, 1.6),
    "reciprocal": (_reciprocal, 0.5001),
    "sin": (np.sin, 1.6),
    "cos": (np.cos, 1.6),
    "tan": (np.tan, 2.0),
    "asin": (np.arcsin, 2.0),
    "acos": (np.arccos, 2.0),
    "atan": (np.arctan, 2.0),
    "sinh": (np.sinh, 3.0),
    "cosh": (np.cosh, 3.0),
    "asinh": (np.arcsinh, 3.0),
    "acosh": (np.arccosh, 3.0),
    "atanh": (np.arctanh, 3.0),
    "floor": (np.floor, 0.0),
    "ceil": (np.ceil, 0.0),
    "round": (np.rint, 0.0),
    "trunc": (np.trunc, 0.0),
}

_SPECIAL = np.array(
    [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-45, -1e-45, 1e-39, -1e-39, 3e38, -3e38, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5],
    np.float32,
)


@cache
def _sweep() -> NDArray:
    """Numbers of every exponent and sign, and dense runs where the functions have their pieces."""
    bits = np.arange(0, 1 << 32, 16411, dtype=np.uint64).astype(np.uint32)
    runs = (np.linspace(-x, x, 150001).astype(np.float32) for x in (1.2, 10, 105))
    small = np.geomspace(1e-9, 2, 50000).astype(np.float32)
    x = np.concatenate([bits.view(np.float32), *runs, small, 1 + small * np.float32(0.01), _SPECIAL])
    return x[np.isfinite(x)]


@cache
def _exact(name: str) -> NDArray:
    """The function of the sweep in float64, computed once for all builds."""
    with np.errstate(all="ignore"):
        return _FUNCTIONS[name][0](_sweep().astype(np.float64))


def _error(y: NDArray, exact: NDArray) -> NDArray:
    """|y - exact| in units in the last place of float32; infinite where only one is finite, or a NaN."""
    rounded = exact.astype(np.float32)
    unit = np.spacing(np.abs(rounded)).astype(np.float64)
    same = (y == rounded) | (np.isnan(y) & np.isnan(rounded))
    error = np.where(same & ~np.isfinite(rounded), 0.0, np.abs(y - exact) / unit)
    return np.where(np.isnan(error), np.inf, error)


@pytest.mark.parametrize("name", list(_FUNCTIONS))
def test_float32_error(kernels: Kernels, name: str) -> None:
    _, limit = _FUNCTIONS[name]
    x = _sweep()
    y = kernels.unary(f"{name}_f32", x)
    with np.errstate(all="ignore"):
        error = _error(y, _exact(name))
    worst = int(np.argmax(error))
    assert error[worst] <= limit, f"{name}({x[worst]!r}) = {y[worst]!r}: {error[worst]:.3f} units in the last place"


@pytest.mark.parametrize("name", list(_FUNCTIONS))
def test_float32_special_values(kernels: Kernels, name: str) -> None:
    function, limit = _FUNCTIONS[name]
    y = kernels.unary(f"{name}_f32", _SPECIAL)
    with np.errstate(all="ignore"):
        exact = function(_SPECIAL.astype(np.float64))
        error = _error(y, exact)
    assert error.max() <= limit, f"{_SPECIAL} gives {y}, not {exact}"
    zeros = (_SPECIAL == 0) & (exact == 0)
    np.testing.assert_array_equal(np.signbit(y[zeros]), np.signbit(exact[zeros]))


@pytest.mark.parametrize("name", list(_FUNCTIONS))
def test_float64(kernels: Kernels, name: str) -> None:
    function, _ = _FUNCTIONS[name]
    x = np.concatenate([np.linspace(-30, 30, 2001), np.linspace(-1, 1, 2001), _SPECIAL.astype(np.float64)])
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(kernels.unary(f"{name}_f64", x), function(x), rtol=1e-14)


def test_exp_of_negative_numbers_is_exp(kernels: Kernels) -> None:
    x = _sweep()
    x = x[x <= 0]
    np.testing.assert_array_equal(kernels.unary("exp_below_f32", x), kernels.unary("exp_f32", x))


def test_what_a_mask_rules_out_takes_no_longer(kernels: Kernels) -> None:
    """A product that underflows takes some processors a hundred times as long; the limit leaves room for noise."""

    def fastest(value: float) -> float:
        x = np.full(1 << 14, value, np.float32)
        return min(timeit.repeat(lambda: kernels.unary("exp_f32", x), number=1, repeat=30))

    assert all(fastest(value) < 4 * fastest(-1.0) for value in (-200.0, -1e4, -3.4e38, -np.inf))


def test_tanh_and_erf_stay_within_one(kernels: Kernels) -> None:
    x = np.concatenate([_sweep(), np.linspace(3, 10, 500001).astype(np.float32)])
    for name in ("tanh_f32", "erf_f32"):
        assert np.abs(kernels.unary(name, x)).max() == 1.0


def test_tanh_and_erf_are_one_from_where_they_round_to_it(kernels: Kernels) -> None:
    x = np.array([9.02, 9.5, 10, 100, 3e38, np.inf], np.float32)
    for name, values in (("tanh_f32", x), ("erf_f32", np.concatenate([np.array([3.93, 4, 5.5], np.float32), x]))):
        for sign in (1, -1):
            np.testing.assert_array_equal(kernels.unary(name, sign * values), np.full(values.size, sign, np.float32))


def test_rounding_is_half_to_even(kernels: Kernels) -> None:
    x = np.arange(-8, 8, 0.5, dtype=np.float32)
    np.testing.assert_array_equal(kernels.unary("round_f32", x), np.rint(x))


def test_sin_and_cos_of_large_numbers(kernels: Kernels) -> None:
    x = np.array([1e6, 1.1e6, -3e9, 1e22, 3e38, -0.0], np.float32)
    for name, function in (("sin_f32", np.sin), ("cos_f32", np.cos)):
        assert _error(kernels.unary(name, x), function(x.astype(np.float64))).max() < 1.6


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_gelu(kernels: Kernels, dtype: type) -> None:
    suffix = "f32" if dtype is np.float32 else "f64"
    x = np.linspace(-12, 12, 20001).astype(dtype)
    wide = x.astype(np.float64)
    exact = wide * 0.5 * (1 + _erf(wide / math.sqrt(2)))
    through_tanh = wide * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)))
    tolerance = 4e-7 if dtype is np.float32 else 1e-15
    np.testing.assert_allclose(kernels.unary(f"gelu_{suffix}", x), exact, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(
        kernels.unary(f"gelu_tanh_{suffix}", x), through_tanh, rtol=tolerance, atol=2 * tolerance
    )


@pytest.mark.parametrize("suffix", ["f32", "f64"])
@pytest.mark.parametrize(
    ("name", "function"), [("pow", np.power), ("atan2", np.arctan2), ("fmod", np.fmod), ("mod", np.mod)]
)
def test_two_arguments(kernels: Kernels, name: str, function: Callable[..., NDArray], suffix: str) -> None:
    dtype = np.float32 if suffix == "f32" else np.float64
    values = np.concatenate([np.linspace(-5, 5, 41), [np.inf, -np.inf, np.nan, -0.0]]).astype(dtype)
    x, y = (grid.ravel() for grid in np.meshgrid(values, values))
    with np.errstate(all="ignore"):
        exact = function(x, y)
    z = kernels.binary(f"{name}_{suffix}", x, y)
    np.testing.assert_allclose(z, exact, rtol=1e-6 if suffix == "f32" else 1e-14)
    if name in ("mod", "fmod"):
        zeros = exact == 0
        np.testing.assert_array_equal(np.signbit(z[zeros]), np.signbit(exact[zeros]))


def test_quotient_is_close_to_division(kernels: Kernels) -> None:
    generator = np.random.default_rng(0)
    x = generator.standard_normal(100000).astype(np.float32)
    y = np.exp2(generator.uniform(-99, 99, 100000)).astype(np.float32)
    exact = x.astype(np.float64) / y.astype(np.float64)
    normal = (np.abs(exact) > 1e-37) & (np.abs(exact) < 1e38)
    assert _error(kernels.binary("quotient_f32", x, y)[normal], exact[normal]).max() < 1.0


@pytest.mark.parametrize("divisor", [6.0, 3.0, 1.4142135, -2.3, 1e-7, 7e8, 1e18])
def test_division_by_a_constant_rounds_like_division(kernels: Kernels, divisor: float) -> None:
    generator = np.random.default_rng(0)
    magnitudes = np.exp2(generator.uniform(-40, 40, 200_000))
    x = np.concatenate([generator.standard_normal(200_000) * magnitudes, [np.inf, -np.inf, np.nan, 0.0, -0.0]])
    x = x.astype(np.float32)
    divisors = np.full_like(x, divisor)
    np.testing.assert_array_equal(kernels.binary("div_by_f32", x, divisors), x / divisors)

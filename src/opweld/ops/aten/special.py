"""Special functions, in float64 whatever the type of the element is: rounded once, at the end.

Coefficients of Chebyshev series are computed here, from integrals whose sums converge as fast as the series."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Any, TypeAlias

import numpy as np
from numpy.polynomial import chebyshev

from opweld.ops.arithmetic import add, div, mul, sub, where
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, binary, cast, const, unary

Array: TypeAlias = "np.ndarray[Any, np.dtype[np.float64]]"

_LANCZOS_SHIFT = 7.0
_LANCZOS = (
    0.99999999999980993,
    676.5203681218851,
    -1259.1392167224028,
    771.32342877765313,
    -176.61502916214059,
    12.507343278686905,
    -0.13857109526572012,
    9.9843695780195716e-6,
    1.5056327351493116e-7,
)
"""Coefficients of Lanczos' series of the gamma function for a shift of 7, by P. Godfrey (2001)."""

_BERNOULLI = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132)
"""-B(2k) / 2k with alternating signs: the asymptotic series of the digamma function in 1 / x**2."""


def _number(value: float) -> Expr:
    return const(value, DType.F64)


def _less(x: Expr, value: float) -> Expr:
    return binary("lt", x, _number(value))


def _polynomial(x: Expr, coefficients: Sequence[float]) -> Expr:
    """Horner's rule; the coefficient of the highest power is the last one."""
    total = _number(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = add(mul(total, x), coefficient)
    return total


def _series(x: Expr, coefficients: Sequence[float]) -> Expr:
    """A Chebyshev series for x between -1 and 1, by Clenshaw's recurrence."""
    before, last, twice = _number(0), _number(0), mul(x, 2)
    for coefficient in reversed(coefficients[1:]):
        before, last = last, add(sub(mul(twice, last), before), coefficient)
    return add(sub(mul(x, last), before), coefficients[0])


def _fitted(function: Callable[[Array], Array], degree: int) -> tuple[float, ...]:
    """The coefficients of the series that meets a function at Chebyshev's points."""
    points = chebyshev.chebpts1(degree + 1)
    return tuple(map(float, chebyshev.chebfit(points, function(points), degree)))


def _from_whole(x: Expr) -> Expr:
    """The difference to the nearest integer."""
    return sub(x, unary("round", x))


def lgamma(x: Expr) -> Expr:
    """log |gamma(x)|"""
    small = _less(x, 0.5)
    z = sub(where(small, sub(1, x), x), 1)
    total = _number(_LANCZOS[0])
    for place, coefficient in enumerate(_LANCZOS[1:], 1):
        total = add(total, div(_number(coefficient), add(z, place)))
    t = add(z, _LANCZOS_SHIFT + 0.5)
    # (z + 1/2) log t - t, of which both terms are infinite where x is.
    power = sub(mul(add(z, 0.5), sub(unary("log", t), 1)), _LANCZOS_SHIFT)
    large = add(add(power, unary("log", total)), 0.5 * math.log(2 * math.pi))
    sine = unary("abs", unary("sin", mul(_from_whole(x), math.pi)))
    found = where(small, sub(sub(math.log(math.pi), unary("log", sine)), large), large)
    infinite = binary("eq", unary("abs", x), _number(math.inf))
    return where(infinite, _number(math.inf), found)


def digamma(x: Expr) -> Expr:
    """The derivative of log gamma(x); NaN at the negative integers."""
    small = _less(x, 0.5)
    z = where(small, sub(1, x), x)
    total = _number(0)
    for place in range(10):
        total = add(total, div(_number(1), add(z, place)))
    y = add(z, 10)
    square = div(_number(1), mul(y, y))
    tail = mul(_polynomial(square, _BERNOULLI), square)
    large = sub(sub(sub(unary("log", y), div(_number(0.5), y)), tail), total)
    place = _from_whole(x)
    found = where(small, sub(large, div(_number(math.pi), unary("tan", mul(place, math.pi)))), large)
    whole = binary("and", binary("eq", place, _number(0)), small)
    return where(whole, where(binary("eq", x, _number(0)), div(_number(-1), x), _number(math.nan)), found)


def zeta(x: Expr, q: Expr) -> Expr:
    """Hurwitz' zeta function, the sum of (q + k)**-x over k from 0; NaN where x is below 1, or q is negative and x no
    integer."""
    part = sub(q, unary("floor", q))
    far, near = _zeta_of_positive(x, sub(1, q)), _zeta_of_positive(x, sub(1, part))
    odd = binary("ne", _from_whole(mul(x, 0.5)), _number(0))
    between = where(odd, sub(far, near), sub(near, far))
    # Terms of a negative base are those of its size, with the sign that x gives: all between q and 0.
    below = add(_zeta_of_positive(x, where(binary("eq", part, _number(0)), _number(1), part)), between)
    below = where(binary("eq", _from_whole(x), _number(0)), below, _number(math.nan))
    below = where(binary("eq", part, _number(0)), _number(math.inf), below)
    found = where(binary("gt", q, _number(0)), _zeta_of_positive(x, q), below)
    return where(_less(x, 1), _number(math.nan), where(binary("eq", x, _number(1)), _number(math.inf), found))


def _zeta_of_positive(x: Expr, q: Expr) -> Expr:
    """The same for x > 1 and q > 0: ten terms, and the rest by Euler and Maclaurin's formula."""
    exponent = mul(x, -1)
    total = _number(0)
    for place in range(10):
        total = add(total, binary("pow", add(q, place), exponent))
    end = add(q, 10)
    power = binary("pow", end, exponent)
    total = add(total, mul(power, add(div(end, sub(x, 1)), 0.5)))
    factor = div(x, end)
    square = div(_number(1), mul(end, end))
    for place, coefficient in enumerate(_EULER_MACLAURIN):
        total = add(total, mul(mul(power, factor), coefficient))
        raised = mul(add(x, 2 * place + 1), add(x, 2 * place + 2))
        factor = mul(mul(factor, raised), square)
    return total


_EULER_MACLAURIN = (1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000)
"""B(2k) / (2k)!, of Bernoulli's numbers."""


def spherical_bessel_j0(x: Expr) -> Expr:
    """sin(x) / x"""
    small = binary("eq", x, _number(0))
    found = div(unary("sin", x), where(small, _number(1), x))
    infinite = binary("eq", unary("abs", x), _number(math.inf))
    return where(infinite, _number(0), where(small, _number(1), found))


def erfinv(x: Expr) -> Expr:
    """The inverse of erf: M. Giles' approximation (2010), and two steps of Newton's method."""
    w = sub(0, unary("log", mul(sub(1, x), add(1, x))))
    near = _polynomial(sub(w, 2.5), _GILES_NEAR)
    far = _polynomial(sub(unary("sqrt", w), 3), _GILES_FAR)
    y = mul(where(_less(w, 5), near, far), x)
    for _ in range(2):
        slope = mul(unary("exp", mul(mul(y, y), -1)), 2 / math.sqrt(math.pi))
        y = sub(y, div(sub(unary("erf", y), x), slope))
    end = binary("eq", unary("abs", x), _number(1))
    return where(end, mul(x, math.inf), y)


_GILES_NEAR = (
    1.50140941,
    0.246640727,
    -0.00417768164,
    -0.00125372503,
    0.000218580870,
    -4.39150654e-6,
    -3.52338770e-6,
    3.43273939e-7,
    2.81022636e-8,
)
_GILES_FAR = (
    2.83297682,
    1.00167406,
    0.00943887047,
    -0.00762246130,
    0.00573950773,
    -0.00367342844,
    0.00134934322,
    0.000100950558,
    -0.000200214257,
)


def ndtri(p: Expr) -> Expr:
    """Where the normal distribution's integral is p."""
    return mul(erfinv(sub(mul(p, 2), 1)), math.sqrt(2))


@cache
def _erfcx_coefficients() -> tuple[float, ...]:
    gauss: tuple[Array, Array] = np.polynomial.legendre.leggauss(120)
    u, weights = (gauss[0] + 1) * 10, gauss[1] * 10  # the integrand is below exp(-40) beyond 20

    def scaled(t: Array) -> Array:
        """1 + 2 x times the function: 2 / sqrt(pi) times the integral of exp(-v**2 - 2 v x), by u = v max(x, 1)."""
        x = _ERFCX_MIDDLE * (1 + t) / (1 - t)
        shrunk = np.maximum(x, 1)[:, None]
        values: Array = np.exp(-((u / shrunk) ** 2) - 2 * u * (x[:, None] / shrunk)) / shrunk
        return (values * weights).sum(axis=1) * (1 + 2 * x) * (2 / math.sqrt(math.pi))

    return _fitted(scaled, 40)


_ERFCX_MIDDLE = 2.0
"""The x at the middle of the series."""


def _erfcx_of_size(x: Expr) -> Expr:
    """exp(x**2) erfc(|x|)"""
    y = unary("abs", x)
    t = div(sub(y, _ERFCX_MIDDLE), add(y, _ERFCX_MIDDLE))
    t = where(binary("eq", y, _number(math.inf)), _number(1), t)
    return div(_series(t, _erfcx_coefficients()), add(1, mul(y, 2)))


def erfcx(x: Expr) -> Expr:
    """exp(x**2) erfc(x)"""
    right = _erfcx_of_size(x)
    return where(_less(x, 0), sub(mul(unary("exp", mul(x, x)), 2), right), right)


def erfc(x: Expr) -> Expr:
    """1 - erf(x), which for a large x is no difference."""
    far = mul(_erfcx_of_size(x), unary("exp", mul(mul(x, x), -1)))
    return where(_less(x, 1), sub(1, unary("erf", x)), far)


_BESSEL_MIDDLE = 8.0
"""Where the series of the modified Bessel functions in x ends, and that in 1 / x begins."""


@cache
def _bessel_coefficients(order: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    angles = (np.arange(400) + 0.5) * np.pi / 400

    def scaled(x: Array) -> Array:
        """exp(-x) times the function: the mean of exp(x (cos - 1)) cos(order angle) over half a circle."""
        return (np.exp(x[:, None] * (np.cos(angles) - 1)) * np.cos(order * angles)).mean(axis=1)

    def asymptotic(x: Array) -> Array:
        """The same times the root of x, for a large x."""
        total, term = np.ones_like(x), np.ones_like(x)
        for k in range(1, 12):
            term = -term * (4 * order**2 - (2 * k - 1) ** 2) / (8 * k * x)
            total = total + term
        return total / np.sqrt(2 * np.pi)

    def far(t: Array) -> Array:
        x = 2 * _BESSEL_MIDDLE / (t + 1)
        return np.where(x > 60, asymptotic(x), scaled(np.minimum(x, 60)) * np.sqrt(x))

    def near(t: Array) -> Array:
        x = (t + 1) * _BESSEL_MIDDLE / 2
        return scaled(x) / (x if order else 1)

    return _fitted(near, 30), _fitted(far, 20)


def _bessel(x: Expr, order: int) -> Expr:
    """exp(-|x|) I(x) of order 0 or 1."""
    near, far = _bessel_coefficients(order)
    y = unary("abs", x)
    first = _series(sub(mul(y, 2 / _BESSEL_MIDDLE), 1), near)
    if order:
        first = mul(first, y)
    second = div(_series(sub(div(_number(2 * _BESSEL_MIDDLE), y), 1), far), unary("sqrt", y))
    found = where(_less(y, _BESSEL_MIDDLE), first, second)
    return where(_less(x, 0), mul(found, -1), found) if order else found


def _unscaled(x: Expr, order: int) -> Expr:
    return mul(_bessel(x, order), unary("exp", unary("abs", x)))


def _in_float64(function: Callable[[Expr], Expr]) -> Callable[[Expr], Expr]:
    return lambda x: cast(function(cast(x, DType.F64)), x.dtype)


SPECIAL: Mapping[str, Callable[[Expr], Expr]] = {
    name: _in_float64(function)
    for name, function in {
        "Digamma": digamma,
        "Erfc": erfc,
        "Erfcx": erfcx,
        "Erfinv": erfinv,
        "BesselI0": partial(_unscaled, order=0),
        "BesselI0e": partial(_bessel, order=0),
        "BesselI1": partial(_unscaled, order=1),
        "BesselI1e": partial(_bessel, order=1),
        "Lgamma": lgamma,
        "Ndtri": ndtri,
        "SphericalBesselJ0": spherical_bessel_j0,
    }.items()
}
"""Functions of a float."""

SPECIAL_PAIRS: Mapping[str, Callable[[Expr, Expr], Expr]] = {
    "Zeta": lambda x, q: cast(zeta(cast(x, DType.F64), cast(q, DType.F64)), x.dtype)
}
"""Functions of two floats."""

"""The scalar operators: their semantics on NumPy arrays, whether they are expensive, and the identities of reductions.

This is the only list of them. Expressions are built from these names, `semantics.py` applies them, `cost.py` counts
them, and recomputation of values depends on `is_expensive`.

The functions take operands of one dtype, float16 and bfloat16 widened to float32, under `np.errstate(all="ignore")`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from opweld.tensor.dtype import DType

Array: TypeAlias = "np.ndarray[Any, Any]"


@dataclass(frozen=True)
class Operator:
    """A scalar operator.

    `meaning`: the function on one or two arrays.
    `expensive`: one evaluation costs more than a load: divisions, roots and transcendental functions.
    `is_test`: the result is BOOL, for any operands.
    `result`: its dtype, where it is neither that of the operands nor BOOL.
    """

    meaning: Callable[..., Any]
    expensive: bool = False
    is_test: bool = False
    result: DType | None = None


@dataclass(frozen=True)
class Reduction:
    """A reduction: `neutral` is its identity, where an infinity stands for the bound of the dtype's range.

    `position`: the result is the int64 position of the extreme, not its value."""

    neutral: float
    position: bool = False


def _sigmoid(x: Array) -> Array:
    # exp of a negative number only, so that neither side overflows
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), np.where(np.isnan(x), x, small / (1 + small)))


def _rsqrt(x: Array) -> Array:
    return 1 / np.sqrt(x)


def _reciprocal(x: Array) -> Array:
    return 1 / x


def _softplus(x: Array) -> Array:
    return np.logaddexp(np.zeros((), x.dtype), x)


_scalar_erf = np.frompyfunc(math.erf, 1, 1)


def _erf(x: Array) -> Array:
    return np.asarray(_scalar_erf(x.astype(np.float64)), np.float64)


def _is_integer(x: Array) -> bool:
    return x.dtype.kind in "iub"


def _whole(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """A rounding function, which is the identity on integers."""
    return lambda x: x if _is_integer(x) else function(x)


def _divide(x: Array, y: Array) -> Array:
    if not _is_integer(x):
        return x / y
    divisor = np.where(y == 0, np.ones((), y.dtype), y)
    quotient = x // divisor
    inexact = (quotient * divisor != x) & ((x < 0) != (divisor < 0))
    return quotient + inexact.astype(x.dtype)


def _power(x: Array, y: Array) -> Array:
    if not _is_integer(x):
        # NumPy takes the square root for the exponent 0.5, which C's pow does not: pow(-inf, 0.5) is inf, pow(-0.0,
        # 0.5) is 0.0
        odd = (y == 0.5) & ((x == 0) | (x == -np.inf))
        return np.where(odd, np.abs(x), np.power(x, y)) if np.any(odd) else np.power(x, y)
    negative = y < 0
    if not np.any(negative):
        return np.power(x, y)
    result = np.power(x, np.where(negative, np.zeros((), y.dtype), y))
    # 1 / x ** -y truncates to zero unless x is 1 or -1
    units = np.where(x == 1, x, np.where(x == -1, np.where(y % 2 == 0, -x, x), np.zeros((), x.dtype)))
    return np.where(negative, units, result)


def _remainder(function: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    def remainder(x: Array, y: Array) -> Array:
        return function(x, np.where(y == 0, np.ones((), y.dtype), y) if _is_integer(x) else y)

    return remainder


def _dot4(x: Array, y: Array) -> Array:
    unsigned = np.ascontiguousarray(x).view(np.uint8).reshape(*x.shape, 4).astype(np.int32)
    signed = np.ascontiguousarray(y).view(np.int8).reshape(*y.shape, 4).astype(np.int32)
    return np.asarray((unsigned * signed).sum(-1, dtype=np.int32))


def _dot2(x: Array, y: Array) -> Array:
    a, b = (np.ascontiguousarray(z).view(DType.BF16.numpy).reshape(*z.shape, 2).astype(np.float32) for z in (x, y))
    return np.asarray((a * b).sum(-1, dtype=np.float32))


def _dot2i(x: Array, y: Array) -> Array:
    a, b = (np.ascontiguousarray(z).view(np.int16).reshape(*z.shape, 2).astype(np.int32) for z in (x, y))
    return np.asarray((a * b).sum(-1, dtype=np.int32))


def _cheap(meaning: Callable[..., Any]) -> Operator:
    return Operator(meaning)


def _expensive(meaning: Callable[..., Any]) -> Operator:
    return Operator(meaning, expensive=True)


def _test(meaning: Callable[..., Any]) -> Operator:
    return Operator(meaning, is_test=True)


UNARY: Mapping[str, Operator] = {
    "neg": _cheap(np.negative),
    "abs": _cheap(np.abs),
    "exp": _expensive(np.exp),
    "log": _expensive(np.log),
    "log1p": _expensive(np.log1p),
    "sqrt": _expensive(np.sqrt),
    "rsqrt": _expensive(_rsqrt),
    "reciprocal": _expensive(_reciprocal),
    "tanh": _expensive(np.tanh),
    "sigmoid": _expensive(_sigmoid),
    "erf": _expensive(_erf),
    "sin": _expensive(np.sin),
    "cos": _expensive(np.cos),
    "tan": _expensive(np.tan),
    "asin": _expensive(np.arcsin),
    "acos": _expensive(np.arccos),
    "atan": _expensive(np.arctan),
    "sinh": _expensive(np.sinh),
    "cosh": _expensive(np.cosh),
    "asinh": _expensive(np.arcsinh),
    "acosh": _expensive(np.arccosh),
    "atanh": _expensive(np.arctanh),
    "floor": _cheap(_whole(np.floor)),
    "ceil": _cheap(_whole(np.ceil)),
    "round": _cheap(_whole(np.rint)),
    "sign": _cheap(np.sign),
    "not": _cheap(np.logical_not),
    "isnan": _test(np.isnan),
    "isinf": _test(np.isinf),
    "bitnot": _cheap(np.invert),
    "softplus": _expensive(_softplus),
}
"""Unary operators. `round` is half to even, `sign` of NaN is NaN, `sigmoid` and `softplus` do not overflow."""

WORD_BYTES = 4

WORDS: Mapping[str, int] = {"dot4": 4, "dot4s": 4, "dot2": 2, "dot2i": 2}
"""Elements of a word of 32 bits of each operator on words: the products that it sums."""

BINARY: Mapping[str, Operator] = {
    "add": _cheap(np.add),
    "sub": _cheap(np.subtract),
    "mul": _cheap(np.multiply),
    "div": _expensive(_divide),
    "pow": _expensive(_power),
    "min": _cheap(np.minimum),
    "max": _cheap(np.maximum),
    "mod": _expensive(_remainder(np.mod)),
    "fmod": _expensive(_remainder(np.fmod)),
    "and": _cheap(np.logical_and),
    "or": _cheap(np.logical_or),
    "xor": _cheap(np.logical_xor),
    "eq": _test(np.equal),
    "ne": _test(np.not_equal),
    "lt": _test(np.less),
    "le": _test(np.less_equal),
    "gt": _test(np.greater),
    "ge": _test(np.greater_equal),
    "bitand": _cheap(np.bitwise_and),
    "bitor": _cheap(np.bitwise_or),
    "bitxor": _cheap(np.bitwise_xor),
    "shl": _cheap(np.left_shift),
    "shr": _cheap(np.right_shift),
    "atan2": _expensive(np.arctan2),
    "dot4": _cheap(_dot4),
    "dot4s": _cheap(_dot4),
    "dot2": Operator(_dot2, result=DType.F32),
    "dot2i": _cheap(_dot2i),
}
"""Binary operators. Both operands have one dtype. Integer `div` truncates, `mod` has the sign of the divisor, `fmod`
that of the dividend; integer division by zero is an error at run time. `min` and `max` propagate NaN. Comparisons give
BOOL. Operators on words are of two int32: `dot4` sums the four bytes of x as unsigned times those of y as signed
integers, `dot4s` the same where the first two products, and the last two, are known to sum to 16 bits; `dot2` the two
bfloat16 of x times those of y, in float32 that is rounded after each step; `dot2i` the two signed integers of 16 bits
of x times those of y."""

REDUCTIONS: Mapping[str, Reduction] = {
    "sum": Reduction(0),
    "prod": Reduction(1),
    "max": Reduction(-math.inf),
    "min": Reduction(math.inf),
    "argmax": Reduction(-math.inf, position=True),
    "argmin": Reduction(math.inf, position=True),
    "argmax_last": Reduction(-math.inf, position=True),
    "argmin_last": Reduction(math.inf, position=True),
    "any": Reduction(0),
    "all": Reduction(1),
}
"""Reductions. The arg kinds give the int64 flat position, in order of the axes, of the first (or last) extreme."""


def is_expensive(op: str) -> bool:
    """Whether one evaluation of a unary or binary operator costs more than a load."""
    found = UNARY.get(op) or BINARY[op]
    return found.expensive


def neutral(kind: str, dtype: DType) -> float | int | bool:
    """The identity of a reduction in the dtype; for an arg kind, that of its extreme."""
    value = REDUCTIONS[kind].neutral
    if dtype is DType.BOOL:
        return value > 0
    if dtype.is_float:
        return float(value)
    if math.isfinite(value):
        return int(value)
    low, high = dtype.limits
    return low if value < 0 else high

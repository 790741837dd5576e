"""What every scalar operator means, on NumPy arrays; the interpreter and constant folding share this definition.

float16 and bfloat16 are computed in float32 and rounded after each operator; their sums are rounded once, at the end.
Callers run these under `np.errstate(all="ignore")`: NaN, infinities and wrapping integers are values, not warnings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np

from opweld.tensor.expr import NEUTRAL

Array: TypeAlias = "np.ndarray[Any, Any]"

_NARROW = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))


def is_floating(dtype: np.dtype[Any]) -> bool:
    """Whether a NumPy dtype is floating-point, bfloat16 included."""
    return dtype.kind == "f" or dtype == _NARROW[1]


def _widened(x: Array) -> Array:
    return x.astype(np.float32) if x.dtype in _NARROW else x


def _sigmoid(x: Array) -> Array:
    # exp of a negative number only, so that neither side overflows
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1 / (1 + small), np.where(np.isnan(x), x, small / (1 + small)))


_scalar_erf = np.frompyfunc(math.erf, 1, 1)


def _erf(x: Array) -> Array:
    return np.asarray(_scalar_erf(x.astype(np.float64)), np.float64)


def _whole(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """A rounding function, which leaves integers as they are."""
    return lambda x: function(x) if is_floating(x.dtype) else x


_UNARY: Mapping[str, Callable[[Array], Array]] = {
    "neg": np.negative,
    "abs": np.abs,
    "exp": np.exp,
    "log": np.log,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "tanh": np.tanh,
    "sigmoid": _sigmoid,
    "erf": _erf,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "floor": _whole(np.floor),
    "ceil": _whole(np.ceil),
    "round": _whole(np.rint),
    "sign": np.sign,
    "not": np.logical_not,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "bitnot": np.invert,
    "softplus": lambda x: np.logaddexp(np.zeros((), x.dtype), x),
}


def apply_unary(op: str, x: Array) -> Array:
    """The unary operator on every element; the result has the dtype of x, or bool for `isnan` and `isinf`."""
    y = np.asarray(_UNARY[op](_widened(x)))
    return y if y.dtype == bool else y.astype(x.dtype, copy=False)


def _divide(x: Array, y: Array) -> Array:
    if is_floating(x.dtype):
        return x / y
    divisor = np.where(y == 0, np.ones((), y.dtype), y)
    quotient = x // divisor
    inexact = (quotient * divisor != x) & ((x < 0) != (divisor < 0))
    return quotient + inexact.astype(x.dtype)


def _power(x: Array, y: Array) -> Array:
    if is_floating(x.dtype):
        # NumPy takes the square root for the exponent 0.5, which C's pow does not: of -inf it is inf, of -0.0 0.0
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
        if is_floating(x.dtype):
            return function(x, y)
        return function(x, np.where(y == 0, np.ones((), y.dtype), y))

    return remainder


_BINARY: Mapping[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": _divide,
    "pow": _power,
    "min": np.minimum,
    "max": np.maximum,
    "mod": _remainder(np.mod),
    "fmod": _remainder(np.fmod),
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "bitand": np.bitwise_and,
    "bitor": np.bitwise_or,
    "bitxor": np.bitwise_xor,
    "shl": np.left_shift,
    "shr": np.right_shift,
    "atan2": np.arctan2,
}


def apply_binary(op: str, x: Array, y: Array) -> Array:
    """The binary operator on every pair of elements; where `fails_on_zero`, a zero divisor gives any value."""
    z = np.asarray(_BINARY[op](_widened(x), _widened(y)))
    return z if z.dtype == bool else z.astype(x.dtype, copy=False)


def fails_on_zero(op: str, dtype: np.dtype[Any]) -> bool:
    """Whether a zero second operand is an error at run time."""
    return op in ("div", "mod", "fmod") and not is_floating(dtype)


def apply_cast(x: Array, dtype: np.dtype[Any]) -> Array:
    """Conversion of every element: floats truncate to integers, which wrap when they narrow; non-zero is true."""
    if dtype.kind == "b":
        return np.asarray(x != 0)
    # NumPy has no direct path from bfloat16 to some integers
    return _widened(x).astype(dtype, copy=False) if x.dtype != dtype else x


def neutral(kind: str, dtype: np.dtype[Any]) -> Any:
    """What a reduction over nothing gives, in the dtype."""
    value = NEUTRAL[kind]
    if dtype.kind == "b":
        return dtype.type(value > 0)
    if is_floating(dtype) or math.isfinite(value):
        return dtype.type(value)
    limits = np.iinfo(dtype)
    return dtype.type(limits.min if value < 0 else limits.max)


def apply_reduce(kind: str, x: Array) -> Array:
    """The reduction of the last dimension; int64 positions for the arg kinds (0 of an empty one)."""
    if kind.startswith("arg"):
        return _extreme_position(kind, x)
    if x.shape[-1] == 0:
        return np.full(x.shape[:-1], neutral(kind, x.dtype), x.dtype)
    if kind in ("any", "all"):
        return np.asarray(x.any(-1) if kind == "any" else x.all(-1))
    wide = _widened(x)
    if kind in ("sum", "prod"):
        total = wide.sum(-1, dtype=wide.dtype) if kind == "sum" else wide.prod(-1, dtype=wide.dtype)
    else:
        total = wide.max(-1) if kind == "max" else wide.min(-1)
    return np.asarray(total).astype(x.dtype, copy=False)


def _extreme_position(kind: str, x: Array) -> Array:
    length = x.shape[-1]
    if length == 0:
        return np.zeros(x.shape[:-1], np.int64)
    wide = _widened(x)
    find = np.argmax if kind.startswith("argmax") else np.argmin
    if kind.endswith("_last"):
        return np.asarray(length - 1 - find(wide[..., ::-1], -1), np.int64)
    return np.asarray(find(wide, -1), np.int64)


def apply_contraction(a_BMK: Array, b_BKN: Array) -> Array:
    """Sums of products, [B, M, K] and [B, K, N] to [B, M, N], in the operands' dtype."""
    dtype = a_BMK.dtype
    # views with other strides would keep np.matmul from the BLAS: ten times slower than copying them
    a, b = np.ascontiguousarray(_widened(a_BMK)), np.ascontiguousarray(_widened(b_BKN))
    if a.shape[1] == 1 and b.shape[2] == 1:
        return np.einsum("bk,bk->b", a[:, 0, :], b[:, :, 0])[:, None, None].astype(dtype, copy=False)
    return np.matmul(a, b).astype(dtype, copy=False)

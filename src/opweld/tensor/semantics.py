"""Scalar operators applied to NumPy arrays, for the interpreter and for constant folding. `operators.py` lists them.

float16 and bfloat16 are computed in float32 and rounded after each operator; their sums are rounded once, at the end.
Storage-only types are converted by ml_dtypes: casts round to nearest even, floats beyond the range become the type's
infinity, NaN or, if it has neither, its extreme; integers wrap. Callers run these under `np.errstate(all="ignore")`:
NaN, infinities and wrapping integers are values, not warnings.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from opweld.tensor import operators
from opweld.tensor.dtype import DType
from opweld.tensor.operators import BINARY, REDUCTIONS, UNARY, Array

_FLOATS = frozenset(dtype.numpy for dtype in DType if dtype.is_float and not dtype.is_storage_only)
_WIDER = {dtype.numpy: dtype.computed.numpy for dtype in DType if dtype.computed is not dtype}
_BY_FLOAT32 = frozenset(numpy for numpy, wider in _WIDER.items() if wider == np.float32 and numpy != np.float16)
"""Float types to which ml_dtypes converts float64 through float32."""
_SMALL_INTEGERS = frozenset(dtype.numpy for dtype in DType if dtype.is_integer and dtype.is_storage_only)


def is_floating(dtype: np.dtype[Any]) -> bool:
    """Whether a NumPy dtype is one of the floats that operators compute with, including bfloat16, but not storage-only
    ones."""
    return dtype in _FLOATS


def _widened(x: Array) -> Array:
    wider = _WIDER.get(x.dtype)
    return x if wider is None else x.astype(wider)


def apply_unary(op: str, x: Array) -> Array:
    """The unary operator on every element; the result has the dtype of x, or bool for `isnan` and `isinf`."""
    y = np.asarray(UNARY[op].meaning(_widened(x)))
    return y if y.dtype == bool else y.astype(x.dtype, copy=False)


def apply_binary(op: str, x: Array, y: Array) -> Array:
    """The binary operator on every pair of elements; if `fails_on_zero`, the result for a zero divisor is undefined."""
    z = np.asarray(BINARY[op].meaning(_widened(x), _widened(y)))
    return z if z.dtype == bool or BINARY[op].result is not None else z.astype(x.dtype, copy=False)


def fails_on_zero(op: str, dtype: np.dtype[Any]) -> bool:
    """Whether a zero second operand is an error at run time."""
    return op in ("div", "mod", "fmod") and not is_floating(dtype)


def apply_cast(x: Array, dtype: np.dtype[Any]) -> Array:
    """Conversion of every element: floats truncate to integers, which wrap when they narrow; non-zero is true."""
    if dtype.kind == "b":
        return np.asarray(x != 0)
    if x.dtype == dtype:
        return x
    # NumPy has no direct path from bfloat16 to some integers
    wide = _widened(x)
    if dtype in _SMALL_INTEGERS:
        wide = wide.astype(np.int64)
    elif dtype in _BY_FLOAT32 and wide.dtype == np.float64:
        wide = _rounded_to_odd(wide)
    return wide.astype(dtype, copy=False)


def _rounded_to_odd(x: Array) -> Array:
    """float32 of float64, rounded to odd: towards zero, with the last bit set where inexact. Rounding that once more
    equals rounding x once."""
    nearest = np.asarray(x, np.float32)
    outward = np.abs(nearest.astype(np.float64)) > np.abs(x)
    inexact = nearest.astype(np.float64) != x
    return ((nearest.view(np.int32) - outward) | inexact).astype(np.int32).view(np.float32)


def apply_bitcast(x: Array, source: DType, target: DType) -> Array:
    """The bits of every element as one of the target; floats of x are first rounded to the source."""
    return np.asarray(x.astype(source.numpy, copy=False)).view(target.numpy)


def apply_lookup(table: bytes, x: Array) -> Array:
    """The element of a table of bytes at each element of x."""
    return np.frombuffer(table, np.uint8)[np.asarray(x).astype(np.uint8, copy=False)].astype(x.dtype, copy=False)


def neutral(kind: str, dtype: np.dtype[Any]) -> Any:
    """The result of a reduction of zero elements, in the dtype."""
    return dtype.type(operators.neutral(kind, DType.of_numpy(dtype)))


def apply_reduce(kind: str, x: Array) -> Array:
    """The reduction of the last dimension; int64 positions for the arg kinds (0 of an empty one)."""
    if REDUCTIONS[kind].position:
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
    # views with other strides keep np.matmul from using BLAS, which is ten times slower than copying
    a, b = np.ascontiguousarray(_widened(a_BMK)), np.ascontiguousarray(_widened(b_BKN))
    if a.shape[1] == 1 and b.shape[2] == 1:
        return np.einsum("bk,bk->b", a[:, 0, :], b[:, :, 0])[:, None, None].astype(dtype, copy=False)
    return np.matmul(a, b).astype(dtype, copy=False)

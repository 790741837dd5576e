"""Clamps of rounded numbers, and rounded numbers as integers: what quantizing ends in.

    min(max(round(x / s) + z, low), high)  =  round(min(max(x, (low - z) * s), (high - z) * s) / s) + z
    u8(round(x) + z)                       =  u8(i32(round(x)) + z)

What is clamped first is bounded in all that follows: clamps before it join these, and rounding it to an integer
is one instruction. Rounding is monotonic and leaves whole numbers alone, so that either side has the same value, of
infinities and NaN too (but for NaN as an integer, of which nobody says what it is).
"""

from __future__ import annotations

import math

import numpy as np

from opweld.tensor.dtype import DType
from opweld.tensor.expr import Binary, Cast, Const, Expr, Unary, binary, cast, const, unary
from opweld.tensor.range import bounds
from opweld.tensor.semantics import apply_binary, apply_unary

_WHOLE = {DType.F32: 2**22, DType.F64: 2**30}
"""Magnitudes up to which sums of whole numbers are exact in a type, and in int32."""
_INTEGERS = (DType.I32, DType.I16, DType.U16, DType.I8, DType.U8)


def clamped_first(node: Binary) -> Expr | None:
    """A minimum or maximum of a rounded number and a whole one, with the clamp before the rounding."""
    x, bound = node.x, node.y
    if not isinstance(bound, Const) or node.dtype not in _WHOLE or not _is_whole(bound.value, node.dtype):
        return None
    rounded, zero = _shifted(x)
    if rounded is None:
        return None
    found = unary("round", _clamped(node.op, rounded.x, bound.value - zero, node.dtype))
    return found if x is rounded else binary("add", found, const(zero, node.dtype))


def as_integer(node: Cast) -> Expr | None:
    """A rounded, bounded number plus a whole one as an integer: the sum of two integers."""
    if node.dtype not in _INTEGERS or node.x.dtype not in _WHOLE or isinstance(node.x, Unary):
        return None
    rounded, zero = _shifted(node.x)
    if rounded is None:
        return None
    low, high = bounds(rounded.x)
    if max(-low, high) > _WHOLE[node.x.dtype]:
        return None
    if zero == 0:
        return cast(rounded, node.dtype)
    return cast(binary("add", cast(rounded, DType.I32), const(int(zero), DType.I32)), node.dtype)


def _shifted(x: Expr) -> tuple[Unary | None, float]:
    """(round(y), z) of round(y) or of round(y) + z."""
    zero = 0.0
    if isinstance(x, Binary) and x.op == "add" and isinstance(x.y, Const) and _is_whole(x.y.value, x.dtype):
        x, zero = x.x, x.y.value
    return (x if isinstance(x, Unary) and x.op == "round" else None), zero


def _clamped(op: str, x: Expr, bound: float, dtype: DType) -> Expr:
    """x clamped so that it rounds to no less, or no more, than the bound: before it is scaled, where it is."""
    if isinstance(x, Binary) and x.op in ("div", "mul") and isinstance(x.y, Const) and 0 < x.y.value < math.inf:
        scale, number = x.y.value, dtype.numpy.type
        with np.errstate(all="ignore"):
            before = number(bound * scale if x.op == "div" else bound / scale)
            after = apply_unary("round", apply_binary(x.op, before, number(scale)))
        if np.isfinite(before) and after == bound:
            return binary(x.op, binary(op, x.x, const(float(before), dtype)), x.y)
    return binary(op, x, const(bound, dtype))


def _is_whole(value: float, dtype: DType) -> bool:
    return abs(value) <= _WHOLE.get(dtype, 0) and float(value).is_integer()

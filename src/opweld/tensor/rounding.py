"""Clamps of rounded numbers, rounded numbers as integers, and these as numbers again: what quantizing ends in, and what
dequantizing begins with.

    min(max(round(x / s) + z, low), high)  =  round(min(max(x, (low - z) * s), (high - z) * s) / s) + z
    u8(round(x) + z)                       =  u8(i32(round(x)) + z)
    f32(u8(i32(round(x)) + z))             =  round(x) + z
    (round(x) + z) - w                     =  round(x) + (z - w)

What is clamped first is bounded in all that follows: clamps before it join these, and rounding it to an integer
is one instruction. Rounding is monotonic and leaves whole numbers alone, so that either side has the same value, of
infinities and NaN too (but for NaN as an integer, of which nobody says what it is).
"""

from __future__ import annotations

import math

import numpy as np

from opweld.tensor.dtype import DType
from opweld.tensor.expr import Binary, Cast, Const, Expr, Unary, binary, cast, const, transform, unary
from opweld.tensor.range import bounds
from opweld.tensor.semantics import apply_binary, apply_unary

_WHOLE = {DType.F32: 2**22, DType.F64: 2**30}
"""Magnitudes up to which sums of whole numbers are exact in a type, and in int32."""
_INTEGERS = (DType.I32, DType.I16, DType.U16, DType.I8, DType.U8)
_LEAST = {dtype: int(np.iinfo(dtype.numpy).min) for dtype in _INTEGERS}
_MOST = {dtype: int(np.iinfo(dtype.numpy).max) for dtype in _INTEGERS}


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


def saturated(node: Expr) -> Expr | None:
    """The integer of 32 bits that becomes a byte, where it is clamped to the ends of a byte; None of all else."""
    if not isinstance(node, Cast) or node.dtype not in (DType.U8, DType.I8) or node.x.dtype is not DType.I32:
        return None
    low, high = node.dtype.limits
    ends: dict[str, int] = {"max": low, "min": high}
    found = node.x
    while ends:
        if not isinstance(found, Binary) or not isinstance(found.y, Const) or ends.pop(found.op, None) != found.y.value:
            return None
        found = found.x
    return found


def rounded_integer(x: Expr) -> tuple[Unary | None, int]:
    """(round(y), z) of round(y), or of i32(round(y)) + z: what becomes an integer."""
    zero = 0
    if isinstance(x, Binary) and x.op == "add" and x.dtype is DType.I32 and isinstance(x.y, Const):
        if not isinstance(x.x, Cast):
            return None, 0
        x, zero = x.x.x, int(x.y.value)
    return (x if isinstance(x, Unary) and x.op == "round" else None), zero


def without_integers(body: Expr) -> Expr:
    """The expression in which a rounded number that becomes an integer and a float again stays a float. After what
    looks for functions of bytes, which see the byte no more."""
    return transform(body, lambda node: _as_float(node) if isinstance(node, Cast) else _shifted_once(node))


def _as_float(node: Cast) -> Expr | None:
    """The integer of a rounded, bounded number plus a whole one as a float: the sum of two floats."""
    whole = node.x
    if node.dtype not in _WHOLE or not isinstance(whole, Cast) or whole.dtype not in _INTEGERS:
        return None
    rounded, zero = rounded_integer(whole.x)
    if rounded is None or rounded.dtype is not node.dtype:
        return None
    low, high = (end + zero for end in rounded_bounds(rounded.x, rounded.dtype))
    if not (_LEAST[whole.dtype] <= low and high <= _MOST[whole.dtype]) or max(-low, high) > _WHOLE[node.dtype]:
        return None
    return binary("add", rounded, const(float(zero), node.dtype))


def _shifted_once(node: Expr) -> Expr | None:
    """A rounded, bounded number plus a whole one, plus or minus another one: one sum."""
    if (
        not isinstance(node, Binary)
        or node.op not in ("add", "sub")
        or node.dtype not in _WHOLE
        or not isinstance(node.y, Const)
    ):
        return None
    rounded, zero = _shifted(node.x)
    if rounded is None or node.x is rounded or not _is_whole(node.y.value, node.dtype):
        return None
    low, high = rounded_bounds(rounded.x, rounded.dtype)
    total = zero + node.y.value if node.op == "add" else zero - node.y.value
    if max(-low, high) + abs(zero) + abs(node.y.value) > _WHOLE[node.dtype]:
        return None
    return binary("add", rounded, const(total, node.dtype))


def _shifted(x: Expr) -> tuple[Unary | None, float]:
    """(round(y), z) of round(y) or of round(y) + z."""
    zero = 0.0
    if isinstance(x, Binary) and x.op == "add" and isinstance(x.y, Const) and _is_whole(x.y.value, x.dtype):
        x, zero = x.x, x.y.value
    return (x if isinstance(x, Unary) and x.op == "round" else None), zero


def _clamped(op: str, x: Expr, bound: float, dtype: DType) -> Expr:
    """x clamped so that it rounds to no less, or no more, than the bound: before it is scaled, where it is."""
    scaled = _scaled(x)
    if scaled is not None:
        how, unscaled, scale = scaled
        number = dtype.numpy.type
        with np.errstate(all="ignore"):
            before = number(bound * scale.value if how == "div" else bound / scale.value)
            after = apply_unary("round", apply_binary(how, before, number(scale.value)))
        if np.isfinite(before) and after == bound:
            return binary(how, binary(op, unscaled, const(float(before), dtype)), scale)
    return binary(op, x, const(bound, dtype))


def rounded_bounds(x: Expr, dtype: DType) -> tuple[float, float]:
    """What x is rounded to at least and at most: of a clamped number that is scaled, to the bit."""
    scaled, number = _scaled(x), dtype.numpy.type
    with np.errstate(all="ignore"):
        if scaled is None:
            ends = [number(end) for end in bounds(x)]
        else:
            how, unscaled, scale = scaled
            ends = [apply_binary(how, number(end), number(scale.value)) for end in bounds(unscaled)]
        low, high = (float(apply_unary("round", end)) for end in ends)
    return low, high


def _scaled(x: Expr) -> tuple[str, Expr, Const] | None:
    """(op, y, s) of y * s or y / s with a positive, finite literal."""
    if isinstance(x, Binary) and x.op in ("div", "mul") and isinstance(x.y, Const) and 0 < x.y.value < math.inf:
        return x.op, x.x, x.y
    return None


def _is_whole(value: float, dtype: DType) -> bool:
    return abs(value) <= _WHOLE.get(dtype, 0) and float(value).is_integer()

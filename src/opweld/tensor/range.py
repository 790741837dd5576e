"""Interval analysis: bounds of an expression's values, from operators a few levels deep."""

from __future__ import annotations

import math

from opweld.tensor.dim import nonnegative
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Binary, Cast, Const, Expr, Index, Reduce, Select, Unary

DEPTH = 6

_UNARY_BOUNDS = {
    "abs": (0.0, math.inf),
    "exp": (0.0, math.inf),
    "sqrt": (0.0, math.inf),
    "softplus": (0.0, math.inf),
    "sigmoid": (0.0, 1.0),
    "tanh": (-1.0, 1.0),
    "erf": (-1.0, 1.0),
    "sin": (-1.0, 1.0),
    "cos": (-1.0, 1.0),
    "sign": (-1.0, 1.0),
}
"""Bounds of each result that is not NaN. They are representable in every float type, so rounding keeps them."""

_POSITIVE = frozenset({"exp", "sigmoid", "softplus", "abs", "cosh"})


def bounds(x: Expr, depth: int = DEPTH) -> tuple[float, float]:
    """(low, high) such that every value that is not NaN lies within, both included."""
    unknown = (-math.inf, math.inf)
    if isinstance(x, Const):
        return (x.value, x.value) if x.value == x.value else unknown
    if isinstance(x, Index):
        return (0 if nonnegative(x.dim) else -math.inf, math.inf)
    if x.dtype is DType.BOOL:
        return (0, 1)
    if depth == 0:
        return unknown
    if isinstance(x, Unary):
        if not x.dtype.is_float:
            return unknown  # the absolute value of the least integer overflows to itself
        return _UNARY_BOUNDS.get(x.op, unknown)
    if isinstance(x, Cast) and x.dtype.is_float:
        return _cast_bounds(x, depth)
    if isinstance(x, Select):
        (a, b), (c, d) = bounds(x.x, depth - 1), bounds(x.y, depth - 1)
        return (min(a, c), max(b, d))
    if isinstance(x, Binary):
        return _binary_bounds(x, depth)
    if isinstance(x, Reduce) and x.dtype.is_float and x.kind == "sum":
        return (0 if bounds(x.body, depth - 1)[0] >= 0 else -math.inf, math.inf)
    return unknown


def _cast_bounds(x: Cast, depth: int) -> tuple[float, float]:
    low, high = bounds(x.x, depth - 1)
    if x.x.dtype is DType.BOOL:
        return (0, 1)
    if not x.x.dtype.is_float and not x.x.dtype.is_signed:
        return (0, math.inf)
    # zero and one are exact in every type; other bounds might be rounded
    return (0 if low >= 0 else -math.inf, 1 if high <= 1 else math.inf)


def _scaled(bound: float, x: Binary) -> float:
    assert isinstance(x.y, Const)
    return bound * x.y.value if x.op == "mul" else bound / x.y.value


_ROUNDED = 2.0**-6
"""More than any float type rounds by, for its magnitude."""


def _binary_bounds(x: Binary, depth: int) -> tuple[float, float]:
    if x.op in ("min", "max"):
        (a, b), (c, d) = bounds(x.x, depth - 1), bounds(x.y, depth - 1)
        return (min(a, c), min(b, d)) if x.op == "min" else (max(a, c), max(b, d))
    if not x.dtype.is_float:
        return (-math.inf, math.inf)  # integers wrap
    if x.op == "mul" and x.x is x.y:
        return (0, math.inf)
    if x.op in ("mul", "div") and isinstance(x.y, Const) and 0 < x.y.value < math.inf:
        low, high = (_scaled(bound, x) for bound in bounds(x.x, depth - 1))
        return (low - abs(low) * _ROUNDED, high + abs(high) * _ROUNDED)
    if x.op in ("add", "mul", "div") and min(bounds(x.x, depth - 1)[0], bounds(x.y, depth - 1)[0]) >= 0:
        if x.op == "div" and not (never_negative_zero(x.y)):
            return (-math.inf, math.inf)
        return (0, math.inf)
    return (-math.inf, math.inf)


def never_negative_zero(x: Expr, depth: int = DEPTH) -> bool:
    """Whether no value of a float expression is -0.0; always true for other types."""
    if not x.dtype.is_float:
        return True
    if isinstance(x, Const):
        return not (x.value == 0 and math.copysign(1, x.value) < 0)
    if depth == 0:
        return False
    if isinstance(x, Unary):
        return x.op in _POSITIVE
    if isinstance(x, Cast):
        return not x.x.dtype.is_float
    if isinstance(x, Select):
        return never_negative_zero(x.x, depth - 1) and never_negative_zero(x.y, depth - 1)
    if isinstance(x, Binary):
        if x.op == "mul" and x.x is x.y:
            return True
        # a sum is -0.0 only if both operands are
        return x.op == "add" and (never_negative_zero(x.x, depth - 1) or never_negative_zero(x.y, depth - 1))
    return False

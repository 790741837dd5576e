"""Arithmetic on scalar expressions, for writing formulas. Python numbers take the dtype of the other operand."""

from __future__ import annotations

from typing import TypeAlias

from opweld.tensor.dim import DimLike
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, Scalar, binary, cast, const, index, select, unary

Operand: TypeAlias = "Expr | float | int | bool"


def _pair(x: Operand, y: Operand) -> tuple[Expr, Expr]:
    if isinstance(x, Expr):
        return x, y if isinstance(y, Expr) else const(y, x.dtype)
    assert isinstance(y, Expr), "at least one side must be an expression"
    return const(x, y.dtype), y


def apply(op: str, x: Operand, y: Operand) -> Expr:
    """`binary(op, x, y)` with a Python number allowed on one side."""
    return binary(op, *_pair(x, y))


def add(x: Operand, y: Operand) -> Expr:
    """x + y"""
    return apply("add", x, y)


def sub(x: Operand, y: Operand) -> Expr:
    """x - y"""
    return apply("sub", x, y)


def mul(x: Operand, y: Operand) -> Expr:
    """x * y"""
    return apply("mul", x, y)


def div(x: Operand, y: Operand) -> Expr:
    """x / y"""
    return apply("div", x, y)


def smaller(x: Operand, y: Operand) -> Expr:
    """min(x, y), NaN if either is."""
    return apply("min", x, y)


def larger(x: Operand, y: Operand) -> Expr:
    """max(x, y), NaN if either is."""
    return apply("max", x, y)


def square(x: Expr) -> Expr:
    """x * x"""
    return binary("mul", x, x)


def where(condition: Expr, x: Operand, y: Operand) -> Expr:
    """x where the condition holds, else y."""
    return select(condition, *_pair(x, y))


def number(value: Scalar, like: Expr) -> Expr:
    """A literal of the dtype of another expression."""
    return const(value, like.dtype)


def count(value: DimLike, dtype: DType) -> Expr:
    """A number of elements as a value of the dtype."""
    expr = index(value)
    folded = getattr(expr, "value", None)
    return const(folded, dtype) if folded is not None else cast(expr, dtype)


def accumulator(dtype: DType) -> DType:
    """The accumulator's dtype for sums of the dtype: F32 for 16-bit floats, otherwise the dtype itself."""
    return DType.F32 if dtype in (DType.F16, DType.BF16) else dtype


def widen(x: Expr) -> Expr:
    """The value converted to its accumulator's dtype."""
    return cast(x, accumulator(x.dtype))


def root(x: Expr) -> Expr:
    """The square root."""
    return unary("sqrt", x)

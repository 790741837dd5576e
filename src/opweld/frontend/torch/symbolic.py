"""Numbers that Python computes of sizes, which are symbols where sizes change."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import Any

import torch

from opweld.errors import UnsupportedError
from opweld.frontend.torch.arithmetic import pair
from opweld.frontend.torch.builder import Builder, Value
from opweld.tensor.dtype import DType


def _integers(op_type: str) -> Callable[..., Value]:
    def row(b: Builder, x: Any, y: Any) -> Value:
        return pair(b, op_type, x, y)

    return row


def _sum(b: Builder, values: Sequence[Any]) -> Value:
    """The sum of several numbers."""
    return reduce(partial(pair, b, "Add"), values) if len(values) > 1 else b.cast(values[0], b.dtype)


def _floor(b: Builder, x: Any, y: Any) -> Value:
    """Sizes are not negative: rounded towards zero is rounded down."""
    return pair(b, "Div", x, y, DType.I64)


def _compared(op_type: str, negated: bool = False) -> Callable[..., Value]:
    def row(b: Builder, x: Any, y: Any) -> Value:
        dtype = b.promoted(x, y)
        found = b.op(op_type, b.cast(x, dtype), b.cast(y, dtype), dtype=DType.BOOL, asserted=1 if b.asserted else None)
        return b.op("Not", found) if negated else found

    return row


def _size(b: Builder, x: Value, axis: int) -> Value:
    return b.size(x, axis)


def _count(b: Builder, x: Value) -> Value:
    return b.op("Size", x, dtype=DType.I64)


def _bits(op_type: str) -> Callable[..., Value]:
    """Of truth values, or bit by bit of integers."""

    def row(b: Builder, x: Any, y: Any) -> Value:
        return pair(b, op_type if b.dtype is DType.BOOL else f"Bitwise{op_type}", x, y)

    return row


def _negated(b: Builder, x: Value) -> Value:
    return b.op("Neg", x)


def _cast(b: Builder, x: Value) -> Value:
    return b.cast(x, b.dtype)


def _rounded(op_type: str) -> Callable[..., Value]:
    def row(b: Builder, x: Value, digits: int | None = None) -> Value:
        if digits is not None:
            raise UnsupportedError(f"node {b.name!r}: decimal places of a number are not supported")
        return b.cast(b.op(op_type, b.cast(x, DType.F64)), b.dtype)

    return row


def _not(b: Builder, x: Value) -> Value:
    return b.op("Not", x)


FUNCTIONS: Mapping[Any, Callable[..., Any]] = {
    operator.add: _integers("Add"),
    operator.sub: _integers("Sub"),
    operator.mul: _integers("Mul"),
    operator.truediv: _integers("Div"),
    operator.floordiv: _floor,
    operator.mod: _integers("Mod"),
    operator.neg: _negated,
    operator.eq: _compared("Equal"),
    operator.ne: _compared("Equal", negated=True),
    operator.lt: _compared("Less"),
    operator.le: _compared("LessOrEqual"),
    operator.gt: _compared("Greater"),
    operator.ge: _compared("GreaterOrEqual"),
    torch.sym_sum: _sum,
    torch.sym_max: _integers("Max"),
    torch.sym_min: _integers("Min"),
    torch.sym_float: _cast,
    torch.sym_int: _cast,
    torch.sym_not: _not,
    operator.and_: _bits("And"),
    operator.or_: _bits("Or"),
    operator.xor: _bits("Xor"),
    math.trunc: _cast,
    math.floor: _rounded("Floor"),
    math.ceil: _rounded("Ceil"),
    round: _rounded("Round"),
    torch.ops.aten.sym_size.int: _size,
    torch.ops.aten.sym_numel.default: _count,
}
"""What Python computes of sizes, as operators."""

"""Squares of elements, as many rows as a vector has lanes: loaded along the rows, and transposed in registers."""

from __future__ import annotations

from typing import TypeGuard

from opweld.tensor.dim import ONE, ZERO, Axis
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, Load

SQUARES = frozenset((DType.F32, DType.I32, DType.U32, DType.F16, DType.BF16, DType.BOOL))
"""Types whose squares are transposed in registers: those of 32 bits a lane there."""


def is_square(value: Expr, row: Axis, lane: Axis) -> TypeGuard[Load]:
    """Whether a value is loaded from elements that are next to each other from row to row, and apart from lane to
    lane."""
    if not isinstance(value, Load) or len(value.indices) != 1 or value.guards or value.dtype not in SQUARES:
        return False
    (offset,) = value.indices
    return offset.coefficient(row) is ONE and offset.coefficient(lane) not in (None, ZERO, ONE)

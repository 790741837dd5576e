"""Indices that are computed at run time."""

from __future__ import annotations

from opweld.tensor.dim import Dim
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Const, Expr, binary, const, index, select


def from_the_front(position: Expr, extent: Dim) -> Expr:
    """A non-negative int64 index from one that may be negative and then counts from the end."""
    if isinstance(position, Const):
        return position if position.value >= 0 else index(extent + int(position.value))
    return select(binary("lt", position, const(0, DType.I64)), binary("add", position, index(extent)), position)

"""Values converted to keys that can be sorted and compared: dense rows, of one of the types that externs take."""

from __future__ import annotations

from collections.abc import Sequence

from opweld import ir
from opweld.ops.emitted import Emitted, Indices, emit
from opweld.ops.registry import Lowering
from opweld.tensor.dim import Dim
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, cast

KEYS = (DType.F32, DType.F64, DType.I32, DType.I64, DType.U64)
"""The types of keys; every other type converts to one of them without loss."""


def key_type(dtype: DType) -> DType:
    """The type of keys that preserves the order of the values of a type."""
    if dtype in KEYS:
        return dtype
    if dtype.is_float:
        return DType.F32
    return DType.I64 if dtype is DType.U32 else DType.I32


def emit_keys(scope: Lowering, value: ir.Value, order: Sequence[int]) -> Emitted:
    """The value as keys, with its axes in this order."""
    fact = scope.fact(value)
    dtype = key_type(fact.dtype)
    shape: tuple[Dim, ...] = tuple(fact.shape[axis] for axis in order)

    def body(at: Indices) -> Expr:
        place = [at[order.index(axis)] for axis in range(fact.rank)]
        return cast(scope.load(value, place), dtype)

    return emit(scope, shape, body, "keys")

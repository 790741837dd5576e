"""Narrow numbers. Of floats of 16 bits PyTorch computes an operator in float32 and rounds once, at its end, and so do
rows. Sums and products of integers of 8 and 16 bits wrap around at each step: 32 bits that do so once are the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch

from opweld.frontend.torch.builder import Builder, Value, elements
from opweld.frontend.torch.dtypes import dtype_of
from opweld.frontend.torch.rows import Row
from opweld.tensor.dtype import DType

_FLOATS: Mapping[DType, DType] = dict.fromkeys((DType.F16, DType.BF16), DType.F32)
_INTEGERS: Mapping[DType, DType] = dict.fromkeys((DType.I8, DType.U8, DType.I16), DType.I32)
_MOVING = ("comparisons", "creation", "indexing", "movement")
"""Families of rows that round nothing, or each step, as scatters do."""

_PRODUCTS = (
    "addbmm",
    "addmm",
    "addmv",
    "baddbmm",
    "bmm",
    "dot",
    "einsum",
    "linear",
    "matmul",
    "mm",
    "mv",
    "_trilinear",
)
_RING = (*_PRODUCTS, "cumprod", "cumsum", "pow", "prod", "sum")
"""Operators that are sums and products of their operands and nothing else; exponents of integers are not negative."""

_EXTREMES = ("amax", "amin", "aminmax", "cummax", "cummin", "max", "min")
"""Operators that choose among elements: those of bytes need no wider ones."""


def narrowed_once(row: Row, operator: str, made: Any) -> Row:
    """A row that computes in 32 bits what makes narrow numbers; any other one as it is."""
    family = getattr(row, "func", row).__module__.rpartition(".")[2]
    dtypes = {own.dtype for own in elements(made) if isinstance(own, torch.Tensor)}
    if family not in _MOVING and dtypes & {torch.float16, torch.bfloat16}:
        return _within(row, _FLOATS, made)
    name = operator.removeprefix("aten.").partition(".")[0]
    if (name in _RING and dtypes & {torch.int8, torch.uint8}) or (
        name in (*_RING, *_EXTREMES) and torch.int16 in dtypes
    ):
        return _within(row, _INTEGERS, made)
    return row


def _within(row: Row, wide: Mapping[DType, DType], made: Any) -> Row:
    """A row whose operands are widened, and what it makes narrowed."""

    def run(b: Builder, *arguments: Any, **keywords: Any) -> Any:
        b.wide = wide
        try:
            given: dict[Value, Value] = {}
            found = row(
                b,
                *(_wide(b, value, given) for value in arguments),
                **{key: _wide(b, value, given) for key, value in keywords.items()},
            )
        finally:
            b.wide = {}
        own = {wide: value for value, wide in given.items()}  # what a row hands on as it is keeps its identity
        return _narrow(b, found, made, own)

    return run


def _wide(b: Builder, value: Any, given: dict[Value, Value]) -> Any:
    """A narrow number in 32 bits; anything else as it is."""
    if isinstance(value, list | tuple):
        return [_wide(b, own, given) for own in elements(cast("Any", value))]
    if not isinstance(value, Value) or not isinstance(value.dtype, DType) or value.dtype not in b.wide:
        return value
    if value not in given:
        given[value] = b.cast(value, b.wide[value.dtype])
        b.known[given[value]] = b.known[value]
    return given[value]


def _narrow(b: Builder, found: Any, made: Any, own: dict[Value, Value]) -> Any:
    """What a row made, in the types that PyTorch's operator makes."""
    if isinstance(found, list | tuple):
        return [_narrow(b, *pair, own) for pair in zip(elements(cast("Any", found)), elements(made), strict=False)]
    if not isinstance(found, Value) or not isinstance(made, torch.Tensor):
        return found
    dtype = dtype_of(made.dtype)
    return own[found] if found in own and own[found].dtype is dtype else b.cast(found, dtype)

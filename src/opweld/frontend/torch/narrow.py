"""Floats of 16 bits: PyTorch computes an operator in float32 and rounds once, at its end, and so do rows."""

from __future__ import annotations

from typing import Any, cast

import torch

from opweld.frontend.torch.builder import Builder, Value, elements
from opweld.frontend.torch.dtypes import dtype_of
from opweld.frontend.torch.rows import Row
from opweld.tensor.dtype import DType

NARROW = (torch.float16, torch.bfloat16)
_MOVING = ("comparisons", "creation", "indexing", "movement")
"""Families of rows that round nothing, or each step, as scatters do."""


def rounded_once(row: Row, made: Any) -> Row:
    """A row that computes in float32 what makes floats of 16 bits; any other one as it is."""
    family = getattr(row, "func", row).__module__.rpartition(".")[2]
    tensors = [own for own in elements(made) if isinstance(own, torch.Tensor)]
    if family in _MOVING or not any(own.dtype in NARROW for own in tensors):
        return row

    def run(b: Builder, *arguments: Any, **keywords: Any) -> Any:
        b.wide = True
        try:
            given: dict[Value, Value] = {}
            found = row(
                b,
                *(_wide(b, value, given) for value in arguments),
                **{key: _wide(b, value, given) for key, value in keywords.items()},
            )
        finally:
            b.wide = False
        own = {wide: value for value, wide in given.items()}  # what a row hands on as it is keeps its identity
        return _narrow(b, found, made, own)

    return run


def _wide(b: Builder, value: Any, given: dict[Value, Value]) -> Any:
    """A value of 16 bits in float32; anything else as it is."""
    if isinstance(value, list | tuple):
        return [_wide(b, own, given) for own in elements(cast("Any", value))]
    if not isinstance(value, Value) or value.dtype not in (DType.F16, DType.BF16):
        return value
    if value not in given:
        given[value] = b.cast(value, DType.F32)
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

"""Element types of PyTorch."""

from __future__ import annotations

from functools import cache

import torch

from opweld.errors import UnsupportedError
from opweld.tensor.dtype import DType


@cache
def _table() -> dict[torch.dtype, DType]:
    found = {getattr(torch, str(dtype.numpy), None): dtype for dtype in DType}
    return {dtype: own for dtype, own in found.items() if isinstance(dtype, torch.dtype)}


def dtype_of(dtype: torch.dtype) -> DType:
    """The element type; UnsupportedError for one that opweld does not have, as complex numbers."""
    found = _table().get(dtype)
    if found is None:
        raise UnsupportedError(f"element type {dtype} is not supported")
    return found

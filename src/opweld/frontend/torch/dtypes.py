"""Element types of PyTorch, and its tensors as arrays."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
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


def as_array(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """The data of a tensor, which is not copied where it lies in order."""
    own = tensor.detach().cpu().contiguous()
    dtype = dtype_of(own.dtype)
    try:
        return own.numpy()
    except TypeError:  # NumPy's own dtypes lack bfloat16 and float8
        size = {1: torch.uint8, 2: torch.int16}[own.element_size()]
        return own.view(size).numpy().view(dtype.numpy)


def as_tensor(array: np.ndarray[Any, Any]) -> torch.Tensor:
    """An array as a tensor over its memory, of the types that NumPy lacks too."""
    dtype = next((own for own, mine in _table().items() if mine.numpy == array.dtype), None)
    if dtype is None or array.dtype.isbuiltin == 1:
        return torch.as_tensor(array)
    return torch.as_tensor(array.view({1: np.uint8, 2: np.int16}[array.itemsize])).view(dtype)

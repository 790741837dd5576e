"""Checks of what callers give: each error names the argument, what was expected and what to do about it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from opweld.errors import InputError
from opweld.kernels.interpreter import INTERPRETED

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""What kernels that move rows take; they compute in float32, of float64 in float64."""


def check_tensor(name: str, tensor: Tensor, dtypes: tuple[torch.dtype, ...], ranks: range | None = None) -> None:
    """The tensor has one of the dtypes and one of the ranks, and is where kernels run.

    Raises:
        InputError: it has not.
    """
    if not tensor.is_cuda and not INTERPRETED:
        raise InputError(f"{name} is on {tensor.device}, and kernels run on a GPU: pass {name}.cuda()")
    if tensor.dtype not in dtypes:
        known = ", ".join(str(dtype).removeprefix("torch.") for dtype in dtypes)
        dtype = str(tensor.dtype).removeprefix("torch.")
        raise InputError(f"{name} is {dtype}, expected {known}: convert it with {name}.to")
    if ranks is not None and tensor.ndim not in ranks:
        raise InputError(f"{name} has {tensor.ndim} dimensions, expected {_span(ranks)}: reshape it")


def check_shape(name: str, tensor: Tensor, shape: tuple[int, ...], meaning: str) -> None:
    """The tensor has the shape, which the meaning explains.

    Raises:
        InputError: it has another.
    """
    if tuple(tensor.shape) != shape:
        raise InputError(f"{name} has shape {tuple(tensor.shape)}, expected {shape}: {meaning}")


def check_like(name: str, tensor: Tensor, other_name: str, other: Tensor) -> None:
    """The tensor has dtype and device of another.

    Raises:
        InputError: it has others.
    """
    if tensor.dtype != other.dtype or tensor.device != other.device:
        raise InputError(
            f"{name} is {tensor.dtype} on {tensor.device}, {other_name} is {other.dtype} on {other.device}: "
            f"pass {name}.to({other_name})"
        )


def as_rows(tensor: Tensor) -> Tensor:
    """[..., N] as [M, N] with elements of a row side by side; a copy only where no view is that."""
    rows = tensor.reshape(math.prod(tensor.shape[:-1]), tensor.shape[-1])  # not -1, which no size without elements has
    return rows if rows.stride(-1) == 1 or rows.shape[-1] == 1 else rows.contiguous()


def _span(ranks: range) -> str:
    return str(ranks.start) if len(ranks) == 1 else f"{ranks.start} to {ranks.stop - 1}"

# pyright: basic, reportUnknownParameterType=false, reportMissingParameterType=false, reportUnknownVariableType=false
"""In which type kernels compute. Triton's language has no types that a checker knows, here as in every kernel."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit
def wide(x):
    """x in the type to compute in: float32, of float64 float64."""
    if x.dtype == tl.float64:
        return x
    else:
        return x.to(tl.float32)


@triton.jit
def finite(largest):
    """What exponents are taken less of: the largest so far, and 0 where all was -inf, whose exponentials are then 0."""
    return tl.where(largest == float("-inf"), 0.0, largest)


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """The type that `wide` computes in."""
    return torch.float64 if dtype == torch.float64 else torch.float32

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


def wide_dtype(dtype: torch.dtype) -> torch.dtype:
    """The type that `wide` computes in."""
    return torch.float64 if dtype == torch.float64 else torch.float32

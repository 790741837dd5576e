"""Tensor descriptors for kernels in Gluon, which say how a tile lies in shared memory."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

_DTYPES = {torch.float16: gl.float16, torch.bfloat16: gl.bfloat16}


def descriptor(tensor: Tensor, block: list[int]) -> TensorDescriptor:
    """The descriptor of a tensor of 16 bits by tiles of a shape, as tensor cores read them: an axis of one element may
    have any stride."""
    step = 16 // tensor.element_size()
    strides = [
        stride if size > 1 else step for size, stride in zip(tensor.shape[:-1], tensor.stride()[:-1], strict=True)
    ]
    layout = cast(Any, gl.NVMMASharedLayout).get_default_for(block, _DTYPES[tensor.dtype])
    return TensorDescriptor(tensor, list(tensor.shape), [*strides, 1], block, layout)

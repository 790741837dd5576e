# pyright: basic, reportUnknownParameterType=false, reportMissingParameterType=false, reportUnknownVariableType=false
"""dz = dy a'(z), element by element: backward of the activation in an epilogue."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import triton
import triton.language as tl
from torch import Tensor

from opweld.kernels.activations import ACTIVATIONS, derivative
from opweld.kernels.precision import wide
from opweld.kernels.registration import launch
from opweld.kernels.sizes import ceil_div
from opweld.kernels.variant import Variant, variant

BLOCK, WARPS = 2048, 4
"""Elements of a program, 16 a thread."""


@triton.jit
def scale_gradient(dy, z, dz, elements, ACTIVATION: tl.constexpr, BLOCK: tl.constexpr):
    """Each program computes BLOCK elements."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < elements
    slope = derivative(wide(tl.load(z + place, mask=inside, other=0.0)), ACTIVATION)
    g = wide(tl.load(dy + place, mask=inside, other=0.0)) * slope
    tl.store(dz + place, g.to(dz.dtype.element_ty), mask=inside)


def activation_gradient(dy: Tensor, z: Tensor, activation: str) -> Tensor:
    """dy a'(z) as z, which is dense; dy has its shape."""
    dz = torch.empty_like(z)
    grid = (ceil_div(z.numel(), BLOCK),)
    launch(scale_gradient, grid, dy.contiguous(), z, dz, z.numel(), ACTIVATION=activation, BLOCK=BLOCK, num_warps=WARPS)
    return dz


def variants(arch: int) -> Iterator[Variant]:
    """What is compiled ahead of time for an architecture, as 90 for sm_90: each activation in bfloat16."""
    types = dict.fromkeys(("dy", "z", "dz"), "*bf16:16") | {"elements": "i32:16"}
    for activation in ACTIVATIONS[1:]:
        constants = {"ACTIVATION": activation, "BLOCK": BLOCK}
        yield variant(f"gradient of {activation} bf16", scale_gradient, types, constants, WARPS)

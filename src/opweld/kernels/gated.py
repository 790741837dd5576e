# pyright: basic, reportUnknownParameterType=false, reportMissingParameterType=false, reportUnknownVariableType=false
"""An activation of one tensor times another, element by element, of which SwiGLU and GEGLU are two forms.

    y = a(gate) up
    dgate = dy up a'(gate),  dup = dy a(gate)

Rows may be apart, as the halves of one projection's results are.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
import triton
import triton.language as tl
from torch import Tensor

from opweld.kernels.activations import activate, derivative
from opweld.kernels.arguments import FLOATS, as_rows, check_like, check_shape, check_tensor
from opweld.kernels.precision import wide
from opweld.kernels.registration import launch
from opweld.kernels.sizes import ceil_div
from opweld.kernels.variant import Variant, variant

BLOCK, WARPS = 2048, 4
"""Elements of a program, 16 a thread."""

CANDIDATES = tuple({"block": block, "warps": warps} for block, warps in ((1024, 4), (2048, 4), (2048, 8), (4096, 8)))
"""Configurations that a benchmark may try in place of `BLOCK` and `WARPS`."""


@triton.jit
def forward_kernel(gate, up, y, columns, gate_stride, up_stride, ACTIVATION: tl.constexpr, BLOCK: tl.constexpr):
    """Each program computes BLOCK elements of one row."""
    blocks = tl.cdiv(columns, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    column = (tl.program_id(0) % blocks).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = column < columns
    a = activate(wide(tl.load(gate + row * gate_stride + column, mask=inside, other=0.0)), ACTIVATION)
    b = wide(tl.load(up + row * up_stride + column, mask=inside, other=0.0))
    tl.store(y + row * columns + column, (a * b).to(y.dtype.element_ty), mask=inside)


@triton.jit
def backward_kernel(
    dy, gate, up, dgate, dup, columns, dy_stride, gate_stride, up_stride, ACTIVATION: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Each program computes BLOCK elements of one row of both gradients."""
    blocks = tl.cdiv(columns, BLOCK)
    row = (tl.program_id(0) // blocks).to(tl.int64)
    column = (tl.program_id(0) % blocks).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = column < columns
    g = wide(tl.load(dy + row * dy_stride + column, mask=inside, other=0.0))
    a = wide(tl.load(gate + row * gate_stride + column, mask=inside, other=0.0))
    b = wide(tl.load(up + row * up_stride + column, mask=inside, other=0.0))
    to = row * columns + column
    tl.store(dgate + to, (g * b * derivative(a, ACTIVATION)).to(dgate.dtype.element_ty), mask=inside)
    tl.store(dup + to, (g * activate(a, ACTIVATION)).to(dup.dtype.element_ty), mask=inside)


def _rows(*tensors: Tensor) -> tuple[list[Tensor], int, int]:
    """The tensors as rows, how many and how long: one long row of what is dense."""
    if all(tensor.is_contiguous() for tensor in tensors):
        return [tensor.view(1, -1) for tensor in tensors], 1, tensors[0].numel()
    rows = [as_rows(tensor) for tensor in tensors]
    return rows, rows[0].shape[0], rows[0].shape[1]


def forward(gate: Tensor, up: Tensor, activation: str) -> Tensor:
    """a(gate) up, dense."""
    y = torch.empty_like(gate, memory_format=torch.contiguous_format)
    if y.numel():
        rows, count, columns = _rows(gate, up)
        grid = (count * ceil_div(columns, BLOCK),)
        strides = [tensor.stride(0) for tensor in rows]
        launch(forward_kernel, grid, *rows, y, columns, *strides, ACTIVATION=activation, BLOCK=BLOCK, num_warps=WARPS)
    return y


def backward(dy: Tensor, gate: Tensor, up: Tensor, activation: str) -> tuple[Tensor, Tensor]:
    """The gradients of gate and up, dense."""
    dgate = torch.empty_like(gate, memory_format=torch.contiguous_format)
    dup = torch.empty_like(dgate)
    if dgate.numel():
        rows, count, columns = _rows(dy, gate, up)
        grid = (count * ceil_div(columns, BLOCK),)
        strides = [tensor.stride(0) for tensor in rows]
        launch(
            backward_kernel, grid, *rows, dgate, dup, columns, *strides, ACTIVATION=activation, BLOCK=BLOCK,
            num_warps=WARPS,
        )  # fmt: skip
    return dgate, dup


def check(gate: Tensor, up: Tensor) -> None:
    """Gate and up are alike.

    Raises:
        InputError: they are not.
    """
    check_tensor("gate", gate, FLOATS, range(1, 9))
    check_like("up", up, "gate", gate)
    check_shape("up", up, tuple(gate.shape), "it is multiplied by the activation of gate")


def variants(name: str, activation: str) -> Iterator[Variant]:
    """Forward and backward in bfloat16."""
    types: dict[str, str] = dict.fromkeys(("gate", "up", "y", "dy", "dgate", "dup"), "*bf16:16")
    types |= dict.fromkeys(("columns", "gate_stride", "up_stride", "dy_stride"), "i32:16")
    constants = {"ACTIVATION": activation, "BLOCK": BLOCK}
    yield variant(f"{name} forward bf16", forward_kernel, types, constants, WARPS)
    yield variant(f"{name} backward bf16", backward_kernel, types, constants, WARPS)

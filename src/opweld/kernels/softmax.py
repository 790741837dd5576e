# pyright: basic, reportUnknownParameterType=false, reportMissingParameterType=false, reportUnknownVariableType=false
"""Softmax over the last dimension.

    y = exp(x - max(x)) / sum(exp(x - max(x)))
    dx = y (dy - sum(y dy))

A row that fits stays in registers. Longer ones are read twice: the largest element and the sum are kept while it runs,
the sum scaled whenever a larger element is met. A row of -inf alone is NaN, as PyTorch's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from opweld.kernels.arguments import FLOATS, as_rows, check_tensor
from opweld.kernels.precision import finite, wide
from opweld.kernels.registration import launch, operator
from opweld.kernels.sizes import ceil_div, power_of_2
from opweld.kernels.variant import Variant, variant

WHOLE = 16384
"""The longest row that is kept in registers."""

BLOCK = 4096
"""Elements of longer rows at a time."""

CANDIDATES = tuple({"warps": warps, "rows": rows} for warps in (2, 4, 8, 16) for rows in (1, 2, 4))
"""Configurations that a benchmark may try in place of `configuration`'s."""


def configuration(columns: int) -> dict[str, int]:
    """Warps and rows of a program: 16 bytes an access, 16 to 32 elements a thread."""
    width = power_of_2(columns)
    return {"warps": 4 if width <= 4096 else width // 1024 if width <= WHOLE else 8, "rows": max(1, 2048 // width)}


def backward_configuration(columns: int) -> dict[str, int]:
    """The same of backward, which holds two rows: 16 elements of each a thread, of the longest 32."""
    width = power_of_2(columns)
    return {"warps": 8 if width > WHOLE else min(16, max(4, width // 512)), "rows": max(1, 2048 // width)}


@triton.jit
def forward_whole(x, y, rows, columns, x_stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Each program computes ROWS rows, which it holds in registers."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    row_long = row.to(tl.int64)[:, None]
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    # Rows beyond the last are all zeros: no -inf less -inf in them.
    other = tl.where(row < rows, float("-inf"), 0.0).to(x.dtype.element_ty)[:, None]
    e = wide(tl.load(x + row_long * x_stride + column[None, :], mask=inside, other=other))
    e = tl.exp(e - tl.max(e, axis=1)[:, None])
    e = e / tl.sum(e, axis=1)[:, None]
    tl.store(y + row_long * columns + column[None, :], e.to(y.dtype.element_ty), mask=inside)


@triton.jit
def forward_blocks(x, y, columns, x_stride, COLUMNS: tl.constexpr):
    """Each program computes one row in blocks of COLUMNS: the largest and the sum, then the results."""
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, COLUMNS)
    x += row * x_stride
    e = wide(tl.load(x + lane, mask=lane < columns, other=float("-inf")))
    largest = tl.max(e, axis=0)
    sums = tl.exp(e - finite(largest))
    for start in range(COLUMNS, columns, COLUMNS):
        e = wide(tl.load(x + start + lane, mask=start + lane < columns, other=float("-inf")))
        larger = tl.maximum(largest, tl.max(e, axis=0))
        origin = finite(larger)
        sums = sums * tl.exp(largest - origin) + tl.exp(e - origin)
        largest = larger
    total = tl.sum(sums, axis=0)
    for start in range(0, columns, COLUMNS):
        e = wide(tl.load(x + start + lane, mask=start + lane < columns, other=float("-inf")))
        e = tl.exp(e - largest) / total
        tl.store(y + row * columns + start + lane, e.to(y.dtype.element_ty), mask=start + lane < columns)


@triton.jit
def backward_whole(dy, y, dx, rows, columns, dy_stride, y_stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Each program computes dx of ROWS rows, which it holds in registers."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    row_long = row.to(tl.int64)[:, None]
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    p = wide(tl.load(y + row_long * y_stride + column[None, :], mask=inside, other=0.0))
    g = wide(tl.load(dy + row_long * dy_stride + column[None, :], mask=inside, other=0.0))
    d = p * (g - tl.sum(p * g, axis=1)[:, None])
    tl.store(dx + row_long * columns + column[None, :], d.to(dx.dtype.element_ty), mask=inside)


@triton.jit
def backward_blocks(dy, y, dx, columns, dy_stride, y_stride, COLUMNS: tl.constexpr):
    """Each program computes dx of one row in blocks of COLUMNS: the sum, then the results."""
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, COLUMNS)
    dy += row * dy_stride
    y += row * y_stride
    p = wide(tl.load(y + lane, mask=lane < columns, other=0.0))
    products = p * wide(tl.load(dy + lane, mask=lane < columns, other=0.0))
    for start in range(COLUMNS, columns, COLUMNS):
        p = wide(tl.load(y + start + lane, mask=start + lane < columns, other=0.0))
        products += p * wide(tl.load(dy + start + lane, mask=start + lane < columns, other=0.0))
    total = tl.sum(products, axis=0)
    for start in range(0, columns, COLUMNS):
        p = wide(tl.load(y + start + lane, mask=start + lane < columns, other=0.0))
        d = p * (wide(tl.load(dy + start + lane, mask=start + lane < columns, other=0.0)) - total)
        tl.store(dx + row * columns + start + lane, d.to(dx.dtype.element_ty), mask=start + lane < columns)


@operator("softmax")
def _forward(x: Tensor) -> Tensor:
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    if x.numel() == 0:
        return y
    rows_x = as_rows(x)
    rows, columns = rows_x.shape
    chosen = configuration(columns)
    if columns <= WHOLE:
        tile = {"ROWS": chosen["rows"], "COLUMNS": power_of_2(columns)}
        grid = (ceil_div(rows, chosen["rows"]),)
        launch(forward_whole, grid, rows_x, y, rows, columns, rows_x.stride(0), **tile, num_warps=chosen["warps"])
    else:
        launch(forward_blocks, (rows,), rows_x, y, columns, rows_x.stride(0), COLUMNS=BLOCK, num_warps=chosen["warps"])
    return y


@operator("softmax_backward")
def _backward(dy: Tensor, y: Tensor) -> Tensor:
    dx = torch.empty_like(y, memory_format=torch.contiguous_format)
    if y.numel() == 0:
        return dx
    rows_dy, rows_y = as_rows(dy), as_rows(y)
    rows, columns = rows_y.shape
    chosen = backward_configuration(columns)
    strides = (rows_dy.stride(0), rows_y.stride(0))
    if columns <= WHOLE:
        tile = {"ROWS": chosen["rows"], "COLUMNS": power_of_2(columns)}
        grid = (ceil_div(rows, chosen["rows"]),)
        launch(backward_whole, grid, rows_dy, rows_y, dx, rows, columns, *strides, **tile, num_warps=chosen["warps"])
    else:
        arguments = (rows_dy, rows_y, dx, columns, *strides)
        launch(backward_blocks, (rows,), *arguments, COLUMNS=BLOCK, num_warps=chosen["warps"])
    return dx


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(output)


def _differentiate(ctx: Any, dy: Tensor) -> Tensor:
    return _backward(dy, ctx.saved_tensors[0])


_forward.register_autograd(_differentiate, setup_context=_save)


def softmax(x: Tensor) -> Tensor:
    """Softmax over the last dimension; differentiable.

    Args:
        x: [..., N], float16, bfloat16, float32 or float64; rows may be strided.

    Returns:
        y as x.

    Raises:
        InputError: the dtype is another, or x is a scalar.
    """
    check_tensor("x", x, FLOATS, range(1, 9))
    return _forward(x)


def variants(arch: int) -> Iterator[Variant]:
    """What is compiled ahead of time for an architecture, as 90 for sm_90: the default configurations in bfloat16."""
    types = dict.fromkeys(("x", "y", "dy", "dx"), "*bf16:16") | {"rows": "i32"}
    types |= dict.fromkeys(("columns", "x_stride", "dy_stride", "y_stride"), "i32:16")
    for columns in (128, 1024, 4096, 8192, 16384, 65536):
        whole = columns <= WHOLE
        for way, chosen, kernel in (
            ("forward", configuration(columns), forward_whole if whole else forward_blocks),
            ("backward", backward_configuration(columns), backward_whole if whole else backward_blocks),
        ):
            constants = {"ROWS": chosen["rows"], "COLUMNS": power_of_2(columns) if whole else BLOCK}
            yield variant(f"softmax {way} bf16 {columns}", kernel, types, constants, chosen["warps"])

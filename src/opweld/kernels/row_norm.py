# pyright: basic, reportUnknownParameterType=false, reportMissingParameterType=false, reportUnknownVariableType=false
"""Normalisation of rows, of which LayerNorm and RMSNorm are the two forms, with what is added before it.

    h = x + residual                        rounded to the type of x, as it is stored
    m = mean(h), or 0 where not CENTRED     over the N columns
    r = 1 / sqrt(mean((h - m)^2) + eps)     squares of what is centred already
    y = (h - m) r w + b

Backward, with u = (h - m) r and g = dy w:

    dx = r (g - mean(g) - u mean(g u)) + dh     without mean(g) where not CENTRED
    dw = sum over rows of dy u,  db = sum over rows of dy

A row that fits stays in registers: x is read once and y written once. Longer ones are read again for each of the
passes, from the L2 that they are still in. Sums over rows have one partial sum a program, in float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from opweld.kernels.arguments import as_rows
from opweld.kernels.devices import processors
from opweld.kernels.precision import wide, wide_dtype
from opweld.kernels.registration import launch
from opweld.kernels.sizes import ceil_div, power_of_2
from opweld.kernels.variant import Variant, variant

WHOLE = 16384
"""The longest row that forward keeps in registers."""

WHOLE_BACKWARD = 8192
"""The same of backward, where sums over rows are in registers beside the row."""

COLUMN_ROWS, COLUMN_WIDTH = 32, 128
"""The tile of sums over rows where no row is whole."""

CANDIDATES = tuple({"warps": warps, "rows": rows} for warps in (2, 4, 8, 16) for rows in (1, 2, 4))
"""Configurations that a benchmark may try in place of `configuration`'s."""

CANDIDATES_BACKWARD = tuple(
    {"warps": warps, "rows": 1, "stages": stages, "waves": waves}
    for warps, waves in ((4, 2), (4, 4), (8, 1), (8, 2), (16, 1))
    for stages in (1, 2, 3)
)


def configuration(columns: int) -> dict[str, int]:
    """Warps and rows of a program: 16 bytes an access, 16 to 32 elements a thread."""
    width = power_of_2(columns)
    return {"warps": 4 if width <= 4096 else width // 1024 if width <= WHOLE else 8, "rows": max(1, 2048 // width)}


def backward_configuration(columns: int) -> dict[str, int]:
    """The same of backward, and how often programs fill the processors: each sums over the rows that it meets."""
    width = power_of_2(columns)
    if width > WHOLE_BACKWARD:
        return {"warps": 8, "rows": 1, "stages": 1, "waves": 1}
    if width == 4096:
        # LayerNorm of 16384 rows on an H200, 2026-11-26: 81% of the bandwidth of a copy, with 3 stages 71%. On an H100
        # 4 were not tried, 3 had 83%, and 2 stages with 2 waves 79%.
        return {"warps": 8, "rows": 1, "stages": 4, "waves": 1}
    return {
        "warps": max(4, width // 512),
        "rows": max(1, 2048 // width),
        "stages": 2,
        "waves": 4 if width <= 2048 else 1,
    }


@triton.jit
def forward_whole(
    x, residual, weight, bias, y, total, means, scales, rows, columns, x_stride, residual_stride, eps,
    CENTRED: tl.constexpr, HAS_RESIDUAL: tl.constexpr, HAS_WEIGHT: tl.constexpr, HAS_BIAS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Each program normalises ROWS rows, which it holds in registers."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    row_long = row.to(tl.int64)[:, None]
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    h = tl.load(x + row_long * x_stride + column[None, :], mask=inside, other=0.0)
    if HAS_RESIDUAL:
        r = tl.load(residual + row_long * residual_stride + column[None, :], mask=inside, other=0.0)
        h = (wide(h) + wide(r)).to(h.dtype)
        tl.store(total + row_long * columns + column[None, :], h, mask=inside)
    h = wide(h)
    if CENTRED:
        mean = tl.sum(h, axis=1) / columns
        tl.store(means + row, mean, mask=row < rows)
        h = tl.where(inside, h - mean[:, None], 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(h * h, axis=1) / columns + eps)
    tl.store(scales + row, scale, mask=row < rows)
    h = h * scale[:, None]
    if HAS_WEIGHT:
        h *= wide(tl.load(weight + column, mask=column < columns, other=0.0))[None, :]
    if HAS_BIAS:
        h += wide(tl.load(bias + column, mask=column < columns, other=0.0))[None, :]
    tl.store(y + row_long * columns + column[None, :], h.to(y.dtype.element_ty), mask=inside)


@triton.jit
def forward_blocks(
    x, residual, weight, bias, y, total, means, scales, columns, x_stride, residual_stride, eps,
    CENTRED: tl.constexpr, HAS_RESIDUAL: tl.constexpr, HAS_WEIGHT: tl.constexpr, HAS_BIAS: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    """Each program normalises one row in blocks of COLUMNS: the mean, then the deviation, then the results."""
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, COLUMNS)
    x += row * x_stride
    sums = tl.zeros((COLUMNS,), scales.dtype.element_ty)
    for start in range(0, columns, COLUMNS):
        column = start + lane
        h = tl.load(x + column, mask=column < columns, other=0.0)
        if HAS_RESIDUAL:
            r = tl.load(residual + row * residual_stride + column, mask=column < columns, other=0.0)
            h = (wide(h) + wide(r)).to(h.dtype)
            tl.store(total + row * columns + column, h, mask=column < columns)
        sums += wide(h)
    if HAS_RESIDUAL:
        x = total + row * columns  # each thread reads what it wrote
    mean = tl.sum(sums, axis=0) / columns if CENTRED else 0.0
    squares = tl.zeros((COLUMNS,), scales.dtype.element_ty)
    for start in range(0, columns, COLUMNS):
        column = start + lane
        h = wide(tl.load(x + column, mask=column < columns, other=0.0))
        h = tl.where(column < columns, h - mean, 0.0)
        squares += h * h
    scale = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / columns + eps)
    if CENTRED:
        tl.store(means + row, mean)
    tl.store(scales + row, scale)
    for start in range(0, columns, COLUMNS):
        column = start + lane
        h = wide(tl.load(x + column, mask=column < columns, other=0.0))
        h = (h - mean) * scale
        if HAS_WEIGHT:
            h *= wide(tl.load(weight + column, mask=column < columns, other=0.0))
        if HAS_BIAS:
            h += wide(tl.load(bias + column, mask=column < columns, other=0.0))
        tl.store(y + row * columns + column, h.to(y.dtype.element_ty), mask=column < columns)


@triton.jit
def backward_whole(
    dy, h, weight, dh, means, scales, dx, dw, db, rows, columns, dy_stride, h_stride, dh_stride,
    CENTRED: tl.constexpr, HAS_TOTAL: tl.constexpr, HAS_WEIGHT: tl.constexpr, HAS_BIAS: tl.constexpr,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Each program takes every so many tiles of ROWS rows, and sums dw and db over them in registers."""
    program = tl.program_id(0)
    column = tl.arange(0, COLUMNS)
    w = tl.load(weight + column, mask=column < columns, other=0.0) if HAS_WEIGHT else 0.0
    dw_sum = tl.zeros((COLUMNS,), scales.dtype.element_ty)
    db_sum = tl.zeros((COLUMNS,), scales.dtype.element_ty)
    for tile in tl.range(program, tl.cdiv(rows, ROWS), tl.num_programs(0), num_stages=STAGES):
        row = tile * ROWS + tl.arange(0, ROWS)
        row_long = row.to(tl.int64)[:, None]
        inside = (row < rows)[:, None] & (column < columns)[None, :]
        g = wide(tl.load(dy + row_long * dy_stride + column[None, :], mask=inside, other=0.0))
        u = wide(tl.load(h + row_long * h_stride + column[None, :], mask=inside, other=0.0))
        scale = tl.load(scales + row, mask=row < rows, other=0.0)
        if CENTRED:
            u -= tl.load(means + row, mask=row < rows, other=0.0)[:, None]
        u = tl.where(inside, u * scale[:, None], 0.0)
        if HAS_WEIGHT:
            dw_sum += tl.sum(g * u, axis=0)
        if HAS_BIAS:
            db_sum += tl.sum(g, axis=0)
        if HAS_WEIGHT:
            g *= wide(w)[None, :]
        d = g - u * (tl.sum(g * u, axis=1) / columns)[:, None]
        if CENTRED:
            d -= (tl.sum(g, axis=1) / columns)[:, None]
        d *= scale[:, None]
        if HAS_TOTAL:
            d += wide(tl.load(dh + row_long * dh_stride + column[None, :], mask=inside, other=0.0))
        tl.store(dx + row_long * columns + column[None, :], d.to(dx.dtype.element_ty), mask=inside)
    if HAS_WEIGHT:
        tl.store(dw + program * columns + column, dw_sum, mask=column < columns)
    if HAS_BIAS:
        tl.store(db + program * columns + column, db_sum, mask=column < columns)


@triton.jit
def backward_blocks(
    dy, h, weight, dh, means, scales, dx, columns, dy_stride, h_stride, dh_stride,
    CENTRED: tl.constexpr, HAS_TOTAL: tl.constexpr, HAS_WEIGHT: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """dx of one row in blocks of COLUMNS: the two means, then the results."""
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, COLUMNS)
    scale = tl.load(scales + row)
    mean = tl.load(means + row) if CENTRED else 0.0
    products = tl.zeros((COLUMNS,), scales.dtype.element_ty)
    sums = tl.zeros((COLUMNS,), scales.dtype.element_ty)
    for start in range(0, columns, COLUMNS):
        column = start + lane
        g = wide(tl.load(dy + row * dy_stride + column, mask=column < columns, other=0.0))
        u = (wide(tl.load(h + row * h_stride + column, mask=column < columns, other=0.0)) - mean) * scale
        if HAS_WEIGHT:
            g *= wide(tl.load(weight + column, mask=column < columns, other=0.0))
        products += g * u
        sums += g
    product = tl.sum(products, axis=0) / columns
    sum_ = tl.sum(sums, axis=0) / columns if CENTRED else 0.0
    for start in range(0, columns, COLUMNS):
        column = start + lane
        g = wide(tl.load(dy + row * dy_stride + column, mask=column < columns, other=0.0))
        u = (wide(tl.load(h + row * h_stride + column, mask=column < columns, other=0.0)) - mean) * scale
        if HAS_WEIGHT:
            g *= wide(tl.load(weight + column, mask=column < columns, other=0.0))
        d = (g - u * product - sum_) * scale
        if HAS_TOTAL:
            d += wide(tl.load(dh + row * dh_stride + column, mask=column < columns, other=0.0))
        tl.store(dx + row * columns + column, d.to(dx.dtype.element_ty), mask=column < columns)


@triton.jit
def sums_over_rows(
    dy, h, means, scales, dw, db, rows, columns, dy_stride, h_stride,
    CENTRED: tl.constexpr, HAS_WEIGHT: tl.constexpr, HAS_BIAS: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    """dw and db of COLUMNS columns, over every so many tiles of ROWS rows."""
    part = tl.program_id(1)
    column = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    dw_sum = tl.zeros((COLUMNS,), scales.dtype.element_ty)
    db_sum = tl.zeros((COLUMNS,), scales.dtype.element_ty)
    for tile in range(part, tl.cdiv(rows, ROWS), tl.num_programs(1)):
        row = tile * ROWS + tl.arange(0, ROWS)
        row_long = row.to(tl.int64)[:, None]
        inside = (row < rows)[:, None] & (column < columns)[None, :]
        g = wide(tl.load(dy + row_long * dy_stride + column[None, :], mask=inside, other=0.0))
        u = wide(tl.load(h + row_long * h_stride + column[None, :], mask=inside, other=0.0))
        if CENTRED:
            u -= tl.load(means + row, mask=row < rows, other=0.0)[:, None]
        u *= tl.load(scales + row, mask=row < rows, other=0.0)[:, None]
        dw_sum += tl.sum(g * u, axis=0)
        db_sum += tl.sum(g, axis=0)
    if HAS_WEIGHT:
        tl.store(dw + part * columns + column, dw_sum, mask=column < columns)
    if HAS_BIAS:
        tl.store(db + part * columns + column, db_sum, mask=column < columns)


def forward(
    x: Tensor, residual: Tensor | None, weight: Tensor | None, bias: Tensor | None, eps: float, centred: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """y and h like x (h empty without a residual), the rows' means (empty where not centred) and scales."""
    rows_x = as_rows(x)
    rows, columns = rows_x.shape
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    total = torch.empty_like(y) if residual is not None else y.new_empty(0)
    scales = x.new_empty(rows, dtype=wide_dtype(x.dtype))
    means = torch.empty_like(scales) if centred else scales.new_empty(0)
    if y.numel() == 0:
        return y, total, means, scales
    rows_residual = rows_x if residual is None else as_rows(residual)
    chosen = configuration(columns)
    tensors = (rows_x, rows_residual, rows_x if weight is None else weight, rows_x if bias is None else bias)
    arguments = (*tensors, y, total, means, scales)
    strides = (rows_x.stride(0), rows_residual.stride(0), eps)
    flags = _flags(residual, weight, bias, centred)
    if columns <= WHOLE:
        tile = {"ROWS": chosen["rows"], "COLUMNS": power_of_2(columns)}
        grid = (ceil_div(rows, chosen["rows"]),)
        launch(forward_whole, grid, *arguments, rows, columns, *strides, **flags, **tile, num_warps=chosen["warps"])
    else:
        launch(forward_blocks, (rows,), *arguments, columns, *strides, **flags, COLUMNS=4096, num_warps=8)
    return y, total, means, scales


def backward(
    dy: Tensor, dh: Tensor | None, h: Tensor, weight: Tensor | None, means: Tensor, scales: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """dx like h, dw and db [N] in the type that was computed in (empty without weight, without bias)."""
    rows_dy, rows_h = as_rows(dy), as_rows(h)
    rows, columns = rows_h.shape
    centred = means.numel() > 0
    dx = torch.empty_like(h, memory_format=torch.contiguous_format)
    rows_dh = rows_h if dh is None else as_rows(dh)
    chosen = backward_configuration(columns)
    whole = columns <= WHOLE_BACKWARD
    tiles = ceil_div(rows, chosen["rows"] if whole else COLUMN_ROWS)
    parts = min(tiles, processors(h.device) * chosen["waves"]) if whole else min(tiles, 8)
    dw = scales.new_empty((parts, columns if weight is not None else 0))
    db = scales.new_empty((parts, columns if has_bias else 0))
    if dx.numel():
        tensors = (rows_dy, rows_h, rows_h if weight is None else weight, rows_dh, means, scales, dx)
        strides = (rows_dy.stride(0), rows_h.stride(0), rows_dh.stride(0))
        flags = {"CENTRED": centred, "HAS_TOTAL": dh is not None, "HAS_WEIGHT": weight is not None}
        if whole:
            tile = {"ROWS": chosen["rows"], "COLUMNS": power_of_2(columns), "STAGES": chosen["stages"]}
            launch(
                backward_whole, (parts,), *tensors, dw, db, rows, columns, *strides, **flags, HAS_BIAS=has_bias, **tile,
                num_warps=chosen["warps"],
            )  # fmt: skip
        else:
            launch(backward_blocks, (rows,), *tensors, columns, *strides, **flags, COLUMNS=4096, num_warps=8)
            if weight is not None or has_bias:
                grid = (ceil_div(columns, COLUMN_WIDTH), parts)
                launch(
                    sums_over_rows, grid, rows_dy, rows_h, means, scales, dw, db, rows, columns, *strides[:2],
                    CENTRED=centred, HAS_WEIGHT=weight is not None, HAS_BIAS=has_bias, ROWS=COLUMN_ROWS,
                    COLUMNS=COLUMN_WIDTH, num_warps=4,
                )  # fmt: skip
    return dx, dw.sum(0), db.sum(0)


def _flags(residual: Tensor | None, weight: Tensor | None, bias: Tensor | None, centred: bool) -> dict[str, bool]:
    return {
        "CENTRED": centred,
        "HAS_RESIDUAL": residual is not None,
        "HAS_WEIGHT": weight is not None,
        "HAS_BIAS": bias is not None,
    }


SIZES = (128, 1024, 4096, 8192, 16384, 65536)
"""Columns that `variants` compiles for, one of each configuration."""


def variants(name: str, centred: bool) -> Iterator[Variant]:
    """The default configurations of forward and backward in bfloat16: residual, weight and, where centred, bias."""
    pointers = ("x", "residual", "weight", "bias", "y", "total", "dy", "h", "dh", "dx")
    types = dict.fromkeys(pointers, "*bf16:16") | dict.fromkeys(("means", "scales", "dw", "db"), "*fp32:16")
    types |= dict.fromkeys(("columns", "x_stride", "residual_stride", "dy_stride", "h_stride", "dh_stride"), "i32:16")
    types |= {"rows": "i32", "eps": "fp32"}
    flags: dict[str, Any] = {"CENTRED": centred, "HAS_WEIGHT": True, "HAS_BIAS": centred}
    for columns in SIZES:
        chosen, width = configuration(columns), min(power_of_2(columns), 4096)
        size = {"ROWS": chosen["rows"], "COLUMNS": power_of_2(columns)}
        kernel, tile = (forward_whole, size) if columns <= WHOLE else (forward_blocks, {"COLUMNS": width})
        constants = flags | {"HAS_RESIDUAL": True} | tile
        yield variant(f"{name} forward bf16 {columns}", kernel, types, constants, chosen["warps"])
        chosen = backward_configuration(columns)
        kernel, tile = backward_blocks, {"COLUMNS": width}
        if columns <= WHOLE_BACKWARD:
            kernel, tile = backward_whole, size | {"ROWS": chosen["rows"], "STAGES": chosen["stages"]}
        constants = flags | {"HAS_TOTAL": True} | tile
        yield variant(f"{name} backward bf16 {columns}", kernel, types, constants, chosen["warps"])
    constants = flags | {"ROWS": COLUMN_ROWS, "COLUMNS": COLUMN_WIDTH}
    yield variant(f"{name} sums over rows bf16", sums_over_rows, types, constants, 4)

# pyright: basic, reportGeneralTypeIssues=false, reportUnknownParameterType=false, reportMissingParameterType=false, reportUnknownVariableType=false
"""A linear layer whose weights are integers of 4 bits, with a scale, and maybe a zero point, for each group of them.

    z_mn = sum over groups g of scale_ng sum over k in g of x_mk (weight_nk - zero_ng) + bias_n
    y = activation(z) + residual

For few rows, as in decoding: weights are read once, and become numbers of x's type in registers. A byte is two weights
of a group of G, element j in its low bits and element G / 2 + j in its high ones, so that what each multiplies lies
side by side in x. In the low bits of a mantissa an integer is a number at once: 128 + v in bfloat16, 1024 + v in
float16.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from opweld.errors import InputError
from opweld.kernels.activations import check_activation
from opweld.kernels.arguments import as_rows, check_like, check_shape, check_tensor
from opweld.kernels.devices import processors
from opweld.kernels.grid_order import grouped
from opweld.kernels.matmul import combine, finish
from opweld.kernels.product import COMBINED
from opweld.kernels.registration import launch, operator
from opweld.kernels.sizes import ceil_div, power_of_2
from opweld.kernels.variant import Variant, variant

DTYPES = (torch.bfloat16, torch.float16)
GROUPS = (32, 64, 128, 256)

CANDIDATES = tuple(
    {"block_n": block_n, "warps": warps, "stages": stages, "waves": waves}
    for block_n, warps in ((32, 2), (32, 4), (64, 4), (128, 4), (128, 8))
    for stages in (3, 5)
    for waves in (2, 4)
)
"""Configurations that a benchmark may try in place of `configuration`'s."""


def configuration(rows: int) -> dict[str, int]:
    """Columns of a tile, warps, stages, and how many programs a multiprocessor has at least."""
    return {"block_n": 64, "warps": 4, "stages": 4, "waves": 4 if rows <= 16 else 2}


@triton.jit
def weights_of(bits, zero, DTYPE: tl.constexpr):
    """Integers of 4 bits less their zeros, [N, 1], as numbers of a type: exact."""
    if tl.bfloat16 == DTYPE:
        return (bits.to(tl.int16) | 0x4300).to(tl.bfloat16, bitcast=True) - (zero + 128).to(tl.bfloat16)
    else:
        return (bits.to(tl.int16) | 0x6400).to(tl.float16, bitcast=True) - (zero + 1024).to(tl.float16)


@triton.jit
def multiply(
    x, packed, scale, zero, out, bias, residual, partial, M, N, groups, x_stride, out_stride, residual_stride,
    ACTIVATION: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_RESIDUAL: tl.constexpr, HAS_ZERO: tl.constexpr,
    GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SPLIT: tl.constexpr,
):  # fmt: skip
    """A tile of the product, or of every so many groups of its sums."""
    tile_m, tile_n = grouped(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), 8)
    part = tl.program_id(1)
    row = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    half: tl.constexpr = GROUP // 2
    k = tl.arange(0, half)
    x += row.to(tl.int64)[:, None] * x_stride + k[None, :]
    packed += column.to(tl.int64)[:, None] * (groups * half) + k[None, :]
    at = column.to(tl.int64) * groups
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for group in range(part, groups, SPLIT):
        first = tl.load(x + group * GROUP, mask=(row < M)[:, None], other=0.0)
        second = tl.load(x + group * GROUP + half, mask=(row < M)[:, None], other=0.0)
        both = tl.load(packed + group * half, mask=(column < N)[:, None], other=0)
        if HAS_ZERO:
            z = tl.load(zero + at + group, mask=column < N, other=0)[:, None].to(tl.int32)
        else:
            z = tl.full((1, 1), 8, tl.int32)
        sums = tl.dot(first, weights_of(both & 15, z, x.dtype.element_ty).T)
        sums = tl.dot(second, weights_of(both >> 4, z, x.dtype.element_ty).T, sums)
        acc += sums * tl.load(scale + at + group, mask=column < N, other=0.0).to(tl.float32)[None, :]
    if SPLIT == 1:
        finish(
            acc, tile_m * BLOCK_M, tile_n * BLOCK_N, out, out, bias, residual, scale, scale, M, N, out_stride,
            residual_stride, ACTIVATION, HAS_BIAS, HAS_RESIDUAL, False, False, False,
        )  # fmt: skip
    else:
        inside = (row < M)[:, None] & (column < N)[None, :]
        partial += part.to(tl.int64) * M * N
        tl.store(partial + row.to(tl.int64)[:, None] * N + column[None, :], acc, mask=inside)


@operator("linear_int4")
def _forward(
    x: Tensor,
    packed: Tensor,
    scale: Tensor,
    zero: Tensor | None,
    bias: Tensor | None,
    residual: Tensor | None,
    activation: str,
) -> Tensor:
    (m, k), n, groups = x.shape, packed.shape[0], scale.shape[1]
    out = x.new_empty((m, n))
    if out.numel() == 0:
        return out
    nothing = x.new_empty(0)
    chosen = configuration(m)
    block_m = max(16, min(64, power_of_2(m)))
    tiles = ceil_div(m, block_m) * ceil_div(n, chosen["block_n"])
    split = max(1, min(chosen["waves"] * processors(x.device) // tiles, groups // 2, 16))
    partial = x.new_empty((split, m, n), dtype=torch.float32) if split > 1 else nothing
    epilogue = (nothing if bias is None else bias, nothing if residual is None else residual)
    strides = (n, n if residual is None else residual.stride(0))
    flags = {"ACTIVATION": activation, "HAS_BIAS": bias is not None, "HAS_RESIDUAL": residual is not None}
    launch(
        multiply, (tiles, split), x, packed, scale, packed if zero is None else zero, out, *epilogue, partial, m, n,
        groups, x.stride(0), *strides, **flags, HAS_ZERO=zero is not None, GROUP=k // groups if groups else GROUPS[0],
        BLOCK_M=block_m, BLOCK_N=chosen["block_n"], SPLIT=split, num_warps=chosen["warps"], num_stages=chosen["stages"],
    )  # fmt: skip
    if split > 1:
        grid = (ceil_div(m, COMBINED[0]), ceil_div(n, COMBINED[1]))
        launch(
            combine, grid, partial, out, nothing, *epilogue, nothing, nothing, m, n, *strides, **flags, SAVE=False,
            SCALED=False, SPLIT=split, BLOCK_M=COMBINED[0], BLOCK_N=COMBINED[1], num_warps=4,
        )  # fmt: skip
    return out


def quantize_int4(weight: Tensor, group: int = 128) -> tuple[Tensor, Tensor]:
    """Weights [N, K] as bytes [N, K / 2] of `linear_int4`, and scales [N, K / group] in the type of weight: the largest
    magnitude of a group is 7, zero is 8.

    Raises:
        InputError: K is no multiple of the group, or the group is not 32, 64, 128 or 256.
    """
    _check_group(weight.shape[1], group)
    n, k = weight.shape
    grouped_weight = weight.float().view(n, k // group, group)
    scale = (grouped_weight.abs().amax(-1) / 7).to(weight.dtype)
    steps = scale.float().clamp_min(torch.finfo(torch.float32).tiny).unsqueeze(-1)
    return pack_int4(((grouped_weight / steps).round().clamp(-8, 7) + 8).to(torch.uint8).view(n, k), group), scale


def pack_int4(weight: Tensor, group: int) -> Tensor:
    """Numbers from 0 to 15, uint8 [N, K], as bytes [N, K / 2] of `linear_int4`.

    Raises:
        InputError: K is no multiple of the group, or the group is not 32, 64, 128 or 256.
    """
    _check_group(weight.shape[1], group)
    n, k = weight.shape
    low, high = weight.view(n, k // group, group).chunk(2, -1)
    return (low | (high << 4)).reshape(n, k // 2)


def _check_group(k: int, group: int) -> None:
    if group not in GROUPS or k % group:
        known = ", ".join(map(str, GROUPS))
        raise InputError(
            f"{k} weights of a row are no whole groups of {group}, one of {known}: pad them, or take another"
        )


def linear_int4(
    x: Tensor,
    packed: Tensor,
    scale: Tensor,
    zero: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    activation: str = "none",
    residual: Tensor | None = None,
) -> Tensor:
    """A linear layer of weights of 4 bits; not differentiable.

    Args:
        x: [..., K], bfloat16 or float16.
        packed: [N, K / 2], uint8, dense: see `pack_int4` and `quantize_int4`.
        scale: [N, K / G], as x, dense; G is 32, 64, 128 or 256.
        zero: [N, K / G], uint8, from 0 to 15; 8 without one.
        bias: [N], as x.
        activation: none, relu, silu, gelu or gelu_tanh.
        residual: [..., N], as x.

    Returns:
        [..., N], as x.

    Raises:
        InputError: dtypes, shapes, devices or options do not fit.
    """
    check_tensor("x", x, DTYPES, range(1, 9))
    check_tensor("packed", packed, (torch.uint8,), range(2, 3))
    check_like("scale", scale, "x", x)
    check_tensor("scale", scale, DTYPES, range(2, 3))
    n, k = packed.shape[0], x.shape[-1]
    check_shape("packed", packed, (n, k // 2), "half a byte for each of what goes in, the last dimension of x")
    groups = scale.shape[1]
    check_shape("scale", scale, (n, groups), "a number for each group of each row of packed")
    if k or groups:
        _check_group(k, k // groups if groups else 0)
    shape = (*x.shape[:-1], n)
    if zero is not None:
        check_tensor("zero", zero, (torch.uint8,))
        check_shape("zero", zero, tuple(scale.shape), "as scale")
    for name, tensor, expected in (("bias", bias, (n,)), ("residual", residual, shape)):
        if tensor is not None:
            check_like(name, tensor, "x", x)
            check_shape(name, tensor, expected, "it is added to what comes out")
    check_activation(activation)
    weights = [None if one is None else one.contiguous() for one in (packed, scale, zero, bias)]
    rows = None if residual is None else as_rows(residual)
    return _forward(as_rows(x), *weights, rows, activation).view(shape)


def variants(arch: int) -> Iterator[Variant]:
    """What is compiled ahead of time for an architecture, as 90 for sm_90: bfloat16, groups of 128."""
    pointers = dict.fromkeys(("x", "scale", "out", "bias", "residual"), "*bf16:16")
    types = pointers | dict.fromkeys(("packed", "zero"), "*u8:16") | {"partial": "*fp32:16", "M": "i32"}
    types |= dict.fromkeys(("N", "groups", "x_stride", "out_stride", "residual_stride"), "i32:16")
    flags: dict[str, Any] = {"ACTIVATION": "gelu", "HAS_BIAS": True, "HAS_RESIDUAL": True, "GROUP": 128}
    for rows, split in ((16, 4), (64, 1)):
        chosen = configuration(rows)
        for has_zero in (False, True):
            block_m = max(16, min(64, rows))
            constants = flags | {"BLOCK_M": block_m, "BLOCK_N": chosen["block_n"], "SPLIT": split, "HAS_ZERO": has_zero}
            name = f"linear_int4 bf16 {block_m}x{chosen['block_n']}{' zeros' if has_zero else ''}"
            yield variant(name, multiply, types, constants, chosen["warps"], chosen["stages"])

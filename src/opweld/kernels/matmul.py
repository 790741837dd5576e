# pyright: basic, reportGeneralTypeIssues=false, reportUnknownParameterType=false, reportMissingParameterType=false, reportUnknownVariableType=false
"""The template of products, with what follows them on the accumulators.

    z_mn = scale_a_m scale_b_n sum over k of a_mk b_nk + bias_n
    out = activation(z) + residual

Three kernels. `multiply` reads operands through pointers, of any strides, a tile a program; it may split the sum over k
among programs, whose partial sums `combine` adds and finishes. `multiply_tma` reads them through tensor descriptors
(sm_90): programs stay, and take tile after tile, the loads of the next running while the last is stored.
Accumulators are float32, of int8 int32.
"""

from __future__ import annotations

import triton
import triton.language as tl

from opweld.kernels.activations import activate
from opweld.kernels.grid_order import grouped


@triton.jit
def finish(
    acc, m, n, out, saved, bias, residual, scale_a, scale_b, M, N, out_stride, residual_stride,
    ACTIVATION: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_RESIDUAL: tl.constexpr, SAVE: tl.constexpr,
    SCALED: tl.constexpr, OUT_DESCRIBED: tl.constexpr,
):  # fmt: skip
    """What follows a product, on the tile of accumulators at row m and column n: scales, bias, activation, residual;
    stored. out is a descriptor where OUT_DESCRIBED, else an address."""
    row = m + tl.arange(0, acc.shape[0])
    column = n + tl.arange(0, acc.shape[1])
    inside = (row < M)[:, None] & (column < N)[None, :]
    row_long = row.to(tl.int64)[:, None]
    z = acc.to(tl.float32)
    if SCALED:
        z *= tl.load(scale_a + row, mask=row < M, other=0.0)[:, None]
        z *= tl.load(scale_b + column, mask=column < N, other=0.0)[None, :]
    if HAS_BIAS:
        z += tl.load(bias + column, mask=column < N, other=0.0).to(tl.float32)[None, :]
    if SAVE:
        z = z.to(saved.dtype.element_ty)
        tl.store(saved + row_long * out_stride + column[None, :], z, mask=inside)
        z = z.to(tl.float32)  # what backward sees
    z = activate(z, ACTIVATION)
    if HAS_RESIDUAL:
        z += tl.load(residual + row_long * residual_stride + column[None, :], mask=inside, other=0.0).to(tl.float32)
    if OUT_DESCRIBED:
        out.store([m, n], z.to(out.dtype))
    else:
        tl.store(out + row_long * out_stride + column[None, :], z.to(out.dtype.element_ty), mask=inside)


@triton.jit
def halves(tile, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The left and the right half of the columns of a tile."""
    return tl.split(tl.permute(tl.reshape(tile, (ROWS, 2, COLUMNS // 2)), (0, 2, 1)))


@triton.jit
def finish_parts(
    acc, tile_m, tile_n, out, saved, bias, residual, scale_a, scale_b, M, N, out_stride, residual_stride,
    ACTIVATION: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_RESIDUAL: tl.constexpr, SAVE: tl.constexpr,
    SCALED: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PARTS: tl.constexpr,
    OUT_DESCRIBED: tl.constexpr,
):  # fmt: skip
    """A tile finished in PARTS, 1, 2 or 4, each with that much of the registers and of shared memory."""
    m, n = tile_m * BLOCK_M, tile_n * BLOCK_N
    if PARTS == 1:
        finish(
            acc, m, n, out, saved, bias, residual, scale_a, scale_b, M, N, out_stride, residual_stride,
            ACTIVATION, HAS_BIAS, HAS_RESIDUAL, SAVE, SCALED, OUT_DESCRIBED,
        )  # fmt: skip
    else:
        tl.static_assert(PARTS == 2 or PARTS == 4)
        left, right = halves(acc, BLOCK_M, BLOCK_N)
        for side in tl.static_range(2):
            half = left if side == 0 else right
            start = n + side * (BLOCK_N // 2)
            if PARTS == 2:
                finish(
                    half, m, start, out, saved, bias, residual, scale_a, scale_b, M, N, out_stride, residual_stride,
                    ACTIVATION, HAS_BIAS, HAS_RESIDUAL, SAVE, SCALED, OUT_DESCRIBED,
                )  # fmt: skip
            else:
                first, second = halves(half, BLOCK_M, BLOCK_N // 2)
                finish(
                    first, m, start, out, saved, bias, residual, scale_a, scale_b, M, N, out_stride,
                    residual_stride, ACTIVATION, HAS_BIAS, HAS_RESIDUAL, SAVE, SCALED, OUT_DESCRIBED,
                )  # fmt: skip
                finish(
                    second, m, start + BLOCK_N // 4, out, saved, bias, residual, scale_a, scale_b, M, N, out_stride,
                    residual_stride, ACTIVATION, HAS_BIAS, HAS_RESIDUAL, SAVE, SCALED, OUT_DESCRIBED,
                )  # fmt: skip


@triton.jit
def multiply(
    a, b, out, saved, bias, residual, scale_a, scale_b, partial, M, N, K,
    a_m, a_k, b_n, b_k, out_stride, residual_stride,
    ACTIVATION: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_RESIDUAL: tl.constexpr, SAVE: tl.constexpr,
    SCALED: tl.constexpr, PRECISION: tl.constexpr, IMPRECISE: tl.constexpr, EVEN_MN: tl.constexpr,
    EVEN_K: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    SPLIT: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """A tile of the product, or of a part of its sums; EVEN_MN and EVEN_K say that tiles and parts fit whole."""
    tile_m, tile_n = grouped(tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N), GROUP)
    part = tl.program_id(1)
    row = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    k = part * BLOCK_K + tl.arange(0, BLOCK_K)
    a += row.to(tl.int64)[:, None] * a_m + k.to(tl.int64)[None, :] * a_k
    b += column.to(tl.int64)[None, :] * b_n + k.to(tl.int64)[:, None] * b_k
    # tl.dot has accumulators of int32 for int8.
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.int32 if a.dtype.element_ty == tl.int8 else tl.float32)
    for start in range(tl.cdiv(K, BLOCK_K * SPLIT)):
        if EVEN_MN and EVEN_K:
            x = tl.load(a)
            y = tl.load(b)
        else:
            left = K - start * (BLOCK_K * SPLIT)
            inside = k < left
            if EVEN_MN:
                x = tl.load(a, mask=inside[None, :], other=0.0)
                y = tl.load(b, mask=inside[:, None], other=0.0)
            elif EVEN_K:
                x = tl.load(a, mask=(row < M)[:, None], other=0.0)
                y = tl.load(b, mask=(column < N)[None, :], other=0.0)
            else:
                x = tl.load(a, mask=(row < M)[:, None] & inside[None, :], other=0.0)
                y = tl.load(b, mask=(column < N)[None, :] & inside[:, None], other=0.0)
        acc = tl.dot(x, y, acc, input_precision=PRECISION, max_num_imprecise_acc=IMPRECISE, out_dtype=acc.dtype)
        a += BLOCK_K * SPLIT * a_k
        b += BLOCK_K * SPLIT * b_k
    if SPLIT == 1:
        finish_parts(
            acc, tile_m, tile_n, out, saved, bias, residual, scale_a, scale_b, M, N, out_stride, residual_stride,
            ACTIVATION, HAS_BIAS, HAS_RESIDUAL, SAVE, SCALED, BLOCK_M, BLOCK_N, PARTS,
            False,
        )  # fmt: skip
    else:
        inside = (row < M)[:, None] & (column < N)[None, :]
        partial += part.to(tl.int64) * M * N
        tl.store(partial + row.to(tl.int64)[:, None] * N + column[None, :], acc, mask=inside)


@triton.jit
def combine(
    partial, out, saved, bias, residual, scale_a, scale_b, M, N, out_stride, residual_stride,
    ACTIVATION: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_RESIDUAL: tl.constexpr, SAVE: tl.constexpr,
    SCALED: tl.constexpr, SPLIT: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """The sum of SPLIT partial sums, in their order, finished."""
    row = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    column = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = (row < M)[:, None] & (column < N)[None, :]
    partial += row.to(tl.int64)[:, None] * N + column[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), partial.dtype.element_ty)
    for part in tl.static_range(SPLIT):
        acc += tl.load(partial + part * (tl.cast(M, tl.int64) * N), mask=inside, other=0)  # M of 1 is a constant
    finish(
        acc, tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N, out, saved, bias, residual, scale_a, scale_b, M, N,
        out_stride, residual_stride,
        ACTIVATION, HAS_BIAS, HAS_RESIDUAL, SAVE, SCALED, False,
    )  # fmt: skip


@triton.jit
def multiply_tma(
    a, b, out, saved, bias, residual, scale_a, scale_b, M, N, K, out_stride, residual_stride,
    A_TURNED: tl.constexpr, B_TURNED: tl.constexpr,
    ACTIVATION: tl.constexpr, HAS_BIAS: tl.constexpr, HAS_RESIDUAL: tl.constexpr, SAVE: tl.constexpr,
    SCALED: tl.constexpr, PRECISION: tl.constexpr, IMPRECISE: tl.constexpr, INTEGERS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr, PARTS: tl.constexpr,
    FLAT: tl.constexpr, OUT_DESCRIBED: tl.constexpr,
):  # fmt: skip
    """Every so many tiles of the product. a and b are descriptors of [M, K] and [N, K], where turned of [K, M] and
    [K, N], which fill what is beyond them with zeros. FLAT: one pipeline of loads over all tiles, else one for each."""
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, tl.num_programs(0), flatten=FLAT):
        tile_m, tile_n = grouped(tile, tiles_m, tiles_n, GROUP)
        acc = tl.zeros((BLOCK_M, BLOCK_N), tl.int32 if INTEGERS else tl.float32)
        for step in range(tl.cdiv(K, BLOCK_K)):
            m, n, k = tile_m * BLOCK_M, tile_n * BLOCK_N, step * BLOCK_K
            x = a.load([k, m]).T if A_TURNED else a.load([m, k])
            y = b.load([k, n]) if B_TURNED else b.load([n, k]).T
            acc = tl.dot(x, y, acc, input_precision=PRECISION, max_num_imprecise_acc=IMPRECISE, out_dtype=acc.dtype)
        finish_parts(
            acc, tile_m, tile_n, out, saved, bias, residual, scale_a, scale_b, M, N, out_stride, residual_stride,
            ACTIVATION, HAS_BIAS, HAS_RESIDUAL, SAVE, SCALED, BLOCK_M, BLOCK_N, PARTS,
            OUT_DESCRIBED,
        )  # fmt: skip

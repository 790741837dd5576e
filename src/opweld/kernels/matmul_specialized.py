# pyright: basic, reportGeneralTypeIssues=false, reportAssignmentType=false, reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false, reportUnknownParameterType=false
"""The template of products with specialised warps (sm_90), in Gluon: of 16 bits, both operands along the sum.

    out = activation(sum over k of a_mk b_nk + bias_n) + residual

Programs stay and take tile after tile. One warp loads, a stage of both operands at a time, and goes on to the next tile
while two groups of 4 warps, each of 64 rows, finish the last; a tile of the residual is loaded to where the result of
that tile will lie in shared memory. Gluon's language has no types that a checker knows.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from opweld.kernels.activations import activate
from opweld.kernels.gluon_descriptor import descriptor
from opweld.kernels.grid_order import grouped
from opweld.kernels.launches import Launch
from opweld.kernels.sizes import ceil_div

GROUPS, ROWS = 2, 64
"""Groups of warps that compute, and rows of one, as many as one instruction of its tensor cores multiplies."""

SHARED_BYTES = 226 << 10
"""Shared memory of a program, without what barriers take."""


@gluon.jit
def _load(
    operands, tiles, barriers, M, N, K,
    GROUPS: gl.constexpr, ROWS: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, STAGES: gl.constexpr,
    GROUP: gl.constexpr, PARTS: gl.constexpr, HAS_RESIDUAL: gl.constexpr,
):  # fmt: skip
    """Fills stages, and parts of the residual, in the order in which they are needed, each when it is free."""
    a, b, residual = operands
    a_tiles, b_tiles, parts = tiles
    ready, free, part_ready, part_free = barriers
    tiles_m = gl.cdiv(M, GROUPS * ROWS)
    tiles_n = gl.cdiv(N, BLOCK_N)
    step = 0
    part_phase = 1
    for tile in range(gl.program_id(0), tiles_m * tiles_n, gl.num_programs(0)):
        tile_m, tile_n = grouped(tile, tiles_m, tiles_n, GROUP)
        m = tile_m * (GROUPS * ROWS)
        n = tile_n * BLOCK_N
        for number in range(gl.cdiv(K, BLOCK_K)):
            stage = step % STAGES
            mbarrier.wait(free.index(stage), (step // STAGES) & 1 ^ 1)
            mbarrier.expect(ready.index(stage), GROUPS * a.block_type.nbytes + b.block_type.nbytes)
            for who in gl.static_range(GROUPS):
                tma.async_copy_global_to_shared(
                    a, [m + who * ROWS, number * BLOCK_K], ready.index(stage), a_tiles.index(stage * GROUPS + who)
                )  # fmt: skip
            tma.async_copy_global_to_shared(b, [n, number * BLOCK_K], ready.index(stage), b_tiles.index(stage))
            step += 1
        if HAS_RESIDUAL:
            for who in gl.static_range(GROUPS):
                for part in gl.static_range(PARTS):
                    slot = who * PARTS + part
                    mbarrier.wait(part_free.index(slot), part_phase)
                    mbarrier.expect(part_ready.index(slot), residual.block_type.nbytes)
                    tma.async_copy_global_to_shared(
                        residual, [m + who * ROWS, n + part * (BLOCK_N // PARTS)], part_ready.index(slot),
                        parts.index(slot),
                    )  # fmt: skip
            part_phase ^= 1


@gluon.jit
def _finish(
    z, WHO: gl.constexpr, part: gl.constexpr, phase, m, n, N, results, parts, part_ready, part_free,
    ROWS: gl.constexpr, COLUMNS: gl.constexpr, SLOTS: gl.constexpr,
    ACTIVATION: gl.constexpr, HAS_BIAS: gl.constexpr, HAS_RESIDUAL: gl.constexpr,
):  # fmt: skip
    """What follows the sums of one part of a tile's columns, which begin at n."""
    out, bias = results
    LAYOUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, COLUMNS, 16])
    n += part * COLUMNS
    slot = WHO * SLOTS + part % SLOTS
    tile = parts.index(slot)
    z = gl.convert_layout(z, LAYOUT)
    if HAS_BIAS:
        columns = n + gl.arange(0, COLUMNS, gl.SliceLayout(0, LAYOUT))
        z += gl.load(bias + columns, mask=columns < N, other=0.0).to(gl.float32)[None, :]
    z = activate(z, ACTIVATION)
    if HAS_RESIDUAL:
        mbarrier.wait(part_ready.index(slot), phase)
        z += tile.load(LAYOUT).to(gl.float32)
    else:
        tma.store_wait(SLOTS - 1)  # what lay in this slot has been read
    tile.store(z.to(out.dtype))
    fence_async_shared()
    tma.async_copy_shared_to_global(out, [m, n], tile)
    if HAS_RESIDUAL:
        tma.store_wait(0)
        mbarrier.arrive(part_free.index(slot), count=1)


@gluon.jit
def _halves(tile, ROWS: gl.constexpr, COLUMNS: gl.constexpr):
    """The left and the right half of the columns of a tile."""
    return tile.reshape([ROWS, 2, COLUMNS // 2]).permute([0, 2, 1]).split()


@gluon.jit
def _compute(
    WHO: gl.constexpr, results, tiles, barriers, M, N, K,
    GROUPS: gl.constexpr, ROWS: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, STAGES: gl.constexpr,
    GROUP: gl.constexpr, PARTS: gl.constexpr, SLOTS: gl.constexpr,
    ACTIVATION: gl.constexpr, HAS_BIAS: gl.constexpr, HAS_RESIDUAL: gl.constexpr,
):  # fmt: skip
    """What group WHO does: its rows of each tile."""
    a_tiles, b_tiles, parts = tiles
    ready, free, part_ready, part_free = barriers
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    COLUMNS: gl.constexpr = BLOCK_N // PARTS
    tiles_m = gl.cdiv(M, GROUPS * ROWS)
    tiles_n = gl.cdiv(N, BLOCK_N)
    step = 0
    phase = 0
    for tile in range(gl.program_id(0), tiles_m * tiles_n, gl.num_programs(0)):
        tile_m, tile_n = grouped(tile, tiles_m, tiles_n, GROUP)
        m = tile_m * (GROUPS * ROWS) + WHO * ROWS
        n = tile_n * BLOCK_N
        sums = gl.zeros([ROWS, BLOCK_N], gl.float32, SUMS)
        for number in range(gl.cdiv(K, BLOCK_K)):
            stage = step % STAGES
            mbarrier.wait(ready.index(stage), (step // STAGES) & 1)
            rows = a_tiles.index(stage * GROUPS + WHO)
            sums = warpgroup_mma(rows, b_tiles.index(stage).permute((1, 0)), sums, use_acc=number > 0, is_async=True)
            # One stage's products stay under way: those of the stage before are done.
            sums = warpgroup_mma_wait(1, deps=[sums])
            mbarrier.arrive(free.index((step - 1) % STAGES), count=1, pred=number > 0)
            step += 1
        sums = warpgroup_mma_wait(0, deps=[sums])
        mbarrier.arrive(free.index((step - 1) % STAGES), count=1)
        for part in gl.static_range(PARTS):
            z = sums
            if PARTS == 2:
                left, right = _halves(sums, ROWS, BLOCK_N)
                z = left if part == 0 else right
            elif PARTS == 4:
                left, right = _halves(sums, ROWS, BLOCK_N)
                first, second = _halves(left if part < 2 else right, ROWS, BLOCK_N // 2)
                z = first if part % 2 == 0 else second
            _finish(
                z, WHO, part, phase, m, n, N, results, parts, part_ready, part_free, ROWS, COLUMNS, SLOTS,
                ACTIVATION, HAS_BIAS, HAS_RESIDUAL,
            )  # fmt: skip
        phase ^= 1
    tma.store_wait(0)


@gluon.jit
def multiply_specialized(
    a, b, out, residual, bias, M, N, K,
    STAGES: gl.constexpr, GROUPS: gl.constexpr, GROUP: gl.constexpr, PARTS: gl.constexpr, SLOTS: gl.constexpr,
    ACTIVATION: gl.constexpr, HAS_BIAS: gl.constexpr, HAS_RESIDUAL: gl.constexpr,
):  # fmt: skip
    """Every so many tiles of the product; a, b, out and residual are descriptors of [M, K], [N, K] and [M, N]."""
    ROWS: gl.constexpr = a.block_shape[0]
    BLOCK_K: gl.constexpr = a.block_shape[1]
    BLOCK_N: gl.constexpr = b.block_shape[0]
    BARRIER: gl.constexpr = mbarrier.MBarrierLayout()
    a_tiles = gl.allocate_shared_memory(a.dtype, [STAGES * GROUPS, ROWS, BLOCK_K], a.layout)
    b_tiles = gl.allocate_shared_memory(b.dtype, [STAGES, BLOCK_N, BLOCK_K], b.layout)
    parts = gl.allocate_shared_memory(out.dtype, [GROUPS * SLOTS, ROWS, BLOCK_N // PARTS], out.layout)
    ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BARRIER)
    free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BARRIER)
    part_ready = gl.allocate_shared_memory(gl.int64, [GROUPS * SLOTS, 1], BARRIER)
    part_free = gl.allocate_shared_memory(gl.int64, [GROUPS * SLOTS, 1], BARRIER)
    for stage in gl.static_range(STAGES):
        mbarrier.init(ready.index(stage), count=1)
        mbarrier.init(free.index(stage), count=GROUPS)
    for slot in gl.static_range(GROUPS * SLOTS):
        mbarrier.init(part_ready.index(slot), count=1)
        mbarrier.init(part_free.index(slot), count=1)
    operands = (a, b, residual)
    results = (out, bias)
    tiles = (a_tiles, b_tiles, parts)
    barriers = (ready, free, part_ready, part_free)
    # Registers of a thread: what the warps that load give up, those that compute have more of.
    gl.warp_specialize(
        [
            (_compute, (0, results, tiles, barriers, M, N, K, GROUPS, ROWS, BLOCK_N, BLOCK_K, STAGES, GROUP, PARTS,
                        SLOTS, ACTIVATION, HAS_BIAS, HAS_RESIDUAL)),
            (_compute, (1, results, tiles, barriers, M, N, K, GROUPS, ROWS, BLOCK_N, BLOCK_K, STAGES, GROUP, PARTS,
                        SLOTS, ACTIVATION, HAS_BIAS, HAS_RESIDUAL)),
            (_load, (operands, tiles, barriers, M, N, K, GROUPS, ROWS, BLOCK_N, BLOCK_K, STAGES, GROUP, PARTS,
                     HAS_RESIDUAL)),
        ],
        [4, 1],
        [240, 24],
    )  # fmt: skip


def specialized_launch(
    out: Tensor, a: Tensor, b: Tensor, bias: Tensor | None, residual: Tensor | None, activation: str,
    *, block_n: int, block_k: int, stages: int, parts: int, group: int, cores: int,
) -> Launch:  # fmt: skip
    """Fills out for operands that have descriptors and lie along the sum. Of so many stages at most: the last part of a
    tile has its place in shared memory besides them, and of a residual all parts have."""
    (m, k), n = a.shape, b.shape[0]
    part_bytes = GROUPS * ROWS * block_n // parts * out.element_size()
    stage_bytes = (GROUPS * ROWS + block_n) * block_k * a.element_size()
    slots = 1 if residual is None else parts
    stages = min(stages, (SHARED_BYTES - slots * part_bytes) // stage_bytes)
    slots = min(parts, (SHARED_BYTES - stages * stage_bytes) // part_bytes)
    part = [ROWS, block_n // parts]
    arguments: dict[str, Any] = {
        "a": descriptor(a, [ROWS, block_k]),
        "b": descriptor(b, [block_n, block_k]),
        "out": descriptor(out, part),
        "residual": descriptor(out if residual is None else residual, part),
        "bias": bias,
        "M": m,
        "N": n,
        "K": k,
        "STAGES": stages,
        "GROUPS": GROUPS,
        "GROUP": group,
        "PARTS": parts,
        "SLOTS": slots,
        "ACTIVATION": activation,
        "HAS_BIAS": bias is not None,
        "HAS_RESIDUAL": residual is not None,
    }
    tiles = ceil_div(m, GROUPS * ROWS) * ceil_div(n, block_n)
    return Launch(multiply_specialized, min(tiles, cores), arguments, 4, stages)

# pyright: basic, reportGeneralTypeIssues=false, reportAssignmentType=false, reportArgumentType=false, reportCallIssue=false, reportAttributeAccessIssue=false, reportOperatorIssue=false, reportUnknownParameterType=false
"""Forward attention with specialised warps (sm_90), in Gluon, the language below Triton's in which a kernel says itself
what each warp does, where tiles lie and what waits for what. Plain attention: 16 bits, nothing but a causal bound.

One warp loads tiles of keys and values; two groups of 4 warps each compute 64 queries of the same head. A group
multiplies queries by the keys of one tile, then the probabilities of the tile before by its values, and while tensor
cores work on the second it computes the exponentials of the first. Tiles of keys are taken from the last to the first,
so that those which a bound or the length cuts come first. Gluon's language has no types that a checker knows.
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

from opweld.kernels.devices import processors
from opweld.kernels.flash_masks import LOG2E, key_tiles, visible
from opweld.kernels.flash_problem import VARYING, Configuration, Problem, strides
from opweld.kernels.flash_tiles import padded, parts_of, scheduled, section_of
from opweld.kernels.gluon_descriptor import descriptor
from opweld.kernels.launches import Launch

GROUPS, ROWS = 2, 64
"""Groups of warps that compute, and queries of one, as many as one instruction of its tensor cores multiplies."""


@gluon.jit
def _keys_of(first_row, length_k, offset, ROWS_ALL: gl.constexpr, BLOCK_N: gl.constexpr, CAUSAL: gl.constexpr):
    """How many tiles of keys are seen whole, which come first among those that are seen at all, and the number of
    these, at least one."""
    _, _, whole, end = key_tiles(first_row, length_k, offset, 0, 0, ROWS_ALL, BLOCK_N, False, CAUSAL)
    end = gl.maximum(end, 1)
    return gl.minimum(whole, end - 1), end


@gluon.jit
def _block_of(program, sizes, ROWS_ALL: gl.constexpr, BLOCK_N: gl.constexpr, CAUSAL: gl.constexpr):
    """What a program number stands for: batch, head, the first query; and the tiles of keys, as `_keys_of`."""
    blocks, sequence_heads, heads, _, section, _, length_k, offset = sizes
    block, sequence_head = scheduled(program, blocks, sequence_heads, section, CAUSAL)
    first_row = block * ROWS_ALL
    whole, end = _keys_of(first_row, length_k, offset, ROWS_ALL, BLOCK_N, CAUSAL)
    return sequence_head // heads, sequence_head % heads, first_row, whole, end


@gluon.jit
def _load(
    operands, tiles, barriers, sizes,
    GROUPS: gl.constexpr, ROWS: gl.constexpr, BLOCK_N: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr,
):  # fmt: skip
    """Fills tiles of queries, keys and values in the order in which they are needed, each when it is free."""
    query, key, value = operands
    q_tiles, k_tiles, v_tiles = tiles
    q_ready, q_free, k_ready, k_free, v_ready, v_free, _ = barriers
    blocks, sequence_heads, _, group, _, _, _, _ = sizes
    step = 0
    q_phase = 1
    for program in range(gl.program_id(0), blocks * sequence_heads, gl.num_programs(0)):
        batch, head, first_row, _whole, end = _block_of(program, sizes, GROUPS * ROWS, BLOCK_N, CAUSAL)
        for who in gl.static_range(GROUPS):
            ready = q_ready.index(who)
            mbarrier.wait(q_free.index(who), q_phase)
            mbarrier.expect(ready, query.block_type.nbytes)
            tma.async_copy_global_to_shared(
                query, [batch, head, first_row + who * ROWS, 0], ready, q_tiles.index(who)
            )  # fmt: skip
        q_phase ^= 1
        for number in range(end):
            first = (end - 1 - number) * BLOCK_N
            stage = step % STAGES
            phase = (step // STAGES) & 1 ^ 1
            mbarrier.wait(k_free.index(stage), phase)
            mbarrier.expect(k_ready.index(stage), key.block_type.nbytes)
            tma.async_copy_global_to_shared(
                key, [batch, head // group, first, 0], k_ready.index(stage), k_tiles.index(stage)
            )  # fmt: skip
            mbarrier.wait(v_free.index(stage), phase)
            mbarrier.expect(v_ready.index(stage), value.block_type.nbytes)
            tma.async_copy_global_to_shared(
                value, [batch, head // group, first, 0], v_ready.index(stage), v_tiles.index(stage)
            )  # fmt: skip
            step += 1


@gluon.jit
def _cut(
    scores, first_row, first, length_k, offset,
    LAYOUT: gl.constexpr, ROWS: gl.constexpr, BLOCK_N: gl.constexpr, CAUSAL: gl.constexpr,
):  # fmt: skip
    """Scores of a tile of keys that not all queries see, or that ends before it is full."""
    rows = first_row + gl.arange(0, ROWS, gl.SliceLayout(1, LAYOUT))[:, None]
    columns = first + gl.arange(0, BLOCK_N, gl.SliceLayout(0, LAYOUT))[None, :]
    seen = visible(rows, columns, length_k, offset, 0, 0, False, CAUSAL, True)
    return gl.where(seen, scores, float("-inf"))


@gluon.jit
def _softmax(scores, row_max, row_sum, factor, CUT: gl.constexpr):
    """Probabilities of a tile, by how much what was summed before shrinks, and the state after; in powers of two."""
    new_max = gl.maximum(row_max, gl.max(scores, 1) * factor)
    origin = new_max
    if CUT:
        # A row that has seen nothing: exp2(-inf - 0) is the zero that exp2(-inf - -inf) is not.
        origin = gl.where(new_max == float("-inf"), 0.0, new_max)
    probabilities = gl.exp2(scores * factor - origin[:, None])
    shrink = gl.exp2(row_max - origin)
    return probabilities, shrink, new_max, row_sum * shrink + gl.sum(probabilities, 1)


@gluon.jit
def _await_keys(
    k_ready, turns, step, more,
    WHO: gl.constexpr, STAGES: gl.constexpr, TURNS: gl.constexpr,
):  # fmt: skip
    """The keys of a step, if there is one, and the group's turn to multiply."""
    mbarrier.wait(k_ready.index(step % STAGES), (step // STAGES) & 1, pred=more)
    if TURNS:
        mbarrier.wait(turns.index(WHO), (step & 1) ^ (WHO == 0), pred=more)


@gluon.jit
def _attend(
    count, last, step, accumulator, weights, row_max, row_sum, queries, tiles, barriers, first_row, length_k, offset,
    factor, WHO: gl.constexpr, GROUPS: gl.constexpr, SCORES: gl.constexpr, SUMS: gl.constexpr, WEIGHTS: gl.constexpr,
    ROWS: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_D: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr,
    CUT: gl.constexpr, TURNS: gl.constexpr, EARLY: gl.constexpr,
):  # fmt: skip
    """`count` tiles of keys, from `last` down, whose keys are awaited: the sum of values up to the tile before the last
    one taken, the probabilities of that one, and the state of the softmax."""
    _, k_tiles, v_tiles = tiles
    _, _, k_ready, k_free, v_ready, v_free, turns = barriers
    for number in range(count):
        stage = step % STAGES
        before = (step - 1) % STAGES
        keys = k_tiles.index(stage).reshape([BLOCK_N, BLOCK_D]).permute((1, 0))
        nothing = gl.zeros([ROWS, BLOCK_N], gl.float32, SCORES)
        scores = warpgroup_mma(queries, keys, nothing, use_acc=False, is_async=True)
        mbarrier.wait(v_ready.index(before), ((step - 1) // STAGES) & 1)
        values = v_tiles.index(before).reshape([BLOCK_N, BLOCK_D])
        sums = warpgroup_mma(weights, values, accumulator, is_async=True)
        if TURNS:
            mbarrier.arrive(turns.index((WHO + 1) % GROUPS), count=1)
        scores = warpgroup_mma_wait(1, deps=[scores])
        mbarrier.arrive(k_free.index(stage), count=1)
        if CUT:
            scores = _cut(scores, first_row, (last - number) * BLOCK_N, length_k, offset, SCORES, ROWS, BLOCK_N, CAUSAL)
        probabilities, shrink, row_max, row_sum = _softmax(scores, row_max, row_sum, factor, CUT)
        if EARLY:
            after = gl.convert_layout(probabilities.to(queries.dtype), WEIGHTS)
        # The next tile's keys are awaited here, not where they are needed: this is a branch, beyond which ptxas moves
        # no exponential. Without it all of them would be computed after the wait for the values' products below.
        _await_keys(k_ready, turns, step + 1, last - number > 0, WHO, STAGES, TURNS)
        if EARLY:
            accumulator, weights, after = warpgroup_mma_wait(0, deps=[sums, weights, after])
            weights = after
        else:
            accumulator, weights, probabilities = warpgroup_mma_wait(0, deps=[sums, weights, probabilities])
            weights = gl.convert_layout(probabilities.to(queries.dtype), WEIGHTS)
        mbarrier.arrive(v_free.index(before), count=1)
        accumulator = accumulator * gl.convert_layout(shrink, gl.SliceLayout(1, SUMS))[:, None]
        step += 1
    return step, accumulator, weights, row_max, row_sum


@gluon.jit
def _compute(
    WHO: gl.constexpr, results, tiles, barriers, sizes, scale, stride_lse_b, stride_lse_h,
    GROUPS: gl.constexpr, ROWS: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_D: gl.constexpr, STAGES: gl.constexpr,
    CAUSAL: gl.constexpr, TURNS: gl.constexpr, EARLY: gl.constexpr,
):  # fmt: skip
    """What group WHO does: its rows of each block of queries."""
    output, log_sum_exp = results
    q_tiles, k_tiles, v_tiles = tiles
    q_ready, q_free, k_ready, k_free, v_ready, v_free, turns = barriers
    blocks, sequence_heads, _, _, _, length_q, length_k, offset = sizes
    SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    SUMS: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_D, 16])
    WEIGHTS: gl.constexpr = gl.DotOperandLayout(0, SUMS, 2)
    ROW: gl.constexpr = gl.SliceLayout(1, SCORES)
    factor = scale * LOG2E
    queries = q_tiles.index(WHO).reshape([ROWS, BLOCK_D])
    step = 0
    q_phase = 0
    for program in range(gl.program_id(0), blocks * sequence_heads, gl.num_programs(0)):
        # The same tiles for all groups: they are freed when all have read them.
        batch, head, block_row, whole, end = _block_of(program, sizes, GROUPS * ROWS, BLOCK_N, CAUSAL)
        first_row = block_row + WHO * ROWS
        mbarrier.wait(q_ready.index(WHO), q_phase)
        _await_keys(k_ready, turns, step, True, WHO, STAGES, TURNS)
        stage = step % STAGES
        keys = k_tiles.index(stage).reshape([BLOCK_N, BLOCK_D]).permute((1, 0))
        nothing = gl.zeros([ROWS, BLOCK_N], gl.float32, SCORES)
        scores = warpgroup_mma(queries, keys, nothing, use_acc=False, is_async=True)
        if TURNS:
            mbarrier.arrive(turns.index((WHO + 1) % GROUPS), count=1)
        scores = warpgroup_mma_wait(0, deps=[scores])
        mbarrier.arrive(k_free.index(stage), count=1)
        scores = _cut(scores, first_row, (end - 1) * BLOCK_N, length_k, offset, SCORES, ROWS, BLOCK_N, CAUSAL)
        row_max = gl.full([ROWS], float("-inf"), gl.float32, ROW)
        row_sum = gl.zeros([ROWS], gl.float32, ROW)
        probabilities, _shrink, row_max, row_sum = _softmax(scores, row_max, row_sum, factor, True)
        weights = gl.convert_layout(probabilities.to(queries.dtype), WEIGHTS)
        accumulator = gl.zeros([ROWS, BLOCK_D], gl.float32, SUMS)
        step += 1
        _await_keys(k_ready, turns, step, end > 1, WHO, STAGES, TURNS)
        if CAUSAL:
            step, accumulator, weights, row_max, row_sum = _attend(
                end - 1 - whole, end - 2, step, accumulator, weights, row_max, row_sum, queries, tiles, barriers,
                first_row, length_k, offset, factor, WHO, GROUPS, SCORES, SUMS, WEIGHTS, ROWS, BLOCK_N, BLOCK_D,
                STAGES, CAUSAL, True, TURNS, EARLY,
            )  # fmt: skip
        step, accumulator, weights, row_max, row_sum = _attend(
            whole, whole - 1, step, accumulator, weights, row_max, row_sum, queries, tiles, barriers,
            first_row, length_k, offset, factor, WHO, GROUPS, SCORES, SUMS, WEIGHTS, ROWS, BLOCK_N, BLOCK_D,
            STAGES, CAUSAL, False, TURNS, EARLY,
        )  # fmt: skip
        before = (step - 1) % STAGES
        mbarrier.wait(v_ready.index(before), ((step - 1) // STAGES) & 1)
        values = v_tiles.index(before).reshape([BLOCK_N, BLOCK_D])
        sums = warpgroup_mma(weights, values, accumulator, is_async=True)
        # A row that sees no key is zero, and its log-sum-exp -inf.
        denominator = gl.where(row_sum == 0.0, 1.0, row_sum)
        lse = (row_max + gl.log2(denominator)) / LOG2E
        rows = gl.arange(0, ROWS, ROW)
        target = log_sum_exp + gl.cast(batch, gl.int64) * stride_lse_b + gl.cast(head, gl.int64) * stride_lse_h
        gl.store(target + first_row + rows, lse, mask=rows < length_q - first_row)
        accumulator, weights = warpgroup_mma_wait(0, deps=[sums, weights])
        mbarrier.arrive(v_free.index(before), count=1)
        accumulator = accumulator / gl.convert_layout(denominator, gl.SliceLayout(1, SUMS))[:, None]
        queries.store(accumulator.to(queries.dtype))  # their memory is free until the next block
        fence_async_shared()
        tma.async_copy_shared_to_global(output, [batch, head, first_row, 0], q_tiles.index(WHO))
        tma.store_wait(0)
        mbarrier.arrive(q_free.index(WHO), count=1)
        q_phase ^= 1


@gluon.jit(do_not_specialize=VARYING)
def attention_specialized_kernel(
    output, log_sum_exp, query, key, value, scale, max_length_q, max_length_k, sequences, heads, group, section,
    stride_lse_b, stride_lse_h,
    GROUPS: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr, TURNS: gl.constexpr, EARLY: gl.constexpr,
):  # fmt: skip
    """Blocks of GROUPS * 64 queries of one head, all that there are divided among programs."""
    ROWS: gl.constexpr = query.block_shape[2]
    BLOCK_D: gl.constexpr = query.block_shape[3]
    BLOCK_N: gl.constexpr = key.block_shape[2]
    BARRIER: gl.constexpr = mbarrier.MBarrierLayout()
    q_tiles = gl.allocate_shared_memory(query.dtype, [GROUPS, 1, 1, ROWS, BLOCK_D], query.layout)
    k_tiles = gl.allocate_shared_memory(key.dtype, [STAGES, 1, 1, BLOCK_N, BLOCK_D], key.layout)
    v_tiles = gl.allocate_shared_memory(value.dtype, [STAGES, 1, 1, BLOCK_N, BLOCK_D], value.layout)
    q_ready = gl.allocate_shared_memory(gl.int64, [GROUPS, 1], BARRIER)
    q_free = gl.allocate_shared_memory(gl.int64, [GROUPS, 1], BARRIER)
    turns = gl.allocate_shared_memory(gl.int64, [GROUPS, 1], BARRIER)
    k_ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BARRIER)
    k_free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BARRIER)
    v_ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BARRIER)
    v_free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], BARRIER)
    for who in gl.static_range(GROUPS):
        mbarrier.init(q_ready.index(who), count=1)
        mbarrier.init(q_free.index(who), count=1)
        mbarrier.init(turns.index(who), count=1)
    for stage in gl.static_range(STAGES):
        mbarrier.init(k_ready.index(stage), count=1)
        mbarrier.init(k_free.index(stage), count=GROUPS)
        mbarrier.init(v_ready.index(stage), count=1)
        mbarrier.init(v_free.index(stage), count=GROUPS)
    blocks = gl.cdiv(max_length_q, GROUPS * ROWS)
    offset = max_length_k - max_length_q
    sizes = (blocks, sequences * heads, heads, group, section, max_length_q, max_length_k, offset)
    operands = (query, key, value)
    results = (output, log_sum_exp)
    tiles = (q_tiles, k_tiles, v_tiles)
    barriers = (q_ready, q_free, k_ready, k_free, v_ready, v_free, turns)
    # Registers of a thread: what the warps that load give up, those that compute have more of.
    gl.warp_specialize(
        [
            (_compute, (0, results, tiles, barriers, sizes, scale, stride_lse_b, stride_lse_h,
                        GROUPS, ROWS, BLOCK_N, BLOCK_D, STAGES, CAUSAL, TURNS, EARLY)),
            (_compute, (1, results, tiles, barriers, sizes, scale, stride_lse_b, stride_lse_h,
                        GROUPS, ROWS, BLOCK_N, BLOCK_D, STAGES, CAUSAL, TURNS, EARLY)),
            (_load, (operands, tiles, barriers, sizes, GROUPS, ROWS, BLOCK_N, STAGES, CAUSAL)),
        ],
        [4, 1],
        [240, 24],
    )  # fmt: skip


def fits(problem: Problem, query: Tensor, arch: int) -> bool:
    """Whether it computes a problem whose operands have descriptors."""
    return arch // 10 == 9 and problem.is_plain and query.element_size() == 2


def specialized_launch(
    output: Tensor, log_sum_exp: Tensor, query: Tensor, key: Tensor, value: Tensor,
    problem: Problem, chosen: Configuration,
) -> Launch:  # fmt: skip
    """Fills output, dense, and log-sum-exp [B, H, Lq] for operands [B, H, L, D] that have descriptors."""
    _, heads, _, head_dim = query.shape
    block_d = padded(head_dim)
    group = heads // key.shape[1]
    sequences = problem.sequences(query)
    section = section_of(sequences * heads, group, problem.length_k, head_dim, query.element_size())
    arguments: dict[str, Any] = {
        "output": descriptor(output, [1, 1, ROWS, block_d]),
        "log_sum_exp": log_sum_exp,
        "query": descriptor(query, [1, 1, ROWS, block_d]),
        "key": descriptor(key, [1, 1, chosen.block_n, block_d]),
        "value": descriptor(value, [1, 1, chosen.block_n, block_d]),
        "scale": problem.scale,
        "max_length_q": problem.length_q,
        "max_length_k": problem.length_k,
        "sequences": sequences,
        "heads": heads,
        "group": group,
        "section": section if problem.is_causal else 1,
        **strides("lse", "bh", log_sum_exp.stride()),
        "GROUPS": GROUPS,
        "STAGES": chosen.stages,
        "CAUSAL": problem.is_causal,
        "TURNS": chosen.turns,
        "EARLY": chosen.early,
    }
    programs = parts_of(problem.length_q, GROUPS * ROWS) * sequences * heads
    if chosen.persistent:
        programs = min(programs, processors(query.device))
    return Launch(attention_specialized_kernel, programs, arguments, 4, chosen.stages)

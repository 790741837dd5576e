# pyright: basic, reportGeneralTypeIssues=false, reportAssignmentType=false, reportArgumentType=false
"""The forward kernel of `flash_attention`. Triton's language has no types that a checker knows."""

from __future__ import annotations

from itertools import product

import triton
import triton.language as tl
from torch import Tensor

from opweld.kernels.flash_masks import LOG2E, allowed, kept, key_tiles, soft_cap, visible, with_bias
from opweld.kernels.flash_problem import VARYING, Configuration, Problem, Table, block_lists, chosen_of, strides
from opweld.kernels.flash_specialized import fits, specialized_launch
from opweld.kernels.flash_tiles import (
    describable,
    descriptor,
    load_tile,
    padded,
    parts_of,
    scheduled,
    section_of,
    store_tile,
)
from opweld.kernels.launches import Launch


@triton.jit
def _attend(
    accumulator, row_max, row_sum, query, key, value, begin, end, indices,
    sequence, head, kv_batch, kv_head, start_k, first_row, length_q, length_k, offset, scale,
    bias, mask, slope, softcap, dropout, seed, window_left, window_right, heads,
    stride_k_n, stride_k_d, stride_v_n, stride_v_d, stride_bias_m, stride_bias_n, stride_mask_m, stride_mask_n,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr,
    BOUNDED_LEFT: tl.constexpr, BOUNDED_RIGHT: tl.constexpr, RAGGED: tl.constexpr, HAS_SLOPES: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr, HAS_DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr, DESCRIPTORS: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """One pass over tiles [begin, end) of keys: the state of the softmax and the weighted sum of values after them.

    Scores are kept in powers of two. MASKED: not all keys of a tile are seen."""
    modified: tl.constexpr = HAS_SOFTCAP or HAS_SLOPES or bias is not None
    may_be_empty: tl.constexpr = MASKED or bias is not None or mask is not None
    for tile in tl.range(begin, end):
        if indices is not None:
            per_block: tl.constexpr = BLOCK_COLUMNS // BLOCK_N
            first = tl.load(indices + tile // per_block) * BLOCK_COLUMNS + tile % per_block * BLOCK_N
        else:
            first = tile * BLOCK_N
        keys = load_tile(key, kv_batch, kv_head, start_k + first, start_k + length_k, stride_k_n, stride_k_d,
                         BLOCK_N, HEAD_DIM, BLOCK_D, DESCRIPTORS, MASKED)  # fmt: skip
        scores = tl.dot(query, keys.T, input_precision=PRECISION)
        rows = first_row + tl.arange(0, BLOCK_M)[:, None]
        columns = first + tl.arange(0, BLOCK_N)[None, :]
        if modified:
            scores *= scale
            if HAS_SOFTCAP:
                scores = soft_cap(scores, softcap)
            scores = with_bias(scores, rows, columns, first_row, first, length_q, length_k, offset,
                               bias, stride_bias_m, stride_bias_n, slope, HAS_SLOPES)  # fmt: skip
            factor = LOG2E
        else:
            factor = scale * LOG2E
        if MASKED:
            seen = visible(rows, columns, length_k, offset, window_left, window_right,
                           BOUNDED_LEFT, BOUNDED_RIGHT, RAGGED)  # fmt: skip
            scores = tl.where(seen, scores, float("-inf"))
        if mask is not None:
            seen = allowed(mask, rows, columns, first_row, first, length_q, length_k, stride_mask_m, stride_mask_n)
            scores = tl.where(seen, scores, float("-inf"))
        new_max = tl.maximum(row_max, tl.max(scores, 1) * factor)
        origin = new_max
        if may_be_empty:
            # A row that has seen nothing: exp2(-inf - 0) is the zero that exp2(-inf - -inf) is not.
            origin = tl.where(new_max == float("-inf"), 0.0, new_max)
        probabilities = tl.math.exp2(scores * factor - origin[:, None])
        shrink = tl.math.exp2(row_max - origin)
        row_sum = row_sum * shrink + tl.sum(probabilities, 1)
        accumulator = accumulator * shrink[:, None]
        if HAS_DROPOUT:
            keep = kept(seed, sequence * heads + head, rows, columns, dropout)
            probabilities = tl.where(keep, probabilities, 0.0)
        values = load_tile(value, kv_batch, kv_head, start_k + first, start_k + length_k, stride_v_n, stride_v_d,
                           BLOCK_N, HEAD_DIM, BLOCK_D, DESCRIPTORS, MASKED)  # fmt: skip
        accumulator = tl.dot(probabilities.to(values.dtype), values, accumulator, input_precision=PRECISION)
        row_max = new_max
    return accumulator, row_max, row_sum


@triton.jit
def _softmax(scores, row_max, row_sum, factor):
    """Probabilities of a tile whose keys are all seen, by how much what was summed before shrinks, the state after."""
    new_max = tl.maximum(row_max, tl.max(scores, 1) * factor)
    probabilities = tl.math.exp2(scores * factor - new_max[:, None])
    shrink = tl.math.exp2(row_max - new_max)
    return probabilities, shrink, new_max, row_sum * shrink + tl.sum(probabilities, 1)


@triton.jit
def _attend_overlapped(
    accumulator, row_max, row_sum, query, key, value, begin, end,
    kv_batch, kv_head, length_k, scale, stride_k_n, stride_k_d, stride_v_n, stride_v_d,
    BLOCK_N: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, PRECISION: tl.constexpr,
    DESCRIPTORS: tl.constexpr,
):  # fmt: skip
    """As `_attend`, of whole tiles of one sequence without options: the values of a tile are weighed one step later, so
    that tensor cores work while the exponentials of the next tile are computed, which nothing else waits for."""
    if begin < end:
        factor = scale * LOG2E
        keys = load_tile(key, kv_batch, kv_head, begin * BLOCK_N, length_k, stride_k_n, stride_k_d,
                         BLOCK_N, HEAD_DIM, BLOCK_D, DESCRIPTORS, False)  # fmt: skip
        scores = tl.dot(query, keys.T, input_precision=PRECISION)
        probabilities, shrink, row_max, row_sum = _softmax(scores, row_max, row_sum, factor)
        weights = probabilities.to(query.dtype)
        accumulator = accumulator * shrink[:, None]
        for tile in tl.range(begin + 1, end):
            keys = load_tile(key, kv_batch, kv_head, tile * BLOCK_N, length_k, stride_k_n, stride_k_d,
                             BLOCK_N, HEAD_DIM, BLOCK_D, DESCRIPTORS, False)  # fmt: skip
            scores = tl.dot(query, keys.T, input_precision=PRECISION)
            values = load_tile(value, kv_batch, kv_head, (tile - 1) * BLOCK_N, length_k, stride_v_n, stride_v_d,
                               BLOCK_N, HEAD_DIM, BLOCK_D, DESCRIPTORS, False)  # fmt: skip
            accumulator = tl.dot(weights, values, accumulator, input_precision=PRECISION)
            probabilities, shrink, row_max, row_sum = _softmax(scores, row_max, row_sum, factor)
            weights = probabilities.to(query.dtype)
            accumulator = accumulator * shrink[:, None]
        values = load_tile(value, kv_batch, kv_head, (end - 1) * BLOCK_N, length_k, stride_v_n, stride_v_d,
                           BLOCK_N, HEAD_DIM, BLOCK_D, DESCRIPTORS, False)  # fmt: skip
        accumulator = tl.dot(weights, values, accumulator, input_precision=PRECISION)
    return accumulator, row_max, row_sum


@triton.jit(do_not_specialize=VARYING)
def attention_forward_kernel(
    output, log_sum_exp, query, key, value, bias, mask, slopes, counts, indices, starts_q, starts_k,
    scale, softcap, dropout, seed, window_left, window_right, max_length_q, max_length_k,
    sequences, heads, group, section, blocks_n,
    stride_o_b, stride_o_h, stride_o_m, stride_lse_b, stride_lse_h,
    stride_q_b, stride_q_h, stride_q_m, stride_q_d, stride_k_b, stride_k_h, stride_k_n, stride_k_d,
    stride_v_b, stride_v_h, stride_v_n, stride_v_d, stride_bias_b, stride_bias_h, stride_bias_m, stride_bias_n,
    stride_mask_b, stride_mask_h, stride_mask_m, stride_mask_n, stride_slopes_b, stride_slopes_h,
    stride_blocks_b, stride_blocks_h, stride_blocks_m,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr,
    BOUNDED_LEFT: tl.constexpr, BOUNDED_RIGHT: tl.constexpr, RAGGED: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr, HAS_DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr, DESCRIPTORS: tl.constexpr, OVERLAPPED: tl.constexpr,
):  # fmt: skip
    """One tile of queries of one head: softmax(scores) value, and the logarithm of the softmax's denominator."""
    tiles = tl.cdiv(max_length_q, BLOCK_M)
    tile, sequence_head = scheduled(tl.program_id(0), tiles, sequences * heads, section, BOUNDED_RIGHT)
    sequence = sequence_head // heads
    head = sequence_head % heads
    kv_head = head // group
    first_row = tile * BLOCK_M
    length_q = max_length_q
    length_k = max_length_k
    start_q = 0
    start_k = 0
    batch = sequence
    if starts_q is not None:
        start_q = tl.load(starts_q + sequence)
        start_k = tl.load(starts_k + sequence)
        length_q = tl.load(starts_q + sequence + 1) - start_q
        length_k = tl.load(starts_k + sequence + 1) - start_k
        batch = 0
        if first_row >= length_q:
            return
    offset = length_k - length_q
    b = tl.cast(batch, tl.int64)
    h = tl.cast(head, tl.int64)
    if not DESCRIPTORS:
        query += b * stride_q_b + h * stride_q_h
        key += b * stride_k_b + kv_head * tl.cast(stride_k_h, tl.int64)
        value += b * stride_v_b + kv_head * tl.cast(stride_v_h, tl.int64)
    if bias is not None:
        bias += b * stride_bias_b + h * stride_bias_h
    if mask is not None:
        mask += b * stride_mask_b + h * stride_mask_h
    slope = 0.0
    if slopes is not None:
        slope = tl.load(slopes + sequence * stride_slopes_b + head * stride_slopes_h)

    queries = load_tile(query, batch, head, start_q + first_row, start_q + length_q, stride_q_m, stride_q_d,
                        BLOCK_M, HEAD_DIM, BLOCK_D, DESCRIPTORS, True)  # fmt: skip
    accumulator = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    row_max = tl.full([BLOCK_M], float("-inf"), tl.float32)
    row_sum = tl.zeros([BLOCK_M], tl.float32)
    begin, full_begin, full_end, end = key_tiles(first_row, length_k, offset, window_left, window_right,
                                                 BLOCK_M, BLOCK_N, BOUNDED_LEFT, BOUNDED_RIGHT)  # fmt: skip
    # One loop where tiles are listed; else whole tiles apart.
    single: tl.constexpr = counts is not None
    if counts is not None:
        block = b * stride_blocks_b + h * stride_blocks_h + (first_row // BLOCK_ROWS) * stride_blocks_m
        indices += block * blocks_n
        begin = 0
        end = tl.load(counts + block) * (BLOCK_COLUMNS // BLOCK_N)
    # Tiles may come in any order. What overlaps comes last: before another loop ptxas has each product waited for.
    WHOLE: tl.constexpr = 2 if OVERLAPPED else 1
    for part in tl.static_range(3):
        if single:
            part_begin, part_end = begin, end
        elif part == 0:
            part_begin, part_end = begin, full_begin
        elif part == WHOLE:
            part_begin, part_end = full_begin, full_end
        else:
            part_begin, part_end = full_end, end
        if OVERLAPPED and part == WHOLE:
            accumulator, row_max, row_sum = _attend_overlapped(
                accumulator, row_max, row_sum, queries, key, value, part_begin, part_end,
                batch, kv_head, length_k, scale, stride_k_n, stride_k_d, stride_v_n, stride_v_d,
                BLOCK_N, HEAD_DIM, BLOCK_D, PRECISION, DESCRIPTORS,
            )  # fmt: skip
        elif (part == WHOLE) if single else (part != 0 or BOUNDED_LEFT):
            accumulator, row_max, row_sum = _attend(
                accumulator, row_max, row_sum, queries, key, value, part_begin, part_end, indices,
                sequence, head, batch, kv_head, start_k, first_row, length_q, length_k, offset, scale,
                bias, mask, slope, softcap, dropout, seed, window_left, window_right, heads,
                stride_k_n, stride_k_d, stride_v_n, stride_v_d, stride_bias_m, stride_bias_n,
                stride_mask_m, stride_mask_n, BLOCK_M, BLOCK_N, HEAD_DIM, BLOCK_D, BOUNDED_LEFT, BOUNDED_RIGHT, RAGGED,
                slopes is not None, HAS_SOFTCAP, HAS_DROPOUT, PRECISION, BLOCK_COLUMNS, DESCRIPTORS,
                single or part != WHOLE,
            )  # fmt: skip
    # A row that sees no key is zero, and its log-sum-exp -inf.
    denominator = tl.where(row_sum == 0.0, 1.0, row_sum)
    lse = (row_max + tl.math.log2(denominator)) / LOG2E
    if HAS_DROPOUT:
        denominator *= 1.0 - dropout
    accumulator = accumulator / denominator[:, None]
    rows = tl.arange(0, BLOCK_M)
    target = log_sum_exp + b * stride_lse_b + h * stride_lse_h + start_q + first_row
    tl.store(target + rows, lse, mask=rows < length_q - first_row)
    store_tile(output + b * stride_o_b + h * stride_o_h, accumulator, start_q + first_row, start_q + length_q,
               stride_o_m, BLOCK_M, HEAD_DIM, BLOCK_D)  # fmt: skip


PLAIN: Table = {
    80: {64: Configuration(128, 64, 4, 3), 128: Configuration(128, 32, 8, 3), 256: Configuration(64, 64, 8, 2)},
    90: {
        64: Configuration(128, 128, 8, 3, descriptors=True),
        # Of 4096 tokens, not causal, on an H200, 2026-11-26: 463 TFLOP/s, 445 in tiles of 128 x 128 with 2 stages.
        128: Configuration(128, 64, 8, 3, descriptors=True),
        256: Configuration(128, 64, 8, 2, descriptors=True),
    },
}
"""What attention of 16-bit types with nothing but a causal bound runs in."""

FEATURED: Table = {
    80: {64: Configuration(128, 64, 8, 2), 256: Configuration(64, 64, 8, 2)},
    90: {256: Configuration(128, 64, 8, 2, descriptors=True)},
}
"""The same with what needs few registers."""

LOADED: Table = {
    80: {256: Configuration(64, 32, 8, 2)},
    90: {256: Configuration(64, 32, 8, 2, descriptors=True)},
}
"""The same with bias, mask or dropout."""

WIDE: Table = {
    80: {64: Configuration(32, 32, 8, 1), 128: Configuration(32, 32, 8, 1), 256: Configuration(16, 16, 8, 1)}
}
"""The same of float32."""

SPECIALIZED: dict[int, tuple[Configuration, ...]] = {
    head_dim: tuple(
        Configuration(128, block_n, 8, stages, True, specialized=True, turns=turns, early=early, persistent=persistent)
        for block_n, stages in tiles
        for turns, early, persistent in product((False, True), repeat=3)
    )
    for head_dim, tiles in {64: ((128, 3), (64, 4)), 128: ((128, 2), (64, 4))}.items()
}
"""Padded head size -> configurations with specialised warps. None is a default before one is measured."""

CANDIDATES: dict[int, tuple[Configuration, ...]] = {
    64: (Configuration(128, 128, 8, 3, True), Configuration(128, 64, 4, 3, True)),
    128: (Configuration(128, 128, 8, 2, True), Configuration(128, 64, 8, 3, True)),
}
"""Padded head size -> what a benchmark on sm_90 compares for plain attention."""


def configuration(problem: Problem, arch: int, block_d: int, element_size: int) -> Configuration:
    """What the forward kernel runs in."""
    return chosen_of((PLAIN, FEATURED, LOADED, WIDE), problem, arch, block_d, element_size)


def forward_launch(
    output: Tensor, log_sum_exp: Tensor, query: Tensor, key: Tensor, value: Tensor,
    problem: Problem, arch: int, chosen: Configuration | None = None,
) -> Launch:  # fmt: skip
    """Fills output, as the query, and log-sum-exp [B, H, Lq] for operands [B, H, L, D], in a chosen configuration."""
    _, heads, _, head_dim = query.shape
    block_d = padded(head_dim)
    chosen = problem.fitted(chosen or configuration(problem, arch, block_d, query.element_size()))
    described = (
        chosen.descriptors and arch >= 90 and problem.starts_q is None and all(map(describable, (query, key, value)))
    )
    if chosen.specialized and described and describable(output) and fits(problem, query, arch):
        return specialized_launch(output, log_sum_exp, query, key, value, problem, chosen)
    arguments = problem.arguments() | block_lists(problem.block_mask)
    group = heads // key.shape[1]
    sequences = problem.sequences(query)
    section = section_of(sequences * heads, group, problem.length_k, head_dim, query.element_size())
    arguments |= {
        "output": output,
        "log_sum_exp": log_sum_exp,
        "query": descriptor(query, chosen.block_m, block_d) if described else query,
        "key": descriptor(key, chosen.block_n, block_d) if described else key,
        "value": descriptor(value, chosen.block_n, block_d) if described else value,
        "sequences": sequences,
        "heads": heads,
        "group": group,
        "section": section if problem.is_causal else 1,
        **strides("o", "bhm", output.stride()),
        **strides("lse", "bh", log_sum_exp.stride()),
        **strides("q", "bhmd", query.stride()),
        **strides("k", "bhnd", key.stride()),
        **strides("v", "bhnd", value.stride()),
        "BLOCK_M": chosen.block_m,
        "BLOCK_N": chosen.block_n,
        "HEAD_DIM": head_dim,
        "BLOCK_D": block_d,
        "BLOCK_ROWS": problem.block_rows,
        "BLOCK_COLUMNS": problem.block_columns,
        "DESCRIPTORS": described,
        "OVERLAPPED": chosen.overlapped and problem.is_plain,
    }
    tiles = parts_of(problem.length_q, chosen.block_m)
    programs = tiles * sequences * heads if query.numel() else 0
    return Launch(attention_forward_kernel, programs, arguments, chosen.warps, chosen.stages)

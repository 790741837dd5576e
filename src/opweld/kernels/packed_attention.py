# pyright: basic, reportGeneralTypeIssues=false, reportAssignmentType=false, reportArgumentType=false
"""The kernels of `flash_decode` and `paged_attention`: the heads that share keys and values are rows of one tile, so
that each key is read once; programs divide the keys of a sequence, and a second kernel combines what they found.
Triton's language has no types that a checker knows."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from opweld.kernels.devices import processors
from opweld.kernels.flash_masks import LOG2E, soft_cap
from opweld.kernels.flash_problem import UNBOUNDED, VARYING, strides
from opweld.kernels.flash_tiles import padded, parts_of, power_of_two
from opweld.kernels.launches import Launch


@triton.jit
def _row_places(
    columns, first, length, table, page_size, stride_page, stride_row,
    BLOCK_N: tl.constexpr, PAGE: tl.constexpr,
):  # fmt: skip
    """Where rows of keys or values begin, [BLOCK_N, 1]: in a row, or by the table of pages."""
    if PAGE == 0:
        return columns[:, None].to(tl.int64) * stride_row
    elif PAGE % BLOCK_N == 0:
        page = tl.load(table + first // PAGE).to(tl.int64)
        return page * stride_page + (columns % PAGE)[:, None] * stride_row
    else:
        pages = tl.load(table + columns // PAGE, mask=columns < length, other=0).to(tl.int64)
        return (pages * stride_page + (columns % PAGE) * stride_row)[:, None]


@triton.jit(do_not_specialize=VARYING)
def packed_attention_kernel(
    partial, partial_lse, query, key, value, block_table, starts_q, lengths, slopes,
    scale, softcap, window_left, max_length_q, max_length_k, sequences, kv_heads, splits,
    stride_o_s, stride_o_b, stride_o_h, stride_o_m, stride_lse_s, stride_lse_b, stride_lse_h,
    stride_q_b, stride_q_h, stride_q_m, stride_q_d, stride_k_b, stride_k_h, stride_k_n, stride_k_d,
    stride_v_b, stride_v_h, stride_v_n, stride_v_d, stride_table_b, stride_slopes_b, stride_slopes_h,
    GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr,
    PAGE: tl.constexpr, BOUNDED_LEFT: tl.constexpr, HAS_SOFTCAP: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """One split of the keys of one sequence and head, for one tile of queries times the heads that share them."""
    program = tl.program_id(0)
    split = program % splits
    program = program // splits
    kv_head = program % kv_heads
    program = program // kv_heads
    sequence = program % sequences
    tile = program // sequences
    length_q = max_length_q
    length_k = max_length_k
    start_q = 0
    batch = sequence
    if starts_q is not None:
        start_q = tl.load(starts_q + sequence)
        length_q = tl.load(starts_q + sequence + 1) - start_q
        batch = 0
    if lengths is not None:
        length_k = tl.load(lengths + sequence)
    if tile * BLOCK_M >= length_q * GROUP:
        return
    offset = length_k - length_q
    packed = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    rows = packed // GROUP
    heads = kv_head * GROUP + packed % GROUP
    present = rows < length_q
    dims = tl.arange(0, BLOCK_D)
    b = tl.cast(batch, tl.int64)
    inside = present[:, None] & (dims < HEAD_DIM)[None, :]
    q_rows = b * stride_q_b + heads.to(tl.int64) * stride_q_h + (start_q + rows).to(tl.int64) * stride_q_m
    queries = tl.load(query + q_rows[:, None] + dims[None, :] * stride_q_d, mask=inside, other=0.0)
    slope = tl.zeros([BLOCK_M], tl.float32)
    if slopes is not None:
        slope = tl.load(slopes + sequence * stride_slopes_b + heads * stride_slopes_h, mask=present, other=0.0)
    kv_h = tl.cast(kv_head, tl.int64)
    s = tl.cast(sequence, tl.int64)
    table = block_table
    if PAGE == 0:
        key += s * stride_k_b
        value += s * stride_v_b
    else:
        table += s * stride_table_b
    key += kv_h * stride_k_h
    value += kv_h * stride_v_h

    first_row = tile * BLOCK_M // GROUP
    last_row = tl.minimum((tile * BLOCK_M + BLOCK_M - 1) // GROUP, length_q - 1)
    begin = 0
    end = tl.cdiv(tl.minimum(length_k, tl.maximum(offset + last_row + 1, 0)), BLOCK_N)
    if BOUNDED_LEFT:
        begin = tl.minimum(tl.maximum(offset + first_row - window_left, 0) // BLOCK_N, end)
    share = tl.cdiv(end - begin, splits)
    begin = tl.minimum(begin + split * share, end)
    end = tl.minimum(begin + share, end)

    accumulator = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    row_max = tl.full([BLOCK_M], float("-inf"), tl.float32)
    row_sum = tl.zeros([BLOCK_M], tl.float32)
    position = offset + rows
    for step in tl.range(begin, end):
        first = step * BLOCK_N
        columns = first + tl.arange(0, BLOCK_N)
        there = (columns < length_k)[:, None] & (dims < HEAD_DIM)[None, :]
        k_rows = _row_places(columns, first, length_k, table, PAGE, stride_k_b, stride_k_n, BLOCK_N, PAGE)
        keys = tl.load(key + k_rows + dims[None, :] * stride_k_d, mask=there, other=0.0)
        v_rows = _row_places(columns, first, length_k, table, PAGE, stride_v_b, stride_v_n, BLOCK_N, PAGE)
        values = tl.load(value + v_rows + dims[None, :] * stride_v_d, mask=there, other=0.0)
        scores = tl.dot(queries, keys.T, input_precision=PRECISION) * scale
        if HAS_SOFTCAP:
            scores = soft_cap(scores, softcap)
        if slopes is not None:
            scores -= slope[:, None] * tl.abs(position[:, None] - columns[None, :]).to(tl.float32)
        seen = columns[None, :] <= position[:, None]
        if BOUNDED_LEFT:
            seen &= columns[None, :] >= position[:, None] - window_left
        scores = tl.where(seen, scores * LOG2E, float("-inf"))
        new_max = tl.maximum(row_max, tl.max(scores, 1))
        origin = tl.where(new_max == float("-inf"), 0.0, new_max)
        probabilities = tl.math.exp2(scores - origin[:, None])
        shrink = tl.math.exp2(row_max - origin)
        row_sum = row_sum * shrink + tl.sum(probabilities, 1)
        accumulator = accumulator * shrink[:, None]
        accumulator = tl.dot(probabilities.to(values.dtype), values, accumulator, input_precision=PRECISION)
        row_max = new_max
    denominator = tl.where(row_sum == 0.0, 1.0, row_sum)
    accumulator = accumulator / denominator[:, None]
    o_rows = (
        split * tl.cast(stride_o_s, tl.int64) + b * stride_o_b + heads.to(tl.int64) * stride_o_h
        + (start_q + rows).to(tl.int64) * stride_o_m
    )  # fmt: skip
    tl.store(partial + o_rows[:, None] + dims[None, :], accumulator.to(partial.dtype.element_ty), mask=inside)
    if partial_lse is not None:
        lse_rows = split * tl.cast(stride_lse_s, tl.int64) + b * stride_lse_b + heads * tl.cast(stride_lse_h, tl.int64)
        tl.store(partial_lse + lse_rows + start_q + rows, row_max + tl.math.log2(denominator), mask=present)


@triton.jit(do_not_specialize=VARYING)
def combine_kernel(
    output, partial, partial_lse, splits, heads, length, rows_total, stride_o_b, stride_o_h, stride_o_m,
    SPLITS: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """One row of the output: the splits' results, weighted by their denominators."""
    index = tl.program_id(0).to(tl.int64)
    split = tl.arange(0, SPLITS)
    dims = tl.arange(0, BLOCK_D)
    lse = tl.load(partial_lse + split * rows_total + index, mask=split < splits, other=float("-inf"))
    largest = tl.max(lse, 0)
    weights = tl.math.exp2(lse - tl.where(largest == float("-inf"), 0.0, largest))
    total = tl.sum(weights, 0)
    weights = weights / tl.where(total == 0.0, 1.0, total)
    inside = (split < splits)[:, None] & (dims < HEAD_DIM)[None, :]
    parts = tl.load(partial + (split * rows_total + index)[:, None] * HEAD_DIM + dims[None, :], mask=inside, other=0.0)
    row = index % length
    head = index // length % heads
    batch = index // length // heads
    target = output + batch * stride_o_b + head * stride_o_h + row * stride_o_m
    result = tl.sum(parts * weights[:, None], 0)
    tl.store(target + dims, result.to(output.dtype.element_ty), mask=dims < HEAD_DIM)


MAX_SPLITS = 128


def split_count(programs: int, tiles: int, slots: int) -> int:
    """How many parts to cut keys into: the fewest that fill the device's slots to 85% of the best there is, where whole
    waves of programs are full. `tiles` is how many parts there can be."""
    if programs >= 0.8 * slots or tiles <= 1:
        return 1

    def filled(splits: int) -> float:
        waves = programs * splits / slots
        return waves / -(-programs * splits // slots)

    possible = range(1, min(tiles, MAX_SPLITS) + 1)
    best = max(map(filled, possible))
    return next(splits for splits in possible if filled(splits) >= 0.85 * best)


def packed_attention(
    output: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    block_table: Tensor | None,
    starts_q: Tensor | None,
    lengths: Tensor | None,
    alibi_slopes: Tensor | None,
    sequences: int,
    max_length_q: int,
    max_length_k: int,
    window_left: int,
    scale: float,
    softcap: float,
    splits: int,
    input_precision: str,
    block_n: int | None = None,
    stages: int | None = None,
) -> list[Launch]:
    """The launches that fill the output, [B, H, Lq, D] as the query; their order is that of the list.

    Key and value are [B, Hk, Lk, D], or pages [pages, Hk, page size, D] with a block table; with starts_q the batch of
    query and output is 1. Without a number of splits (0) it is chosen by the device."""
    batch, heads, rows, head_dim = query.shape
    kv_heads = key.shape[1]
    group = heads // kv_heads
    block_d = padded(head_dim)
    wide = query.element_size() > 2
    block_m = min(max(16, power_of_two(group * max_length_q)), 32 if wide or block_d > 128 else 64)
    if stages is None:
        # Rows of pages wait for the table: a load before a load takes stages of its own.
        stages = 1 if wide else 3 if block_m > 32 else 4 if block_table is None else 5
    if block_n is None:
        block_n = 16 if wide else 64 if block_d <= 128 else 32
    tiles = parts_of(group * max_length_q, block_m)
    programs = tiles * sequences * kv_heads if query.numel() else 0
    if not splits:
        splits = split_count(max(programs, 1), parts_of(max_length_k, block_n), 2 * processors(query.device))
    partial, partial_lse = output[None], None
    if splits > 1:
        partial = query.new_empty((splits, batch, heads, rows, head_dim), dtype=torch.float32)
        partial_lse = query.new_empty((splits, batch, heads, rows), dtype=torch.float32)
    arguments: dict[str, Any] = {
        "partial": partial,
        "partial_lse": partial_lse,
        "query": query,
        "key": key,
        "value": value,
        "block_table": block_table,
        "starts_q": starts_q,
        "lengths": lengths,
        "slopes": alibi_slopes,
        "scale": scale,
        "softcap": softcap,
        "window_left": window_left,
        "max_length_q": max_length_q,
        "max_length_k": max_length_k,
        "sequences": sequences,
        "kv_heads": kv_heads,
        "splits": splits,
        **strides("o", "sbhm", partial.stride()),
        **strides("lse", "sbh", (0, 0, 0) if partial_lse is None else partial_lse.stride()),
        **strides("q", "bhmd", query.stride()),
        **strides("k", "bhnd", key.stride()),
        **strides("v", "bhnd", value.stride()),
        **strides("table", "b", (0,) if block_table is None else block_table.stride()[:1]),
        **strides("slopes", "bh", (0, 0) if alibi_slopes is None else alibi_slopes.stride()),
        "GROUP": group,
        "BLOCK_M": block_m,
        "BLOCK_N": block_n,
        "HEAD_DIM": head_dim,
        "BLOCK_D": block_d,
        "PAGE": 0 if block_table is None else key.shape[2],
        "BOUNDED_LEFT": window_left != UNBOUNDED,
        "HAS_SOFTCAP": softcap > 0,
        "PRECISION": input_precision,
    }
    warps = 8 if block_m * block_d >= 64 * 128 else 4
    launches = [Launch(packed_attention_kernel, programs * splits, arguments, warps, stages)]
    if splits > 1 and partial_lse is not None:
        total = batch * heads * rows
        combining: dict[str, Any] = {
            "output": output,
            "partial": partial,
            "partial_lse": partial_lse,
            "splits": splits,
            "heads": heads,
            "length": rows,
            "rows_total": total,
            **strides("o", "bhm", output.stride()),
            "SPLITS": power_of_two(splits),
            "HEAD_DIM": head_dim,
            "BLOCK_D": block_d,
        }
        launches.append(Launch(combine_kernel, total, combining, 4, 1))
    return launches

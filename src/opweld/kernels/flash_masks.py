# pyright: basic, reportGeneralTypeIssues=false, reportAssignmentType=false, reportArgumentType=false
"""What attention does to scores between its two products, tile by tile: soft cap, bias, ALiBi, what a query may see,
dropout. Forward and backward kernels share it, so rows [.., 1] and columns [1, ..] come as indices that broadcast:
tiles may lie either way. Triton's language has no types that a checker knows."""

from __future__ import annotations

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def soft_cap(scores, cap):
    """cap * tanh(scores / cap), tanh through exp2: an error of 1e-7 of the cap."""
    return cap - 2.0 * cap / (1.0 + tl.math.exp2(scores * (2.0 * LOG2E / cap)))


@triton.jit
def places(rows, columns, first_row, first_column, stride_m, stride_n):
    """Where the elements of a tile lie in [Lq, Lk]: 64 bits once, and 32 within the tile."""
    base = tl.cast(first_row, tl.int64) * stride_m + tl.cast(first_column, tl.int64) * stride_n
    return base, (rows - first_row) * stride_m + (columns - first_column) * stride_n


@triton.jit
def with_bias(
    scores, rows, columns, first_row, first_column, length_q, length_k, offset,
    bias, stride_bias_m, stride_bias_n, slope, HAS_SLOPES: tl.constexpr,
):  # fmt: skip
    """Scores with what is added to them: the bias, and -slope * distance of query and key."""
    if HAS_SLOPES:
        scores -= slope * tl.abs(rows + offset - columns).to(tl.float32)
    if bias is not None:
        base, within = places(rows, columns, first_row, first_column, stride_bias_m, stride_bias_n)
        inside = (rows < length_q) & (columns < length_k)
        scores += tl.load(bias + base + within, mask=inside, other=0.0).to(tl.float32)
    return scores


@triton.jit
def visible(
    rows, columns, length_k, offset, window_left, window_right,
    BOUNDED_LEFT: tl.constexpr, BOUNDED_RIGHT: tl.constexpr, RAGGED: tl.constexpr,
):  # fmt: skip
    """Whether a query sees a key of its window: query i stands at i + offset among the keys.

    RAGGED: the tile may reach beyond the keys, which the window does not exclude."""
    seen = (rows == rows) & (columns == columns)
    if RAGGED:
        seen &= columns < length_k
    if BOUNDED_RIGHT:
        seen &= columns <= rows + (offset + window_right)
    if BOUNDED_LEFT:
        seen &= columns >= rows + (offset - window_left)
    return seen


@triton.jit
def allowed(mask, rows, columns, first_row, first_column, length_q, length_k, stride_mask_m, stride_mask_n):
    """The tile of a boolean mask; beyond its ends nothing is allowed."""
    base, within = places(rows, columns, first_row, first_column, stride_mask_m, stride_mask_n)
    inside = (rows < length_q) & (columns < length_k)
    return tl.load(mask + base + within, mask=inside, other=0) != 0


@triton.jit
def kept(seed, sequence_head, rows, columns, dropout):
    """Which probabilities dropout keeps: a function of seed, sequence, head, query and key (Philox), of no tile."""
    zeros = rows * 0 + columns * 0
    bits, _, _, _ = tl.philox(seed, zeros + columns, zeros + rows, zeros + sequence_head, zeros)
    return tl.random.uint_to_uniform_float(bits) >= dropout


@triton.jit
def key_tiles(
    first_row, length_k, offset, window_left, window_right,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BOUNDED_LEFT: tl.constexpr, BOUNDED_RIGHT: tl.constexpr,
):  # fmt: skip
    """Tiles of keys that BLOCK_M queries see: begin, full_begin, full_end, end; whole are [full_begin, full_end)."""
    end = tl.cdiv(length_k, BLOCK_N)
    full_end = length_k // BLOCK_N
    begin = 0
    full_begin = 0
    if BOUNDED_RIGHT:
        end = tl.minimum(end, tl.cdiv(tl.maximum(first_row + BLOCK_M + offset + window_right, 0), BLOCK_N))
        full_end = tl.minimum(full_end, tl.maximum(first_row + offset + window_right + 1, 0) // BLOCK_N)
    if BOUNDED_LEFT:
        begin = tl.maximum(first_row + offset - window_left, 0) // BLOCK_N
        full_begin = tl.cdiv(tl.maximum(first_row + BLOCK_M - 1 + offset - window_left, 0), BLOCK_N)
    begin = tl.minimum(begin, end)
    full_begin = tl.minimum(tl.maximum(full_begin, begin), end)
    full_end = tl.minimum(tl.maximum(full_end, full_begin), end)
    return begin, full_begin, full_end, end


@triton.jit
def query_tiles(
    first_column, length_q, length_k, offset, window_left, window_right,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BOUNDED_LEFT: tl.constexpr, BOUNDED_RIGHT: tl.constexpr,
):  # fmt: skip
    """Tiles of queries that see BLOCK_N keys, as `key_tiles`. A tile beyond the last query is whole: its probabilities
    are zero by its log-sum-exp. Where keys reach beyond the last, all come before the whole ones."""
    end = tl.cdiv(length_q, BLOCK_M)
    full_end = end
    begin = 0
    full_begin = 0
    if BOUNDED_RIGHT:
        begin = tl.maximum(first_column - offset - window_right, 0) // BLOCK_M
        full_begin = tl.cdiv(tl.maximum(first_column + BLOCK_N - 1 - offset - window_right, 0), BLOCK_M)
    if BOUNDED_LEFT:
        end = tl.minimum(end, tl.cdiv(tl.maximum(first_column + BLOCK_N - offset + window_left, 0), BLOCK_M))
        full_end = tl.minimum(full_end, tl.maximum(first_column + 1 - offset + window_left, 0) // BLOCK_M)
    begin = tl.minimum(begin, end)
    full_begin = tl.minimum(tl.maximum(full_begin, begin), end)
    full_end = tl.minimum(tl.maximum(full_end, full_begin), end)
    if first_column + BLOCK_N > length_k:
        full_begin = end
        full_end = end
    return begin, full_begin, full_end, end

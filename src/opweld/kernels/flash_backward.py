# pyright: basic, reportGeneralTypeIssues=false, reportAssignmentType=false, reportArgumentType=false
"""The backward kernels of `flash_attention`: one pass by tiles of keys, for the gradients of key and value, and one by
tiles of queries, for that of the query. Both compute the probabilities again, of scores and log-sum-exp:

    P = exp(scores - log_sum_exp)           dV = P^T dO                 D = rowsum(dO * O)
    dS = P * (dO V^T - D)                   dQ = scale * dS K           dK = scale * dS^T Q

Triton's language has no types that a checker knows."""

from __future__ import annotations

import triton
import triton.language as tl

from opweld.kernels.flash_masks import (
    LOG2E,
    allowed,
    kept,
    key_tiles,
    places,
    query_tiles,
    soft_cap,
    visible,
    with_bias,
)
from opweld.kernels.flash_problem import VARYING
from opweld.kernels.flash_tiles import load_tile, scheduled, store_tile


@triton.jit(do_not_specialize=VARYING)
def attention_rows_kernel(
    origin, delta, output, grad_output, log_sum_exp, rows_total, heads, length,
    stride_x_b, stride_x_h, stride_lse_b, stride_lse_h,
    stride_o_b, stride_o_h, stride_o_m, stride_do_b, stride_do_h, stride_do_m, stride_do_d,
    HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Of each row what its exponents start from, and rowsum(dO * O).

    The first is the log-sum-exp in powers of two; inf where a row saw no key, so that its probabilities are zero."""
    index = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    dims = tl.arange(0, BLOCK_D)[None, :]
    row = index % length
    head = index // length % heads
    batch = index // length // heads
    present = index < rows_total
    inside = present[:, None] & (dims < HEAD_DIM)
    first = (batch * stride_o_b + head * stride_o_h + row * stride_o_m)[:, None]
    out = tl.load(output + first + dims, mask=inside, other=0.0).to(tl.float32)
    first = (batch * stride_do_b + head * stride_do_h + row * stride_do_m)[:, None]
    grad = tl.load(grad_output + first + dims * stride_do_d, mask=inside, other=0.0).to(tl.float32)
    lse = tl.load(log_sum_exp + batch * stride_lse_b + head * stride_lse_h + row, mask=present, other=0.0)
    target = batch * stride_x_b + head * stride_x_h + row
    tl.store(origin + target, tl.where(lse == float("-inf"), float("inf"), lse * LOG2E), mask=present)
    tl.store(delta + target, tl.sum(out * grad, 1), mask=present)


@triton.jit
def _probabilities(
    scores, rows, columns, first_row, first_column, origin, length_q, length_k, offset, scale,
    bias, mask, slope, softcap, window_left, window_right, stride_bias_m, stride_bias_n, stride_mask_m, stride_mask_n,
    BOUNDED_LEFT: tl.constexpr, BOUNDED_RIGHT: tl.constexpr, RAGGED: tl.constexpr, HAS_SLOPES: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """A tile of probabilities again, from products of query and key, and what the soft cap's gradient multiplies by."""
    modified: tl.constexpr = HAS_SOFTCAP or HAS_SLOPES or bias is not None
    slack = 1.0
    if modified:
        scores *= scale
        if HAS_SOFTCAP:
            scores = soft_cap(scores, softcap)
            ratio = scores / softcap
            slack = 1.0 - ratio * ratio
        scores = with_bias(scores, rows, columns, first_row, first_column, length_q, length_k, offset,
                           bias, stride_bias_m, stride_bias_n, slope, HAS_SLOPES)  # fmt: skip
        factor = LOG2E
    else:
        factor = scale * LOG2E
    probabilities = tl.math.exp2(scores * factor - origin)
    if MASKED:
        seen = visible(rows, columns, length_k, offset, window_left, window_right,
                       BOUNDED_LEFT, BOUNDED_RIGHT, RAGGED)  # fmt: skip
        probabilities = tl.where(seen, probabilities, 0.0)
    if mask is not None:
        seen = allowed(mask, rows, columns, first_row, first_column, length_q, length_k, stride_mask_m, stride_mask_n)
        probabilities = tl.where(seen, probabilities, 0.0)
    return probabilities, slack


@triton.jit
def _load_rows(source, batch, head, first, length, ROWS: tl.constexpr, DESCRIPTOR: tl.constexpr, PACKED: tl.constexpr):
    """Numbers of ROWS rows of one head; zeros beyond the length, where operands are zeros as well.

    Behind the last sequence's rows zeros are stored: a mask would take a register for each row, where each thread has a
    fourth of them all."""
    rows = tl.arange(0, ROWS)
    if DESCRIPTOR:
        return source.load([batch, head, first]).reshape([ROWS])
    elif PACKED:
        return tl.load(source + first + rows, mask=rows < length - first, other=0.0)
    else:
        return tl.load(source + first + rows)


@triton.jit
def _gather_keys(
    grad_key, grad_value, keys, values, query, grad_output, origin, delta, begin, end, indices,
    sequence, head, batch, first_column, start_q, length_q, length_k, offset, scale,
    bias, mask, slope, softcap, dropout, seed, window_left, window_right, heads, grad_bias,
    stride_q_m, stride_q_d, stride_do_m, stride_do_d, stride_bias_m, stride_bias_n, stride_mask_m, stride_mask_n,
    stride_db_m, stride_db_n,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr,
    BOUNDED_LEFT: tl.constexpr, BOUNDED_RIGHT: tl.constexpr, RAGGED: tl.constexpr, HAS_SLOPES: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr, HAS_DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, DESCRIPTORS: tl.constexpr, PACKED: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """One pass over tiles [begin, end) of one head's queries; tiles of scores are transposed, [keys, queries]."""
    for tile in tl.range(begin, end):
        if indices is not None:
            per_block: tl.constexpr = BLOCK_ROWS // BLOCK_M
            first = tl.load(indices + tile // per_block) * BLOCK_ROWS + tile % per_block * BLOCK_M
        else:
            first = tile * BLOCK_M
        queries = load_tile(query, batch, head, start_q + first, start_q + length_q, stride_q_m, stride_q_d,
                            BLOCK_M, HEAD_DIM, BLOCK_D, DESCRIPTORS, True)  # fmt: skip
        row_origin = _load_rows(origin, batch, head, start_q + first, start_q + length_q,
                                BLOCK_M, DESCRIPTORS, PACKED)  # fmt: skip
        scores = tl.dot(keys, queries.T, input_precision=PRECISION)
        rows = first + tl.arange(0, BLOCK_M)[None, :]
        columns = first_column + tl.arange(0, BLOCK_N)[:, None]
        probabilities, slack = _probabilities(
            scores, rows, columns, first, first_column, row_origin[None, :], length_q, length_k, offset, scale,
            bias, mask, slope, softcap, window_left, window_right, stride_bias_m, stride_bias_n,
            stride_mask_m, stride_mask_n, BOUNDED_LEFT, BOUNDED_RIGHT, RAGGED, HAS_SLOPES, HAS_SOFTCAP, MASKED,
        )  # fmt: skip
        grads = load_tile(grad_output, batch, head, start_q + first, start_q + length_q, stride_do_m, stride_do_d,
                          BLOCK_M, HEAD_DIM, BLOCK_D, DESCRIPTORS, True)  # fmt: skip
        if HAS_DROPOUT:
            keep = kept(seed, sequence * heads + head, rows, columns, dropout)
            dropped = tl.where(keep, probabilities / (1.0 - dropout), 0.0)
        else:
            dropped = probabilities
        grad_value = tl.dot(dropped.to(grads.dtype), grads, grad_value, input_precision=PRECISION)
        row_delta = _load_rows(delta, batch, head, start_q + first, start_q + length_q,
                               BLOCK_M, DESCRIPTORS, PACKED)  # fmt: skip
        grad_probabilities = tl.dot(values, grads.T, input_precision=PRECISION)
        if HAS_DROPOUT:
            grad_probabilities = tl.where(keep, grad_probabilities / (1.0 - dropout), 0.0)
        grad_scores = probabilities * (grad_probabilities - row_delta[None, :])
        if grad_bias is not None:
            inside = (rows < length_q) & (columns < length_k)
            base, within = places(rows, columns, first, first_column, stride_db_m, stride_db_n)
            tl.atomic_add(grad_bias + base + within, grad_scores, mask=inside, sem="relaxed")
        if HAS_SOFTCAP:
            grad_scores *= slack
        grad_key = tl.dot(grad_scores.to(queries.dtype), queries, grad_key, input_precision=PRECISION)
    return grad_key, grad_value


@triton.jit(do_not_specialize=VARYING)
def attention_keys_kernel(
    grad_key, grad_value, query, key, value, grad_output, origin, delta, grad_bias,
    bias, mask, slopes, counts, indices, starts_q, starts_k,
    scale, softcap, dropout, seed, window_left, window_right, max_length_q, max_length_k,
    sequences, kv_heads, group, section, blocks_n, stride_x_b, stride_x_h,
    stride_dk_b, stride_dk_h, stride_dk_n, stride_dv_b, stride_dv_h, stride_dv_n,
    stride_q_b, stride_q_h, stride_q_m, stride_q_d, stride_k_b, stride_k_h, stride_k_n, stride_k_d,
    stride_v_b, stride_v_h, stride_v_n, stride_v_d, stride_do_b, stride_do_h, stride_do_m, stride_do_d,
    stride_bias_b, stride_bias_h, stride_bias_m, stride_bias_n,
    stride_mask_b, stride_mask_h, stride_mask_m, stride_mask_n, stride_slopes_b, stride_slopes_h,
    stride_db_b, stride_db_h, stride_db_m, stride_db_n, stride_blocks_b, stride_blocks_h, stride_blocks_m,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr,
    BOUNDED_LEFT: tl.constexpr, BOUNDED_RIGHT: tl.constexpr, RAGGED: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr, HAS_DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr, DESCRIPTORS: tl.constexpr,
):  # fmt: skip
    """One tile of one head's keys: the gradients of key and value, of all heads of queries that share them."""
    tiles = tl.cdiv(max_length_k, BLOCK_N)
    tile, sequence_head = scheduled(tl.program_id(0), tiles, sequences * kv_heads, section, False)
    sequence = sequence_head // kv_heads
    kv_head = sequence_head % kv_heads
    heads = kv_heads * group
    first_column = tile * BLOCK_N
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
        if first_column >= length_k:
            return
    offset = length_k - length_q
    b = tl.cast(batch, tl.int64)
    kv_h = tl.cast(kv_head, tl.int64)
    if not DESCRIPTORS:
        key += b * stride_k_b + kv_h * stride_k_h
        value += b * stride_v_b + kv_h * stride_v_h
    keys = load_tile(key, batch, kv_head, start_k + first_column, start_k + length_k, stride_k_n, stride_k_d,
                     BLOCK_N, HEAD_DIM, BLOCK_D, DESCRIPTORS, True)  # fmt: skip
    values = load_tile(value, batch, kv_head, start_k + first_column, start_k + length_k, stride_v_n, stride_v_d,
                       BLOCK_N, HEAD_DIM, BLOCK_D, DESCRIPTORS, True)  # fmt: skip
    sum_key = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    sum_value = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    begin, full_begin, full_end, end = query_tiles(first_column, length_q, length_k, offset, window_left, window_right,
                                                   BLOCK_M, BLOCK_N, BOUNDED_LEFT, BOUNDED_RIGHT)  # fmt: skip
    for member in tl.range(0, group):
        head = kv_head * group + member
        h = tl.cast(head, tl.int64)
        query_head = query
        grad_head = grad_output
        origin_head = origin
        delta_head = delta
        bias_head = bias
        mask_head = mask
        grad_bias_head = grad_bias
        indices_head = indices
        if not DESCRIPTORS:
            query_head += b * stride_q_b + h * stride_q_h
            grad_head += b * stride_do_b + h * stride_do_h
            origin_head += b * stride_x_b + h * stride_x_h
            delta_head += b * stride_x_b + h * stride_x_h
        if bias is not None:
            bias_head += b * stride_bias_b + h * stride_bias_h
        if grad_bias is not None:
            grad_bias_head += b * stride_db_b + h * stride_db_h
        if mask is not None:
            mask_head += b * stride_mask_b + h * stride_mask_h
        slope = 0.0
        if slopes is not None:
            slope = tl.load(slopes + sequence * stride_slopes_b + head * stride_slopes_h)
        if counts is not None:
            block = b * stride_blocks_b + h * stride_blocks_h + (first_column // BLOCK_COLUMNS) * stride_blocks_m
            indices_head += block * blocks_n
            begin = 0
            end = tl.load(counts + block) * (BLOCK_ROWS // BLOCK_M)
        for part in tl.static_range(3):
            if counts is not None:
                part_begin, part_end = begin, end
            elif part == 0:
                part_begin, part_end = begin, full_begin
            elif part == 1:
                part_begin, part_end = full_begin, full_end
            else:
                part_begin, part_end = full_end, end
            if (part == 1) if counts is not None else (part != 2 or BOUNDED_LEFT):
                sum_key, sum_value = _gather_keys(
                    sum_key, sum_value, keys, values, query_head, grad_head, origin_head, delta_head,
                    part_begin, part_end, indices_head,
                    sequence, head, batch, first_column, start_q, length_q, length_k, offset, scale,
                    bias_head, mask_head, slope, softcap, dropout, seed, window_left, window_right, heads,
                    grad_bias_head, stride_q_m, stride_q_d, stride_do_m, stride_do_d, stride_bias_m, stride_bias_n,
                    stride_mask_m, stride_mask_n, stride_db_m, stride_db_n,
                    BLOCK_M, BLOCK_N, HEAD_DIM, BLOCK_D, BOUNDED_LEFT, BOUNDED_RIGHT, RAGGED,
                    slopes is not None, HAS_SOFTCAP, HAS_DROPOUT, PRECISION, BLOCK_ROWS, DESCRIPTORS,
                    starts_q is not None, part != 1 or counts is not None,
                )  # fmt: skip
    store_tile(grad_key + b * stride_dk_b + kv_h * stride_dk_h, sum_key * scale, start_k + first_column,
               start_k + length_k, stride_dk_n, BLOCK_N, HEAD_DIM, BLOCK_D)  # fmt: skip
    store_tile(grad_value + b * stride_dv_b + kv_h * stride_dv_h, sum_value, start_k + first_column,
               start_k + length_k, stride_dv_n, BLOCK_N, HEAD_DIM, BLOCK_D)  # fmt: skip


@triton.jit
def _gather_queries(
    grad_query, queries, grads, row_origin, row_delta, key, value, begin, end, indices,
    sequence, head, kv_batch, kv_head, start_k, first_row, length_q, length_k, offset, scale,
    bias, mask, slope, softcap, dropout, seed, window_left, window_right, heads,
    stride_k_n, stride_k_d, stride_v_n, stride_v_d, stride_bias_m, stride_bias_n, stride_mask_m, stride_mask_n,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr,
    BOUNDED_LEFT: tl.constexpr, BOUNDED_RIGHT: tl.constexpr, RAGGED: tl.constexpr, HAS_SLOPES: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr, HAS_DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr, DESCRIPTORS: tl.constexpr, MASKED: tl.constexpr,
):  # fmt: skip
    """One pass over tiles [begin, end) of keys."""
    for tile in tl.range(begin, end):
        if indices is not None:
            per_block: tl.constexpr = BLOCK_COLUMNS // BLOCK_N
            first = tl.load(indices + tile // per_block) * BLOCK_COLUMNS + tile % per_block * BLOCK_N
        else:
            first = tile * BLOCK_N
        keys = load_tile(key, kv_batch, kv_head, start_k + first, start_k + length_k, stride_k_n, stride_k_d,
                         BLOCK_N, HEAD_DIM, BLOCK_D, DESCRIPTORS, MASKED)  # fmt: skip
        values = load_tile(value, kv_batch, kv_head, start_k + first, start_k + length_k, stride_v_n, stride_v_d,
                           BLOCK_N, HEAD_DIM, BLOCK_D, DESCRIPTORS, MASKED)  # fmt: skip
        scores = tl.dot(queries, keys.T, input_precision=PRECISION)
        rows = first_row + tl.arange(0, BLOCK_M)[:, None]
        columns = first + tl.arange(0, BLOCK_N)[None, :]
        probabilities, slack = _probabilities(
            scores, rows, columns, first_row, first, row_origin[:, None], length_q, length_k, offset, scale,
            bias, mask, slope, softcap, window_left, window_right, stride_bias_m, stride_bias_n,
            stride_mask_m, stride_mask_n, BOUNDED_LEFT, BOUNDED_RIGHT, RAGGED, HAS_SLOPES, HAS_SOFTCAP, MASKED,
        )  # fmt: skip
        grad_probabilities = tl.dot(grads, values.T, input_precision=PRECISION)
        if HAS_DROPOUT:
            keep = kept(seed, sequence * heads + head, rows, columns, dropout)
            grad_probabilities = tl.where(keep, grad_probabilities / (1.0 - dropout), 0.0)
        grad_scores = probabilities * (grad_probabilities - row_delta[:, None])
        if HAS_SOFTCAP:
            grad_scores *= slack
        grad_query = tl.dot(grad_scores.to(keys.dtype), keys, grad_query, input_precision=PRECISION)
    return grad_query


@triton.jit(do_not_specialize=VARYING)
def attention_queries_kernel(
    grad_query, query, key, value, grad_output, origin, delta,
    bias, mask, slopes, counts, indices, starts_q, starts_k,
    scale, softcap, dropout, seed, window_left, window_right, max_length_q, max_length_k,
    sequences, heads, group, section, blocks_n, stride_x_b, stride_x_h, stride_dq_b, stride_dq_h, stride_dq_m,
    stride_q_b, stride_q_h, stride_q_m, stride_q_d, stride_k_b, stride_k_h, stride_k_n, stride_k_d,
    stride_v_b, stride_v_h, stride_v_n, stride_v_d, stride_do_b, stride_do_h, stride_do_m, stride_do_d,
    stride_bias_b, stride_bias_h, stride_bias_m, stride_bias_n,
    stride_mask_b, stride_mask_h, stride_mask_m, stride_mask_n, stride_slopes_b, stride_slopes_h,
    stride_blocks_b, stride_blocks_h, stride_blocks_m,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD_DIM: tl.constexpr, BLOCK_D: tl.constexpr,
    BOUNDED_LEFT: tl.constexpr, BOUNDED_RIGHT: tl.constexpr, RAGGED: tl.constexpr,
    HAS_SOFTCAP: tl.constexpr, HAS_DROPOUT: tl.constexpr, PRECISION: tl.constexpr,
    BLOCK_ROWS: tl.constexpr, BLOCK_COLUMNS: tl.constexpr, DESCRIPTORS: tl.constexpr,
):  # fmt: skip
    """One tile of queries of one head: their gradient."""
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
        grad_output += b * stride_do_b + h * stride_do_h
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
    grads = load_tile(grad_output, batch, head, start_q + first_row, start_q + length_q, stride_do_m, stride_do_d,
                      BLOCK_M, HEAD_DIM, BLOCK_D, DESCRIPTORS, True)  # fmt: skip
    of_head = b * stride_x_b + h * stride_x_h
    packed: tl.constexpr = starts_q is not None
    last = start_q + length_q
    row_origin = _load_rows(origin + of_head, batch, head, start_q + first_row, last, BLOCK_M, False, packed)
    row_delta = _load_rows(delta + of_head, batch, head, start_q + first_row, last, BLOCK_M, False, packed)
    total = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    begin, full_begin, full_end, end = key_tiles(first_row, length_k, offset, window_left, window_right,
                                                 BLOCK_M, BLOCK_N, BOUNDED_LEFT, BOUNDED_RIGHT)  # fmt: skip
    if counts is not None:
        block = b * stride_blocks_b + h * stride_blocks_h + (first_row // BLOCK_ROWS) * stride_blocks_m
        indices += block * blocks_n
        begin = 0
        end = tl.load(counts + block) * (BLOCK_COLUMNS // BLOCK_N)
    for part in tl.static_range(3):
        if counts is not None:
            part_begin, part_end = begin, end
        elif part == 0:
            part_begin, part_end = begin, full_begin
        elif part == 1:
            part_begin, part_end = full_begin, full_end
        else:
            part_begin, part_end = full_end, end
        if (part == 1) if counts is not None else (part != 0 or BOUNDED_LEFT):
            total = _gather_queries(
                total, queries, grads, row_origin, row_delta, key, value, part_begin, part_end, indices,
                sequence, head, batch, kv_head, start_k, first_row, length_q, length_k, offset, scale,
                bias, mask, slope, softcap, dropout, seed, window_left, window_right, heads,
                stride_k_n, stride_k_d, stride_v_n, stride_v_d, stride_bias_m, stride_bias_n,
                stride_mask_m, stride_mask_n, BLOCK_M, BLOCK_N, HEAD_DIM, BLOCK_D, BOUNDED_LEFT, BOUNDED_RIGHT, RAGGED,
                slopes is not None, HAS_SOFTCAP, HAS_DROPOUT, PRECISION, BLOCK_COLUMNS, DESCRIPTORS,
                part != 1 or counts is not None,
            )  # fmt: skip
    store_tile(grad_query + b * stride_dq_b + h * stride_dq_h, total * scale, start_q + first_row, start_q + length_q,
               stride_dq_m, BLOCK_M, HEAD_DIM, BLOCK_D)  # fmt: skip

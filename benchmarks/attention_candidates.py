# pyright: basic, reportGeneralTypeIssues=false, reportAssignmentType=false, reportArgumentType=false
"""Other orders of the forward kernel's inner loop, to be timed beside it: whole tiles, no option but a causal bound.

Where one is faster, it takes the place of the loop in `opweld.kernels.flash_forward`. Triton's language has no types
that a checker knows.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from opweld.kernels.flash_problem import Configuration
from opweld.kernels.flash_tiles import descriptor, load_tile, scheduled, section_of, store_tile
from opweld.kernels.launches import Launch

LOG2E = tl.constexpr(1.4426950408889634)
GROWTH = tl.constexpr(8.0)
"""Powers of two by which a row's largest score may grow before its sums are scaled anew, where that is deferred."""


@triton.jit
def _scores(query, key, batch, head, tile, length, BLOCK_N: tl.constexpr, HEAD_DIM: tl.constexpr):
    keys = load_tile(key, batch, head, tile * BLOCK_N, length, 0, 1, BLOCK_N, HEAD_DIM, HEAD_DIM, True, False)
    return tl.dot(query, keys.T, input_precision="ieee")


@triton.jit
def _softmax(
    scores, row_max, row_sum, first_row, tile, factor,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, MASKED: tl.constexpr, DEFERRED: tl.constexpr,
):  # fmt: skip
    """Probabilities of a tile, by how much what was summed before shrinks, and the state after it."""
    if MASKED:
        rows = first_row + tl.arange(0, BLOCK_M)[:, None]
        columns = tile * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
        scores = tl.where(columns <= rows, scores, float("-inf"))
    new_max = tl.maximum(row_max, tl.max(scores, 1) * factor)
    if DEFERRED:
        new_max = tl.where(new_max - row_max > GROWTH, new_max, row_max)
    probabilities = tl.math.exp2(scores * factor - new_max[:, None])
    shrink = tl.math.exp2(row_max - new_max)
    return probabilities, shrink, new_max, row_sum * shrink + tl.sum(probabilities, 1)


@triton.jit
def _weigh(
    accumulator, probabilities, shrink, value, batch, head, tile, length,
    BLOCK_N: tl.constexpr, HEAD_DIM: tl.constexpr, DEFERRED: tl.constexpr,
):  # fmt: skip
    """The weighted sum of values after a tile."""
    if DEFERRED:
        if tl.min(shrink, 0) < 1.0:
            accumulator = accumulator * shrink[:, None]
    else:
        accumulator = accumulator * shrink[:, None]
    values = load_tile(value, batch, head, tile * BLOCK_N, length, 0, 1, BLOCK_N, HEAD_DIM, HEAD_DIM, True, False)
    return tl.dot(probabilities.to(values.dtype), values, accumulator, input_precision="ieee")


@triton.jit
def _in_order(
    accumulator, row_max, row_sum, query, key, value, begin, end, batch, head, first_row, length, factor,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD_DIM: tl.constexpr, MASKED: tl.constexpr,
    DEFERRED: tl.constexpr, FACTOR: tl.constexpr,
):  # fmt: skip
    """Scores, softmax, values, a tile at a time."""
    for tile in tl.range(begin, end, loop_unroll_factor=FACTOR):
        scores = _scores(query, key, batch, head, tile, length, BLOCK_N, HEAD_DIM)
        probabilities, shrink, row_max, row_sum = _softmax(scores, row_max, row_sum, first_row, tile, factor,
                                                           BLOCK_M, BLOCK_N, MASKED, DEFERRED)  # fmt: skip
        accumulator = _weigh(accumulator, probabilities, shrink, value, batch, head, tile, length,
                             BLOCK_N, HEAD_DIM, DEFERRED)  # fmt: skip
    return accumulator, row_max, row_sum


@triton.jit
def _ahead(
    accumulator, row_max, row_sum, query, key, value, begin, end, batch, head, first_row, length, factor,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD_DIM: tl.constexpr, MASKED: tl.constexpr,
    DEFERRED: tl.constexpr,
):  # fmt: skip
    """The scores of the next tile are under way while the softmax of this one is computed."""
    if begin < end:
        scores = _scores(query, key, batch, head, begin, length, BLOCK_N, HEAD_DIM)
        for tile in tl.range(begin, end - 1):
            following = _scores(query, key, batch, head, tile + 1, length, BLOCK_N, HEAD_DIM)
            probabilities, shrink, row_max, row_sum = _softmax(scores, row_max, row_sum, first_row, tile, factor,
                                                               BLOCK_M, BLOCK_N, MASKED, DEFERRED)  # fmt: skip
            accumulator = _weigh(accumulator, probabilities, shrink, value, batch, head, tile, length,
                                 BLOCK_N, HEAD_DIM, DEFERRED)  # fmt: skip
            scores = following
        probabilities, shrink, row_max, row_sum = _softmax(scores, row_max, row_sum, first_row, end - 1, factor,
                                                           BLOCK_M, BLOCK_N, MASKED, DEFERRED)  # fmt: skip
        accumulator = _weigh(accumulator, probabilities, shrink, value, batch, head, end - 1, length,
                             BLOCK_N, HEAD_DIM, DEFERRED)  # fmt: skip
    return accumulator, row_max, row_sum


@triton.jit
def _behind(
    accumulator, row_max, row_sum, query, key, value, begin, end, batch, head, first_row, length, factor,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD_DIM: tl.constexpr, MASKED: tl.constexpr,
    DEFERRED: tl.constexpr,
):  # fmt: skip
    """The values of a tile are weighed one step later, while the softmax of the next is computed."""
    if begin < end:
        scores = _scores(query, key, batch, head, begin, length, BLOCK_N, HEAD_DIM)
        probabilities, shrink, row_max, row_sum = _softmax(scores, row_max, row_sum, first_row, begin, factor,
                                                           BLOCK_M, BLOCK_N, MASKED, DEFERRED)  # fmt: skip
        weights = probabilities.to(value.dtype)
        accumulator = accumulator * shrink[:, None]
        for tile in tl.range(begin + 1, end):
            scores = _scores(query, key, batch, head, tile, length, BLOCK_N, HEAD_DIM)
            values = load_tile(value, batch, head, (tile - 1) * BLOCK_N, length, 0, 1,
                               BLOCK_N, HEAD_DIM, HEAD_DIM, True, False)  # fmt: skip
            accumulator = tl.dot(weights, values, accumulator, input_precision="ieee")
            probabilities, shrink, row_max, row_sum = _softmax(scores, row_max, row_sum, first_row, tile, factor,
                                                               BLOCK_M, BLOCK_N, MASKED, DEFERRED)  # fmt: skip
            weights = probabilities.to(value.dtype)
            accumulator = accumulator * shrink[:, None]
        values = load_tile(value, batch, head, (end - 1) * BLOCK_N, length, 0, 1,
                           BLOCK_N, HEAD_DIM, HEAD_DIM, True, False)  # fmt: skip
        accumulator = tl.dot(weights, values, accumulator, input_precision="ieee")
    return accumulator, row_max, row_sum


@triton.jit(do_not_specialize=["sequences", "heads", "section", "length"])
def candidate_kernel(
    output, log_sum_exp, query, key, value, scale, sequences, heads, section, length, stride_o_b, stride_o_h,
    stride_o_m, stride_lse_b, stride_lse_h,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD_DIM: tl.constexpr, CAUSAL: tl.constexpr,
    ORDER: tl.constexpr, DEFERRED: tl.constexpr, FACTOR: tl.constexpr,
):  # fmt: skip
    """As `attention_forward_kernel`, of as many queries as keys, whose tiles are whole."""
    tile, sequence_head = scheduled(tl.program_id(0), tl.cdiv(length, BLOCK_M), sequences * heads, section, CAUSAL)
    batch = sequence_head // heads
    head = sequence_head % heads
    first_row = tile * BLOCK_M
    queries = load_tile(query, batch, head, first_row, length, 0, 1, BLOCK_M, HEAD_DIM, HEAD_DIM, True, False)
    accumulator = tl.zeros([BLOCK_M, HEAD_DIM], tl.float32)
    # Finite, so that what is deferred grows from it; no row is without a key.
    row_max = tl.full([BLOCK_M], -1.0e30, tl.float32)
    row_sum = tl.zeros([BLOCK_M], tl.float32)
    factor = scale * LOG2E
    whole = first_row // BLOCK_N if CAUSAL else length // BLOCK_N
    # The masked tiles come first: before another loop ptxas serialises the products of some orders.
    if CAUSAL:
        accumulator, row_max, row_sum = _in_order(
            accumulator, row_max, row_sum, queries, key, value, whole, tl.cdiv(first_row + BLOCK_M, BLOCK_N),
            batch, head, first_row, length, factor, BLOCK_M, BLOCK_N, HEAD_DIM, True, False, 1,
        )  # fmt: skip
    if ORDER == "ahead":
        accumulator, row_max, row_sum = _ahead(
            accumulator, row_max, row_sum, queries, key, value, 0, whole, batch, head, first_row, length, factor,
            BLOCK_M, BLOCK_N, HEAD_DIM, False, DEFERRED,
        )  # fmt: skip
    elif ORDER == "behind":
        accumulator, row_max, row_sum = _behind(
            accumulator, row_max, row_sum, queries, key, value, 0, whole, batch, head, first_row, length, factor,
            BLOCK_M, BLOCK_N, HEAD_DIM, False, DEFERRED,
        )  # fmt: skip
    else:
        accumulator, row_max, row_sum = _in_order(
            accumulator, row_max, row_sum, queries, key, value, 0, whole, batch, head, first_row, length, factor,
            BLOCK_M, BLOCK_N, HEAD_DIM, False, DEFERRED, FACTOR,
        )  # fmt: skip
    rows = tl.arange(0, BLOCK_M)
    target = log_sum_exp + batch * stride_lse_b + head * stride_lse_h + first_row
    tl.store(target + rows, (row_max + tl.math.log2(row_sum)) / LOG2E)
    start = tl.cast(batch, tl.int64) * stride_o_b + tl.cast(head, tl.int64) * stride_o_h
    store_tile(output + start, accumulator / row_sum[:, None], first_row, length, stride_o_m,
               BLOCK_M, HEAD_DIM, HEAD_DIM)  # fmt: skip


def candidate_launch(
    output: Tensor, log_sum_exp: Tensor, query: Tensor, key: Tensor, value: Tensor, causal: bool, scale: float,
    chosen: Configuration, order: str, deferred: bool = False, factor: int = 1,
) -> Launch:  # fmt: skip
    """Fills output and log-sum-exp [B, H, L] for operands [B, H, L, D], L whole tiles, D 64 or 128.

    Args:
        order: "order", "ahead" or "behind", of the loop over whole tiles. deferred: sums are scaled anew where scores
            grow by much. factor: tiles of a step of the loop, in order."""
    batch, heads, length, head_dim = query.shape
    arguments = {
        "output": output,
        "log_sum_exp": log_sum_exp,
        "query": descriptor(query, chosen.block_m, head_dim),
        "key": descriptor(key, chosen.block_n, head_dim),
        "value": descriptor(value, chosen.block_n, head_dim),
        "scale": scale,
        "sequences": batch,
        "heads": heads,
        "section": section_of(batch * heads, 1, length, head_dim, query.element_size()) if causal else 1,
        "length": length,
        **dict(zip(("stride_o_b", "stride_o_h", "stride_o_m"), output.stride(), strict=False)),
        **dict(zip(("stride_lse_b", "stride_lse_h"), log_sum_exp.stride(), strict=False)),
        "BLOCK_M": chosen.block_m,
        "BLOCK_N": chosen.block_n,
        "HEAD_DIM": head_dim,
        "CAUSAL": causal,
        "ORDER": order,
        "DEFERRED": deferred,
        "FACTOR": factor,
    }
    programs = length // chosen.block_m * batch * heads
    return Launch(candidate_kernel, programs, arguments, chosen.warps, chosen.stages)

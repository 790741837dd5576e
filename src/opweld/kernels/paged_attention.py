"""Attention over a paged cache of keys and values (PagedAttention, arXiv 2309.06180), of prompts and single tokens."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from opweld.errors import InputError
from opweld.kernels.arguments import check_like, check_shape, check_tensor
from opweld.kernels.flash_arguments import DTYPES, broadcastable, check_numbers, check_operands, check_starts, window_of
from opweld.kernels.packed_attention import packed_attention
from opweld.kernels.variant import Variant


def paged_attention(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_table: Tensor,
    lengths: Tensor,
    cu_seqlens_q: Tensor,
    *,
    max_seqlen_q: int,
    window: int | None = None,
    alibi_slopes: Tensor | None = None,
    softcap: float | None = None,
    scale: float | None = None,
    splits: int | None = None,
    input_precision: str = "ieee",
) -> Tensor:
    """softmax(scores) value, where key j of sequence s is key_cache[block_table[s, j // P], j % P], P the page's size.

    Scores are those of `flash_attention`: the queries of a sequence are its last tokens, query i of n stands at
    i + length - n and sees keys up to there. A sequence of a prompt has many queries, one that decodes a single one;
    both may be in one batch. Keys are divided among programs and put together as in `flash_decode`.

    Args:
        query: [T, H, D], the queries of all sequences behind each other; float16, bfloat16 or float32, any strides.
        key_cache, value_cache: [pages, P, Hk, D]; P is a power of two, H a multiple of Hk.
        block_table: int32 [S, pages of a sequence at most]; entries beyond a sequence's length are not read.
        lengths: int32 [S], keys of each sequence, those of its queries included.
        cu_seqlens_q: int32 [S + 1], where each sequence's queries begin.
        max_seqlen_q: the most queries of a sequence.
        window: how many keys before its own place a query sees; all by default.
        alibi_slopes: float32, broadcast to [S, H].
        softcap, scale, splits, input_precision: as in `flash_decode`.

    Returns:
        [T, H, D], contiguous; zeros for a query that sees no key. No gradient.

    Raises:
        InputError: an argument does not fit; it says which and what to do.
    """
    for name, tensor in (("key_cache", key_cache), ("value_cache", value_cache)):
        check_tensor(name, tensor, DTYPES, range(4, 5))
    check_like("value_cache", value_cache, "key_cache", key_cache)
    check_shape("value_cache", value_cache, tuple(key_cache.shape), "as the key_cache")
    page = key_cache.shape[1]
    if page < 1 or page & (page - 1):
        raise InputError(f"key_cache has pages of {page} keys, expected a power of two: allocate it so")
    check_operands(query, key_cache[:, 0], value_cache[:, 0], packed=True)
    check_starts("cu_seqlens_q", cu_seqlens_q)
    sequences = cu_seqlens_q.numel() - 1
    check_tensor("block_table", block_table, (torch.int32,), range(2, 3))
    check_shape("block_table", block_table, (sequences, block_table.shape[1]), "a row for each sequence")
    check_tensor("lengths", lengths, (torch.int32,))
    check_shape("lengths", lengths, (sequences,), "the keys of each sequence")
    scale = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    check_numbers(scale, softcap or 0.0, 0.0, input_precision)
    left, _ = window_of(True, None if window is None else (window, 0))
    if alibi_slopes is not None:
        check_tensor("alibi_slopes", alibi_slopes, (torch.float32,))
    slopes = broadcastable("alibi_slopes", alibi_slopes, (sequences, query.shape[1]), "[S, H] =")
    return _paged(
        query, key_cache, value_cache, block_table, lengths, cu_seqlens_q, max_seqlen_q, slopes, left,
        softcap or 0.0, scale, splits or 0, input_precision,
    )  # fmt: skip


def variants(arch: int) -> Iterator[Variant]:
    """The default configurations of an architecture, 80 or 90, by head size and page."""
    from opweld.kernels.flash_variants import paged_variants

    return paged_variants(arch)


@torch.library.custom_op("opweld::paged_attention", mutates_args=())
def _paged(
    query: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    block_table: Tensor,
    lengths: Tensor,
    starts_q: Tensor,
    max_length_q: int,
    alibi_slopes: Tensor | None,
    window_left: int,
    softcap: float,
    scale: float,
    splits: int,
    input_precision: str,
) -> Tensor:
    output = torch.empty_like(query, memory_format=torch.contiguous_format)
    sequences = lengths.shape[0]
    launches = packed_attention(
        output.transpose(0, 1)[None],
        query.transpose(0, 1)[None],
        key_cache.transpose(1, 2),
        value_cache.transpose(1, 2),
        block_table=block_table if block_table.stride(-1) == 1 else block_table.contiguous(),
        starts_q=starts_q,
        lengths=lengths.contiguous(),
        alibi_slopes=None if alibi_slopes is None else alibi_slopes.expand(sequences, query.shape[1]),
        sequences=sequences,
        max_length_q=max_length_q,
        max_length_k=block_table.shape[1] * key_cache.shape[1],
        window_left=window_left,
        scale=scale,
        softcap=softcap,
        splits=splits,
        input_precision=input_precision,
    )
    for launch in launches:
        launch.run(query.device)
    return output


@_paged.register_fake
def _(query: Tensor, *_: object) -> Tensor:
    return torch.empty_like(query, memory_format=torch.contiguous_format)

"""Attention of a few last queries over many keys, as in a step of decoding: Flash-Decoding."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from opweld.kernels.arguments import check_shape, check_tensor
from opweld.kernels.flash_arguments import broadcastable, check_numbers, check_operands, window_of
from opweld.kernels.packed_attention import packed_attention
from opweld.kernels.variant import Variant


def flash_decode(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    lengths: Tensor | None = None,
    window: int | None = None,
    alibi_slopes: Tensor | None = None,
    softcap: float | None = None,
    scale: float | None = None,
    splits: int | None = None,
    input_precision: str = "ieee",
) -> Tensor:
    """softmax(scores) value for the last queries of each sequence, by `splits` parts s of its keys, each of which gives

        o_s = softmax(scores_s) value_s        l_s = log(sum(exp(scores_s)))
        output = sum_s(exp(l_s) o_s) / sum_s(exp(l_s))

    with scores as in `flash_attention`: query i of Lq stands at i + length - Lq and sees keys up to there.

    Args:
        query: [B, H, Lq, D], float16, bfloat16 or float32, any strides, D at most 256; meant for small Lq.
        key, value: [B, Hk, Lk, D]; H is a multiple of Hk, and each key is read once for the heads that share it.
        lengths: int32 [B], how many keys of each sequence there are; Lk by default.
        window: how many keys before its own place a query sees; all by default.
        alibi_slopes: float32, broadcast to [B, H].
        softcap: bounds scores: softcap * tanh(score / softcap).
        scale: positive; 1 / sqrt(D) by default.
        splits: parts of the keys; chosen to fill the device by default.
        input_precision: of products of float32: "ieee", "tf32" or "tf32x3".

    Returns:
        As the query, contiguous; zeros for a query that sees no key. No gradient.

    Raises:
        InputError: an argument does not fit; it says which and what to do.
    """
    check_operands(query, key, value, packed=False)
    scale = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    check_numbers(scale, softcap or 0.0, 0.0, input_precision)
    left, _ = window_of(True, None if window is None else (window, 0))
    if lengths is not None:
        check_tensor("lengths", lengths, (torch.int32,))
        check_shape("lengths", lengths, query.shape[:1], "the keys of each sequence")
    if alibi_slopes is not None:
        check_tensor("alibi_slopes", alibi_slopes, (torch.float32,))
    slopes = broadcastable("alibi_slopes", alibi_slopes, tuple(query.shape[:2]), "[B, H] =")
    return _decode(query, key, value, lengths, slopes, left, softcap or 0.0, scale, splits or 0, input_precision)


def variants(arch: int) -> Iterator[Variant]:
    """The default configurations of an architecture, 80 or 90, by head size."""
    from opweld.kernels.flash_variants import decode_variants

    return decode_variants(arch)


@torch.library.custom_op("opweld::flash_decode", mutates_args=())
def _decode(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    lengths: Tensor | None,
    alibi_slopes: Tensor | None,
    window_left: int,
    softcap: float,
    scale: float,
    splits: int,
    input_precision: str,
) -> Tensor:
    output = torch.empty_like(query, memory_format=torch.contiguous_format)
    launches = packed_attention(
        output,
        query,
        key,
        value,
        block_table=None,
        starts_q=None,
        lengths=None if lengths is None else lengths.contiguous(),
        alibi_slopes=None if alibi_slopes is None else alibi_slopes.expand(query.shape[:2]),
        sequences=query.shape[0],
        max_length_q=query.shape[2],
        max_length_k=key.shape[2],
        window_left=window_left,
        scale=scale,
        softcap=softcap,
        splits=splits,
        input_precision=input_precision,
    )
    for launch in launches:
        launch.run(query.device)
    return output


@_decode.register_fake
def _(query: Tensor, *_: object) -> Tensor:
    return torch.empty_like(query, memory_format=torch.contiguous_format)

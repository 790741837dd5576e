"""Whole layers that PyTorch runs as one operator in eval mode, and has no decomposition of: those of
`nn.TransformerEncoderLayer` and `nn.MultiheadAttention`.

As `aten/src/ATen/native/transformers` computes them on CPUs. A mask says True, or anything but 0, where a key is not to
be seen; its type says how it lies: 0 [queries, keys], 1 [batch, keys], 2 what broadcasts to
[batch, heads, queries, keys].
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

_QUERIES_BY_KEYS, _BATCH_BY_KEYS = 0, 1


def encoder_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    """Attention of x [batch, length, width] to itself and two linear layers, each added to what it reads and with a
    normalisation, before it (`norm_first`) or of the sum."""

    def first(x: Tensor) -> Tensor:
        return functional.layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def second(x: Tensor) -> Tensor:
        return functional.layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    def attended(x: Tensor) -> Tensor:
        packed = (qkv_weight, qkv_bias, proj_weight, proj_bias)
        return multi_head_attention(x, x, x, embed_dim, num_heads, *packed, mask, False, True, mask_type)[0]

    def widened(x: Tensor) -> Tensor:
        hidden = functional.linear(x, ffn_weight_1, ffn_bias_1)
        hidden = functional.gelu(hidden) if use_gelu else functional.relu(hidden)
        return functional.linear(hidden, ffn_weight_2, ffn_bias_2)

    if norm_first:
        src = src + attended(first(src))
        return src + widened(second(src))
    src = first(src + attended(src))
    return second(src + widened(src))


def multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    """The attention [batch, queries, width], and where these are asked for its weights [batch, heads, queries, keys] or
    their mean over the heads. A query that sees no key has NaN."""
    width = embed_dim // num_head
    weights, biases = qkv_weight.chunk(3), qkv_bias.chunk(3)
    found = (functional.linear(*each) for each in zip((query, key, value), weights, biases, strict=True))
    q, k, v = (x.reshape(*x.shape[:2], num_head, width).transpose(1, 2) for x in found)
    scores = (q / math.sqrt(width)) @ k.transpose(-2, -1)
    attention = _masked_softmax(scores, mask, mask_type)
    joined = (attention @ v).transpose(1, 2).flatten(2)
    answer = functional.linear(joined, proj_weight, proj_bias)
    if not need_weights:
        return answer, None
    return answer, attention.mean(1) if average_attn_weights else attention


def _masked_softmax(scores: Tensor, mask: Tensor | None, mask_type: int | None) -> Tensor:
    if mask is None:
        return scores.softmax(-1)
    hidden = mask.bool()
    if mask_type == _QUERIES_BY_KEYS:
        hidden = hidden[None, None]
    elif mask_type == _BATCH_BY_KEYS:
        hidden = hidden[:, None, None]
    return scores.masked_fill(hidden, -math.inf).softmax(-1)


def fast_paths() -> Mapping[Any, Callable[..., Any]]:
    """The decompositions, by overload."""
    return {
        torch.ops.aten._transformer_encoder_layer_fwd.default: encoder_layer,
        torch.ops.aten._native_multi_head_attention.default: multi_head_attention,
    }

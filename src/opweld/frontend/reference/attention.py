"""Attention and MultiHeadAttention: softmax(scale * q k + masks) v, by heads."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from opweld.frontend.reference.standard import MICROSOFT, Array, softmax
from opweld.ops.registry import computes

LOWEST = -3.4028234663852886e38
"""The score of a masked key."""


def split(x: Array, heads: int) -> Array:
    """[batch, length, heads * size] -> [batch, heads, length, size]"""
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def merged(x: Array) -> Array:
    """[batch, heads, length, size] -> [batch, length, heads * size]"""
    batch, _, length, _ = x.shape
    return x.transpose(0, 2, 1, 3).reshape(batch, length, -1)


def attend(
    q: Array, k: Array, v: Array, mask: Array | None, bias: Array | None, past: int, attributes: dict[str, Any]
) -> Array:
    """The values of all keys, mixed for each query: heads in, heads out."""
    scale = attributes.get("scale") or 1 / math.sqrt(q.shape[-1])
    scores = scale * (q @ np.swapaxes(k, -1, -2))
    if mask is not None:
        filtered = attributes.get("mask_filter_value")
        shut = scores.dtype.type(-10000.0 if filtered is None else filtered)
        scores = scores + np.where(open_keys(mask, *scores.shape), scores.dtype.type(0), shut)
    if bias is not None:
        scores = scores + bias
    if attributes.get("unidirectional"):
        scores = np.where(np.tri(*scores.shape[2:], k=past, dtype=bool), scores, LOWEST)
    return softmax(scores) @ v


def open_keys(mask: Array, batch: int, heads: int, queries: int, keys: int) -> Array:
    """Whether a mask lets a query attend to a key, broadcastable to the scores. The mask holds ends, or ends and
    starts, of rows, or a number above zero for each key, or for each query and key."""
    if mask.ndim == 1:
        places = np.arange(keys)[None, :]
        seen = places < mask[:batch, None]
        if len(mask) == 2 * batch and batch:
            seen = seen & (places >= mask[batch:, None])
        return seen[:, None, None, :]
    return (mask[:, None, None, :] if mask.ndim == 2 else mask[:, None, :, :]) > 0


@computes("Attention", domain=MICROSOFT)
def attention(
    x: Array,
    weights: Array,
    bias: Array | None = None,
    mask: Array | None = None,
    past: Array | None = None,
    attention_bias: Array | None = None,
    **attributes: Any,
) -> tuple[Array, Array]:
    """Attention of the heads of a projection, and all keys and values, stacked."""
    heads = int(attributes["num_heads"])
    whole = x @ weights if bias is None else x @ weights + bias
    sizes = attributes.get("qkv_hidden_sizes") or [whole.shape[-1] // 3] * 3
    q, k, v = (split(part, heads) for part in np.split(whole, [sizes[0], sizes[0] + sizes[1]], axis=-1))
    before = 0
    if past is not None:
        before = past.shape[3]
        k, v = np.concatenate([past[0], k], 2), np.concatenate([past[1], v], 2)
    mixed = attend(q, k, v, mask, attention_bias, before, attributes)
    return merged(mixed), np.stack([k, v]) if k.shape == v.shape else k


@computes("MultiHeadAttention", domain=MICROSOFT)
def multi_head(
    q: Array,
    k: Array,
    v: Array,
    bias: Array | None = None,
    mask: Array | None = None,
    attention_bias: Array | None = None,
    past_keys: Array | None = None,
    past_values: Array | None = None,
    **attributes: Any,
) -> tuple[Array, Array, Array]:
    """Attention of queries, keys and values with their biases, and all keys and values."""
    heads = int(attributes["num_heads"])
    width = q.shape[-1]
    parts = (0, 0, 0) if bias is None else np.split(bias, [width, 2 * width])
    queries = split(q + parts[0], heads)
    keys, values = (x if x.ndim == 4 else split(x + part, heads) for x, part in ((k, parts[1]), (v, parts[2])))
    before = 0
    if past_keys is not None and past_values is not None:
        before = past_keys.shape[2]
        keys, values = np.concatenate([past_keys, keys], 2), np.concatenate([past_values, values], 2)
    return merged(attend(queries, keys, values, mask, attention_bias, before, attributes)), keys, values

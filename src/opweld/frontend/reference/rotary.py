"""Rotary embeddings, and attention whose keys and values are shared by groups of heads and grow in a cache."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from opweld.frontend.reference.attention import LOWEST, merged, split
from opweld.frontend.reference.standard import MICROSOFT, Array
from opweld.ops.registry import computes


def counted(count: int) -> Array:
    """0, 1, ... as int64."""
    return np.array(range(count), np.int64)


def turned(x: Array, cosines: Array, sines: Array, places: Array, interleaved: int) -> Array:
    """Heads [batch, heads, length, size] with the first features rotated in pairs by the angles of positions [batch,
    length]. Pairs are adjacent features if interleaved, else half of the rotated features apart."""
    c, s = (table[places][:, None] for table in (cosines, sines))
    count = 2 * cosines.shape[1]
    features = x[..., :count]
    first, second = (features[..., ::2], features[..., 1::2]) if interleaved else np.split(features, 2, axis=-1)
    pair = (first * c - second * s, second * c + first * s)
    whole = np.stack(pair, -1).reshape(features.shape) if interleaved else np.concatenate(pair, -1)
    return np.concatenate([whole, x[..., count:]], -1)


@computes("RotaryEmbedding", domain=MICROSOFT)
def rotary(
    x: Array, positions: Array, cosines: Array, sines: Array, interleaved: int = 0, num_heads: int = 0, **_: Any
) -> Array:
    """[batch, length, heads * size] or [batch, heads, length, size], rotated; a single position is that of the first
    element."""
    if x.ndim == 3:
        heads = num_heads or x.shape[2] // (2 * cosines.shape[1])
        return merged(rotary(split(x, heads), positions, cosines, sines, interleaved))
    length = x.shape[2]
    places = positions if positions.ndim == 2 else np.tile(positions[0] + counted(length), (len(x), 1))
    return turned(x, cosines, sines, places, interleaved)


@computes("GroupQueryAttention", domain=MICROSOFT)
def group_query(
    query: Array,
    key: Array | None,
    value: Array | None,
    past_keys: Array | None,
    past_values: Array | None,
    last: Array,
    total: Array,
    cosines: Array | None = None,
    sines: Array | None = None,
    positions: Array | None = None,
    bias: Array | None = None,
    sink: Array | None = None,
    **attributes: Any,
) -> tuple[Array, Array, Array]:
    """Causal attention of new positions, which follow the past of each row; the caches."""
    heads, groups = int(attributes["num_heads"]), int(attributes["kv_num_heads"])
    length, whole = query.shape[1], int(total.reshape(-1)[0])
    if key is None or value is None:
        size = query.shape[2] // (heads + 2 * groups)
        query, key, value = np.split(query, [heads * size, (heads + groups) * size], axis=-1)
    q, k, v = split(query, heads), split(key, groups), split(value, groups)
    before = np.zeros(len(q), np.int64) if whole == length else last.reshape(-1).astype(np.int64) + 1 - length
    places = before[:, None] + counted(length)
    if attributes.get("do_rotary") and cosines is not None and sines is not None:
        own = places if positions is None else positions
        q, k = (turned(x, cosines, sines, own, attributes.get("rotary_interleaved", 0)) for x in (q, k))
    room = whole if past_keys is None else max(whole, past_keys.shape[2])
    keys, values = (_grown(past, new, before, room) for past, new in ((past_keys, k), (past_values, v)))
    shared_k, shared_v = (np.repeat(x, heads // groups, axis=1) for x in (keys, values))
    scores = (attributes.get("scale") or 1 / math.sqrt(q.shape[-1])) * (q @ np.swapaxes(shared_k, -1, -2))
    mixed = _shares(scores, places, bias, sink, attributes) @ shared_v
    return merged(mixed), keys, values


def _grown(past: Array | None, new: Array, before: Array, room: int) -> Array:
    """The past part of each row's cache, then the new elements, then zeros."""
    batch, groups, length, size = new.shape
    found = np.zeros((batch, groups, room, size), new.dtype)
    for row, start in enumerate(before):
        if past is not None:
            found[row, :, :start] = past[row, :, :start]
        found[row, :, start : start + length] = new[row]
    return found


def _shares(scores: Array, places: Array, bias: Array | None, sink: Array | None, attributes: dict[str, Any]) -> Array:
    """The attention weights."""
    cap, window = attributes.get("softcap") or 0.0, attributes.get("local_window_size", -1)
    scores = np.tanh(scores / cap) * cap if cap > 0 else scores
    if bias is not None:
        scores = scores + np.pad(bias, [(0, 0)] * 3 + [(0, scores.shape[3] - bias.shape[3])])
    keys, own = counted(scores.shape[3]), places[:, None, :, None]
    seen = keys <= own
    if window > 0:
        seen = seen & (keys > own - window)
    scores = np.where(seen, scores, scores.dtype.type(LOWEST))
    beside = None
    if sink is not None:
        beside = sink.reshape(1, -1, 1, 1)
    elif attributes.get("smooth_softmax", 0) > 0:
        beside = np.zeros((1, 1, 1, 1), scores.dtype)
    most = scores.max(axis=-1, keepdims=True)
    most = most if beside is None else np.maximum(most, beside)
    powers = np.exp(scores - most)
    whole = powers.sum(axis=-1, keepdims=True)
    return powers / (whole if beside is None else whole + np.exp(beside - most))

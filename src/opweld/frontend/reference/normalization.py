"""Layer normalisations of a sum, and of embeddings."""

from __future__ import annotations

from typing import Any

import numpy as np

from opweld.frontend.reference.standard import MICROSOFT, Array
from opweld.ops.registry import computes

EPSILON = 1e-12


def normalised(
    x: Array, scale: Array, shift: Array | None, epsilon: float, *, centred: bool, axes: tuple[int, ...] = (-1,)
) -> tuple[Array, Array, Array]:
    """The rows of x, minus their mean if centred, divided by their root mean square; the means; 1 / the roots."""
    mean = x.mean(axis=axes, keepdims=True)
    moved = x - mean if centred else x
    inverse = 1 / np.sqrt((moved * moved).mean(axis=axes, keepdims=True) + epsilon)
    y = moved * inverse * scale
    return (y if shift is None else y + shift), mean, inverse


@computes("SimplifiedLayerNormalization", domain=MICROSOFT)
@computes("SimplifiedLayerNormalization", domain="")
def simplified(x: Array, scale: Array, axis: int = -1, epsilon: float = 1e-5, **_: Any) -> tuple[Array, Array]:
    """x / sqrt(mean square + epsilon) * scale, from an axis on"""
    axes = tuple(range(axis % x.ndim, x.ndim))
    y, _mean, inverse = normalised(x, scale, None, epsilon, centred=False, axes=axes)
    return y, inverse


@computes("SkipLayerNormalization", domain=MICROSOFT)
def skip_layer(
    x: Array, skip: Array, scale: Array, shift: Array | None = None, bias: Array | None = None, epsilon: float = EPSILON
) -> tuple[Array, ...]:
    """The layer normalisation of x + skip + bias; its statistics; the sum."""
    total = x + skip if bias is None else x + skip + bias
    return (*normalised(total, scale, shift, epsilon, centred=True), total)


@computes("SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def skip_simplified(
    x: Array, skip: Array, scale: Array, bias: Array | None = None, epsilon: float = EPSILON
) -> tuple[Array, ...]:
    """The same, without subtracting the mean."""
    total = x + skip if bias is None else x + skip + bias
    return (*normalised(total, scale, None, epsilon, centred=False), total)


@computes("EmbedLayerNormalization", domain=MICROSOFT)
def embed(
    ids: Array,
    segments: Array | None,
    words: Array,
    places: Array,
    parts: Array | None,
    scale: Array,
    shift: Array,
    mask: Array | None = None,
    positions: Array | None = None,
    epsilon: float = EPSILON,
    **_: Any,
) -> tuple[Array, Array, Array]:
    """The layer normalisation of word + position + segment embedding; the number of unmasked elements of each row; the
    sum."""
    total = words[ids] + (places[: ids.shape[1]] if positions is None else places[positions])
    if segments is not None and parts is not None:
        total = total + parts[segments]
    lengths = np.zeros(len(ids), np.int64) if mask is None else mask.sum(axis=1)
    return normalised(total, scale, shift, epsilon, centred=True)[0], lengths.astype(np.int32), total

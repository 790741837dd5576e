"""Pictures of bytes at other sizes, by the integers that PyTorch computes with, and Pillow.

Each axis is a sum of its own, the last one first, and rounded to bytes: weights are numbers of 16 bits with as many
binary places as leave the largest of them room."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from opweld.frontend.torch.builder import Array, Builder, Value
from opweld.ops.aten.elementwise import DOMAIN
from opweld.tensor.dtype import DType

_PLACES = 22
"""The most binary places of a weight."""


@dataclass(frozen=True)
class Resampling:
    """How pictures are resampled.

    Attributes:
        cubic: by a cubic, not linearly. smoothed: by averages over what each element stands for, where there are fewer.
        aligned: whether the corners of both pictures lie on one another.
    """

    cubic: bool
    smoothed: bool
    aligned: bool = False


def resampled_bytes(
    b: Builder, x: Value, sizes: tuple[int, int], factors: tuple[float | None, float | None], how: Resampling
) -> Value:
    """uint8 [batch, channels, height, width], of known height and width -> uint8 [batch, channels, *sizes].

    Args:
        factors: by which each axis grows; None where sizes tell it."""
    for axis in (3, 2):
        before = b.static(b.shape(x)[axis], "the size of a picture")
        places, weights = _weights(before, sizes[axis - 2], factors[axis - 2], how)
        whole, point = _fixed_point(weights)
        seen = b.cast(b.op("Gather", x, b.constant(places, DType.I64), axis=axis), DType.I32)
        spread = whole.reshape(*whole.shape, *(1,) * (3 - axis))
        parts = b.op("Mul", seen, b.constant(spread, DType.I32))
        total = b.op("ReduceSum", parts, b.constant([axis + 1], DType.I64), keepdims=0)
        rounded = b.op("Add", total, b.constant(1 << point >> 1, DType.I32))
        shifted = b.op("ShiftRight", rounded, b.constant(point, DType.I32), domain=DOMAIN)
        made = b.cast(b.op("Clip", shifted, b.constant(0, DType.I32), b.constant(255, DType.I32)), DType.U8)
        b.known[made] = b.known[x].new_empty((*b.shape(x)[:axis], sizes[axis - 2], *b.shape(x)[axis + 1 :]))
        x = made
    return x


def _weights(before: int, after: int, factor: float | None, how: Resampling) -> tuple[Array, Array]:
    """The elements [after, taps] that each one is made of, and their weights, float64."""
    made = np.arange(after)
    half = 2 if how.cubic else 1
    if how.aligned:
        scale = (before - 1) / (after - 1) if after > 1 else 0.0
    else:
        scale = 1 / factor if factor else before / after
    if how.smoothed:
        wide = max(scale, 1.0)
        centre = scale * (made + 0.5)
        first = np.maximum((centre - half * wide + 0.5).astype(np.int64), 0)
        count = np.minimum((centre + half * wide + 0.5).astype(np.int64), before) - first
        taps = np.arange(max(int(count.max()), 1))
        weights = _kernel((taps + first[:, None] - centre[:, None] + 0.5) / wide, how)
        weights = np.where(taps < count[:, None], weights, 0)
        total = weights.sum(1, keepdims=True)
        return np.minimum(first[:, None] + taps, before - 1), weights / np.where(total == 0, 1, total)
    source = scale * made if how.aligned else scale * (made + 0.5) - 0.5
    source = source if how.cubic else np.maximum(source, 0)
    index = np.minimum(np.floor(source).astype(np.int64), before - 1)
    rest = np.clip(source - index, 0, 1)
    taps = np.arange(2 * half) + 1 - half
    places, weights = np.clip(index[:, None] + taps, 0, before - 1), _kernel(taps - rest[:, None], how)
    for tap in range(1, 2 * half):  # beyond an edge its own element counts: one weight, rounded once
        same = places[:, tap] == places[:, tap - 1]
        weights[same, tap] += weights[same, tap - 1]
        weights[same, tap - 1] = 0
    return places, weights


def _kernel(distance: Array, how: Resampling) -> Array:
    """The weight of an element at a distance."""
    x = np.abs(distance)
    if not how.cubic:
        return np.maximum(1 - x, 0)
    a = -0.5 if how.smoothed else -0.75
    near, far = ((a + 2) * x - (a + 3)) * x * x + 1, a * (((x - 5) * x + 8) * x - 4)
    return np.where(x < 1, near, np.where(x < 2, far, 0))


def _fixed_point(weights: Array) -> tuple[Array, int]:
    """Weights as integers, and their binary places."""
    point, largest = 0, max(float(weights.max()), 0.0)
    while point < _PLACES and int(0.5 + largest * (2 << point)) < 1 << 15:
        point += 1
    scaled = weights * math.ldexp(1, point)
    return np.trunc(scaled + np.copysign(0.5, scaled)).astype(np.int32), point

"""Resize and Upsample: each axis on its own, by a matrix of weights of each element for each output position."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from opweld.frontend.reference.standard import Array
from opweld.ops.registry import computes

_DENOMINATOR = 1 << 12
"""Scales are float32, which are taken as a fraction with a denominator of at most this, if there is one."""

_ROUNDINGS: dict[str, Callable[[Fraction], int]] = {
    "round_prefer_floor": lambda place: math.ceil(place - Fraction(1, 2)),
    "round_prefer_ceil": lambda place: math.floor(place + Fraction(1, 2)),
    "floor": math.floor,
    "ceil": math.ceil,
}


@computes("Resize", "Upsample", domain="")
def resize(x: Array, *operands: Array | None, scales: Sequence[float] = (), **attributes: Any) -> Array:
    """X of any shape, by its sizes or by scales -> each axis resampled.

    Upsample, and Resize of opset 10, only have scales besides X: there the corners of elements are at their
    positions, and the nearest is above along an axis that gets shorter, else below."""
    old = len(operands) < 2
    roi, stated, sizes = (None, operands[0] if operands else None, None) if old else (*operands, None)[:3]
    factors = scales if stated is None else stated
    axes = [axis % x.ndim for axis in attributes.get("axes") or range(x.ndim)]
    ratios = [_intended(factor) for factor in factors] if sizes is None or not sizes.size else []
    if not ratios:
        ratios, lengths = _of_sizes(x, axes, np.asarray(sizes), attributes)
    else:
        lengths = [math.floor(ratio * x.shape[axis]) for ratio, axis in zip(ratios, axes, strict=True)]
    if old:
        attributes["coordinate_transformation_mode"] = "asymmetric"
    found = x.astype(np.float64) if x.dtype.kind == "f" else x
    outside = np.zeros((1,) * x.ndim, bool)
    for position, (axis, ratio, length) in enumerate(zip(axes, ratios, lengths, strict=True)):
        size = x.shape[axis]
        if old:
            attributes["nearest_mode"] = "ceil" if ratio < 1 else "floor"
        crop = (0.0, 1.0) if roi is None or not roi.size else (float(roi[position]), float(roi[len(axes) + position]))
        places = [_place(i, size, length, ratio, crop, attributes) for i in range(length)]
        if ratio == 1 and length == size and attributes.get("coordinate_transformation_mode") != "tf_crop_and_resize":
            continue
        found = _along(found, axis, places, ratio, attributes)
        if attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize":
            beyond = np.array([not 0 <= place <= size - 1 for place in places])
            outside = outside | beyond.reshape([-1 if other == axis else 1 for other in range(x.ndim)])
    found = np.where(outside, attributes.get("extrapolation_value", 0.0), found) if outside.any() else found
    return found.astype(x.dtype)


def _intended(scale: float) -> Fraction:
    exact = Fraction(float(np.float32(scale)))
    near = exact.limit_denominator(_DENOMINATOR)
    return near if np.float32(float(near)) == np.float32(scale) else exact


def _of_sizes(x: Array, axes: Sequence[int], sizes: Array, attributes: dict[str, Any]) -> Any:
    """The scale and the length of each axis."""
    ratios = [Fraction(int(size), x.shape[axis]) for size, axis in zip(sizes, axes, strict=True)]
    policy = attributes.get("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return ratios, [int(size) for size in sizes]
    one = min(ratios) if policy == "not_larger" else max(ratios)
    return [one] * len(axes), [math.floor(one * x.shape[axis] + Fraction(1, 2)) for axis in axes]


def _place(
    i: int, size: int, length: int, ratio: Fraction, crop: tuple[float, float], attributes: dict[str, Any]
) -> Fraction:
    """The input position, along an axis of `size`, of output element i of `length`."""
    half = Fraction(1, 2)
    match attributes.get("coordinate_transformation_mode", "half_pixel"):
        case "asymmetric":
            return i / ratio
        case "align_corners":
            return Fraction(i * (size - 1), length - 1) if length > 1 else Fraction(0)
        case "pytorch_half_pixel" if length == 1:
            return Fraction(0)
        case "half_pixel_symmetric":
            return Fraction(size, 2) * (1 - length / (ratio * size)) + (i + half) / ratio - half
        case "tf_crop_and_resize":
            start, end = (Fraction(edge) for edge in crop)
            if length == 1:
                return (start + end) / 2 * (size - 1)
            return start * (size - 1) + i * (end - start) * (size - 1) / (length - 1)
        case _:
            return (i + half) / ratio - half


def _along(x: Array, axis: int, places: Sequence[Fraction], ratio: Fraction, attributes: dict[str, Any]) -> Array:
    size, mode = x.shape[axis], attributes.get("mode", "nearest")
    if mode == "nearest":
        nearest = _ROUNDINGS[attributes.get("nearest_mode", "round_prefer_floor")]
        return np.take(x, [min(max(nearest(place), 0), size - 1) for place in places], axis)
    shrunk = min(float(ratio), 1.0) if attributes.get("antialias") else 1.0
    first = math.floor(-(1 if mode == "linear" else 2) / shrunk) + 1
    taps = np.array([math.floor(place) for place in places], np.int64)[:, None] + np.arange(first, 2 - first)
    distance = np.abs(taps - np.array([float(place) for place in places])[:, None]) * shrunk
    a = attributes.get("cubic_coeff_a", -0.75)
    weights = np.maximum(1 - distance, 0) if mode == "linear" else _cubic(distance, a)
    counted = (taps >= 0) & (taps < size) if attributes.get("exclude_outside") else np.ones(taps.shape, bool)
    weights = np.where(counted, weights, 0)
    weights = weights / weights.sum(1, keepdims=True)
    under = np.take(np.moveaxis(x.astype(np.float64), axis, -1), np.clip(taps, 0, size - 1), -1)
    return np.moveaxis(np.where(counted, under * weights, 0).sum(-1), -1, axis)


def _cubic(distance: Array, a: float) -> Array:
    d = distance
    near, far = ((a + 2) * d - (a + 3)) * d * d + 1, ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))

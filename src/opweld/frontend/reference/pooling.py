"""Pools: the elements of windows, with an axis of positions and an axis of taps for each spatial axis."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np

from opweld.frontend.reference.standard import Array
from opweld.ops.registry import computes


@computes("MaxPool", domain="")
def max_pool(x: Array, **attributes: Any) -> tuple[Array, Array]:
    """X [N, C, spatial...] -> the largest of each window, and its linear index in X: the first one, in row-major order,
    or in column-major order if `storage_order` is 1."""
    windows, inside, _ = _windows(x, attributes)
    lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    shape = (*windows.shape[: x.ndim], math.prod(windows.shape[x.ndim :]))
    flat = np.where(inside, windows, np.asarray(lowest, x.dtype)).reshape(shape)
    first = (inside.reshape(shape) & (flat == flat.max(-1, keepdims=True))).argmax(-1)
    sizes = x.shape[2:]
    steps = [math.prod(sizes[:i] if attributes.get("storage_order") else sizes[i + 1 :]) for i in range(len(sizes))]
    taps = cast("Sequence[Array]", np.unravel_index(first, windows.shape[x.ndim :]))
    images = np.arange(x.shape[0] * x.shape[1], dtype=np.int64).reshape(*x.shape[:2], *(1,) * len(sizes))
    found = images * math.prod(sizes)
    for i, along in enumerate(_positions(x, attributes)[0]):
        place = np.arange(len(along)).reshape([-1 if j == i else 1 for j in range(len(sizes))])
        found = found + along[place, taps[i]] * steps[i]
    return flat.max(-1), found.astype(np.int64)


@computes("AveragePool", domain="")
def average_pool(x: Array, **attributes: Any) -> Array:
    """X [N, C, spatial...] -> the mean of each window: of its elements, or of padding too (`count_include_pad`)."""
    windows, inside, counted = _windows(x, attributes)
    taps = tuple(range(x.ndim, windows.ndim))
    number = np.sum(counted if attributes.get("count_include_pad") else inside, axis=taps)
    return (np.where(inside, windows, 0).sum(axis=taps) / number).astype(x.dtype)


@computes("LpPool", domain="")
def norm_pool(x: Array, **attributes: Any) -> Array:
    """X [N, C, spatial...] -> the p-norm of each window."""
    windows, inside, _ = _windows(x, attributes)
    p = float(attributes.get("p", 2))
    powers = np.where(inside, np.abs(windows), 0) ** p
    return (powers.sum(axis=tuple(range(x.ndim, windows.ndim))) ** (1 / p)).astype(x.dtype)


def _windows(x: Array, attributes: dict[str, Any]) -> tuple[Array, Array, Array]:
    """[N, C, places..., taps...]: the elements, whether a tap is on one, and whether it is on one or on padding."""
    positions, ends = _positions(x, attributes)
    spatial = len(positions)
    windows, inside, counted = x, np.ones((), bool), np.ones((), bool)
    for i, (along, end) in enumerate(zip(positions, ends, strict=True)):
        size = x.shape[2 + i]
        windows = np.moveaxis(np.take(windows, np.clip(along, 0, size - 1), 2 + i), 3 + i, -1)
        where = along.reshape(_apart(along.shape, i, spatial))
        inside = inside & (where >= 0) & (where < size)
        counted = counted & (where < end)
    return windows, np.broadcast_to(inside, windows.shape), np.broadcast_to(counted, windows.shape)


def _apart(shape: tuple[int, ...], i: int, spatial: int) -> list[int]:
    """The shape that broadcasts [positions, taps] of spatial axis i against all axes."""
    made = [1] * (2 + 2 * spatial)
    made[2 + i], made[2 + spatial + i] = shape
    return made


def _positions(x: Array, attributes: dict[str, Any]) -> tuple[list[Array], list[int]]:
    """For each spatial axis, the input index of each tap [positions, taps], and the end of its padding."""
    kernel: Sequence[int] = attributes["kernel_shape"]
    sizes = x.shape[2:]
    n = len(sizes)
    strides, dilations = cast(
        "Iterator[Sequence[int]]", (attributes.get(name) or [1] * n for name in ("strides", "dilations"))
    )
    pads: Sequence[int] = attributes.get("pads") or [0] * (2 * n)
    auto = attributes.get("auto_pad", "NOTSET")
    positions: list[Array] = []
    ends: list[int] = []
    for i, size in enumerate(sizes):
        reach, stride = (kernel[i] - 1) * dilations[i] + 1, strides[i]
        before, after = (0, 0) if auto == "VALID" else (pads[i], pads[n + i])
        if auto in ("SAME_UPPER", "SAME_LOWER"):
            places = -(-size // stride)
            padding = max((places - 1) * stride + reach - size, 0)
            before = padding // 2 if auto == "SAME_UPPER" else padding - padding // 2
            after = padding - before
        else:
            room = (size + before + after - reach) / stride
            # A window that is too large by less than a stride has one position, as quotients are rounded towards 0.
            places = (math.ceil(room) if attributes.get("ceil_mode") else math.trunc(room)) + 1
            if attributes.get("ceil_mode") and (places - 1) * stride >= size + before:
                places -= 1
        starts = np.arange(-before, places * stride - before, stride, dtype=np.int64)
        positions.append(starts[:, None] + np.arange(kernel[i]) * dilations[i])
        ends.append(size + after)
    return positions, ends

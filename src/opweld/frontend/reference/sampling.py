"""GridSample: values of an image at places between its elements."""

from __future__ import annotations

import itertools

import numpy as np

from opweld.frontend.reference.standard import MICROSOFT, Array
from opweld.ops.registry import computes

SHARPNESS = -0.75
"""Of the cubic that weighs four neighbours."""


@computes("GridSample", domain=MICROSOFT)
def grid_sample(
    x: Array, grid: Array, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: int = 0
) -> Array:
    """X [N, C, H, W] at grid [N, h, w, 2] of (column, row), -1 to 1 -> [N, C, h, w]"""
    found = np.zeros((*x.shape[:2], *grid.shape[1:3]), x.dtype)
    taps = [_taps(grid[..., 1 - axis], x.shape[2 + axis], mode, align_corners) for axis in (0, 1)]
    batch = np.indices(grid.shape[:3])[0]
    for (row, high), (column, wide) in itertools.product(*taps):
        r, inside_r = _padded(row, x.shape[2], padding_mode, align_corners)
        c, inside_c = _padded(column, x.shape[3], padding_mode, align_corners)
        weight = high * wide * (inside_r & inside_c)
        found += np.moveaxis(x[batch, :, r, c] * weight[..., None], -1, 1).astype(x.dtype)
    return found


def _taps(grid: Array, size: int, mode: str, aligned: int) -> list[tuple[Array, Array]]:
    """The elements around each place along an axis, and what each counts."""
    place = (grid + 1) / 2 * (size - 1) if aligned else ((grid + 1) * size - 1) / 2
    if mode == "nearest":
        return [(np.rint(place), np.ones_like(place))]
    first = np.floor(place)
    if mode == "bilinear":
        return [(first, first + 1 - place), (first + 1, place - first)]
    return [(first + k, _cubic(np.abs(place - first - k))) for k in (-1, 0, 1, 2)]


def _cubic(distance: Array) -> Array:
    d, a = distance, SHARPNESS
    near = (a + 2) * d**3 - (a + 3) * d**2 + 1
    return np.where(d <= 1, near, a * (d**3 - 5 * d**2 + 8 * d - 4))


def _padded(place: Array, size: int, padding: str, aligned: int) -> tuple[Array, Array]:
    """The element that stands for one outside, and whether it counts."""
    inside = np.ones(place.shape, bool)
    if padding == "zeros":
        inside = (place >= 0) & (place < size)
    elif padding == "reflection":
        low, high = (0.0, size - 1.0) if aligned else (-0.5, size - 0.5)
        span = max(high - low, 1e-30)
        around = np.mod(place - low, 2 * span)
        place = low + np.minimum(around, 2 * span - around)
    return np.clip(np.rint(place), 0, size - 1).astype(np.int64), inside

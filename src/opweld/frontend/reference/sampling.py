"""GridSample: values of an image interpolated between its elements."""

from __future__ import annotations

import itertools

import numpy as np

from opweld.frontend.reference.standard import MICROSOFT, Array
from opweld.ops.registry import computes

SHARPNESS = -0.75
"""The coefficient of the cubic kernel."""


@computes("GridSample", domain="")
@computes("GridSample", domain=MICROSOFT)
def grid_sample(
    x: Array, grid: Array, mode: str = "linear", padding_mode: str = "zeros", align_corners: int = 0
) -> Array:
    """X [N, C, spatial...] at grid [N, places..., n] of (..., row, column), -1 to 1 -> [N, C, places...]"""
    n, places = x.ndim - 2, grid.shape[1:-1]
    found = np.zeros((*x.shape[:2], *places), x.dtype)
    taps = [_taps(grid[..., n - 1 - axis], x.shape[2 + axis], mode, align_corners) for axis in range(n)]
    batch = np.indices(grid.shape[:-1])[0]
    for chosen in itertools.product(*taps):
        weight, inside = np.ones(grid.shape[:-1]), np.ones(grid.shape[:-1], bool)
        elements: list[Array] = []
        for axis, (place, part) in enumerate(chosen):
            element, known = _padded(place, x.shape[2 + axis], padding_mode, align_corners)
            elements.append(element)
            weight, inside = weight * part, inside & known
        under = np.where(inside[..., None], x[(batch, slice(None), *elements)] * weight[..., None], 0)
        found += np.moveaxis(under, -1, 1).astype(x.dtype)
    return found


def _taps(grid: Array, size: int, mode: str, aligned: int) -> list[tuple[Array, Array]]:
    """The elements around each position along an axis, and their weights."""
    place = (grid + 1) / 2 * (size - 1) if aligned else ((grid + 1) * size - 1) / 2
    if mode == "nearest":
        return [(np.rint(place), np.ones_like(place))]
    first = np.floor(place)
    if mode in ("linear", "bilinear"):
        return [(first, first + 1 - place), (first + 1, place - first)]
    return [(first + k, _cubic(np.abs(place - first - k))) for k in (-1, 0, 1, 2)]


def _cubic(distance: Array) -> Array:
    d, a = distance, SHARPNESS
    near = (a + 2) * d**3 - (a + 3) * d**2 + 1
    return np.where(d <= 1, near, a * (d**3 - 5 * d**2 + 8 * d - 4))


def _padded(place: Array, size: int, padding: str, aligned: int) -> tuple[Array, Array]:
    """The element that replaces one outside, and whether it counts."""
    inside = np.ones(place.shape, bool)
    if padding == "zeros":
        inside = (place >= 0) & (place < size)
    elif padding == "reflection":
        low, high = (0.0, size - 1.0) if aligned else (-0.5, size - 0.5)
        span = max(high - low, 1e-30)
        around = np.mod(place - low, 2 * span)
        place = low + np.minimum(around, 2 * span - around)
    return np.clip(np.rint(place), 0, size - 1).astype(np.int64), inside

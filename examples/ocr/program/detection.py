"""Where there is text: "Real-time Scene Text Detection with Differentiable Binarization" (Liao et al., 2020).

The detector gives the probability of each pixel to be of the inner part of a line of text. Pixels above a threshold
that touch each other are one line; its box is the smallest rectangle around them, grown by what the detector left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, cast

import numpy as np
from numpy.typing import NDArray

from .picture import normalised, resized

Floats = NDArray[np.float32]

SHORT_SIDE: Final = 736
LONG_SIDE: Final = 2016
MULTIPLE: Final = 32
"""Of which sides of the detector's input are."""
INNER: Final = 0.3
"""Probability above which a pixel is text."""
SURE: Final = 0.5
"""Mean probability within a box above which it is one."""
GROWTH: Final = 1.6
"""A box grows by this times its area over its perimeter on each side."""
SMALLEST: Final = 3
"""Pixels of the shorter side of a box."""


def detector_input(picture: NDArray[np.uint8]) -> Floats:
    """float32 (1, 3, height, width): scaled until the shorter side is long enough for small text, or the longer one as
    long as may be."""
    height, width = picture.shape[:2]
    scale = min(max(1.0, SHORT_SIDE / min(height, width)), LONG_SIDE / max(height, width))
    sides = [max(MULTIPLE, round(side * scale / MULTIPLE) * MULTIPLE) for side in (height, width)]
    return normalised(resized(picture, sides[0], sides[1]))[None]


def boxes_of(probability: Floats, size: tuple[int, ...]) -> Floats:
    """The corners of lines of text, (count, 4, 2) as x and y in a picture of `size` (height, width), clockwise from the
    upper left one; from top to bottom.

    `probability`: of each pixel of the detector's input, (height, width)."""
    scale = np.array([size[1] / probability.shape[1], size[0] / probability.shape[0]], np.float32)
    limit = np.array([size[1], size[0]], np.float32)
    found: list[Floats] = []
    for points in regions(probability > INNER):
        centre, axes, sides = smallest_rectangle(points)
        if min(sides) < SMALLEST or mean_within(probability, centre, axes, sides) < SURE:
            continue
        sides = sides + 2 * GROWTH * (sides[0] * sides[1]) / (2 * (sides[0] + sides[1]))
        found.append(np.clip(corners(centre, axes, sides) * scale, 0, limit))
    found.sort(key=lambda box: (float(box[:, 1].mean()), float(box[:, 0].min())))
    return np.array(found, np.float32).reshape(-1, 4, 2)


def regions(mask: NDArray[np.bool_]) -> Iterator[Floats]:
    """Pixels that touch each other, corners too: for each set, the ends of its runs in rows, as x and y."""
    edges = np.diff(np.pad(mask, ((0, 0), (1, 1))).astype(np.int8), axis=1)
    rows, starts = np.nonzero(edges == 1)
    stops = np.nonzero(edges == -1)[1]
    parents = list(range(len(rows)))

    def root(run: int) -> int:
        while parents[run] != run:
            parents[run] = parents[parents[run]]
            run = parents[run]
        return run

    firsts = np.searchsorted(rows, cast("NDArray[np.int64]", np.arange(len(mask) + 1))).tolist()
    for row in range(1, mask.shape[0]):
        above, below, end = (firsts[row + at] for at in (-1, 0, 1))
        last = below
        while above < last and below < end:
            if starts[above] <= stops[below] and starts[below] <= stops[above]:
                parents[root(below)] = root(above)
            if stops[above] < stops[below]:
                above += 1
            else:
                below += 1
    roots = np.array([root(run) for run in range(len(rows))], np.int64)
    for one in np.unique(roots):
        runs = np.nonzero(roots == one)[0]
        ends = np.concatenate([starts[runs], stops[runs] - 1])
        yield np.stack([ends, np.tile(rows[runs], 2)], axis=1).astype(np.float32)


def smallest_rectangle(points: Floats) -> tuple[Floats, Floats, Floats]:
    """The rectangle of the least area around points: its centre, its axes (the first one the more horizontal), and its
    sides along them. One of its sides lies on the convex hull."""
    hull = convex_hull(points)
    edges = np.roll(hull, -1, axis=0) - hull
    angles = np.unique(np.arctan2(edges[:, 1], edges[:, 0]) % (np.pi / 2))
    angles = np.where(angles > np.pi / 4, angles - np.pi / 2, angles)
    across = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    axes = np.stack([across, np.stack([-across[:, 1], across[:, 0]], axis=1)], axis=1)  # angle, axis, x and y
    along = axes @ hull.T
    least, most = along.min(axis=2), along.max(axis=2)
    best = int(np.argmin(np.prod(most - least, axis=1)))
    centre = (least[best] + most[best]) / 2 @ axes[best]
    return centre.astype(np.float32), axes[best].astype(np.float32), (most - least)[best].astype(np.float32)


def convex_hull(points: Floats) -> Floats:
    """The corners of the convex hull, in order (Andrew's monotone chain)."""
    ordered = [(float(x), float(y)) for x, y in np.unique(points, axis=0)]
    if len(ordered) < 3:
        return np.array(ordered, np.float32)

    def half(ordered: list[tuple[float, float]]) -> list[tuple[float, float]]:
        chain: list[tuple[float, float]] = []
        for x, y in ordered:
            while len(chain) > 1:
                (ax, ay), (bx, by) = chain[-2:]
                if (bx - ax) * (y - ay) > (by - ay) * (x - ax):
                    break
                chain.pop()
            chain.append((x, y))
        return chain[:-1]

    return np.array(half(ordered) + half(ordered[::-1]), np.float32)


def mean_within(probability: Floats, centre: Floats, axes: Floats, sides: Floats) -> float:
    """The mean probability of the pixels within a rectangle."""
    outer = corners(centre, axes, sides)
    low = np.maximum(np.floor(outer.min(axis=0)), 0).astype(int)
    high = np.ceil(outer.max(axis=0)).astype(int) + 1
    part = probability[low[1] : high[1], low[0] : high[0]]
    y, x = np.mgrid[low[1] : low[1] + part.shape[0], low[0] : low[0] + part.shape[1]]
    offsets = np.stack([x - centre[0], y - centre[1]], axis=-1) @ axes.T
    within = np.all(np.abs(offsets) <= sides / 2 + 1e-3, axis=-1)
    return float(part[within].mean()) if within.any() else 0.0


def corners(centre: Floats, axes: Floats, sides: Floats) -> Floats:
    """Of a rectangle, clockwise from the upper left one: (4, 2)."""
    signs = np.array([(-1, -1), (1, -1), (1, 1), (-1, 1)], np.float32)
    return (centre + (signs * sides / 2) @ axes).astype(np.float32)

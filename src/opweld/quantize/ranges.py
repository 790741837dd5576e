"""Which range of a value's distribution 256 codes are spread over: a wide one is coarse, a narrow one cuts off."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from opweld.quantize.histogram import BINS, Histogram

Method = Literal["minmax", "percentile", "entropy", "mse"]
METHODS: tuple[Method, ...] = get_args(Method)

KEPT = 0.9999
"""The part of all elements that a range by percentile holds; what it cuts off is divided between both ends."""

_SHRUNK = np.linspace(1.0, 0.2, 65)
"""The parts of the whole range that a search tries, end by end."""

_CODES = 256

Counts = NDArray[Any]
Loss = Callable[[Counts, NDArray[np.float64], float, float], float]
"""How bad a range from low to high is, for these counts of elements at these centres."""


def range_of(histogram: Histogram, method: Method) -> tuple[float, float]:
    """The range of a value, 0 included, within what its elements were."""
    if method == "minmax" or not histogram.width:
        return histogram.low, histogram.high
    if method == "percentile":
        return _percentile(histogram)
    return _searched(histogram, _squared_error if method == "mse" else _divergence)


def _percentile(histogram: Histogram) -> tuple[float, float]:
    running: NDArray[np.int64] = np.cumsum(histogram.counts)
    cut = (1 - KEPT) / 2 * float(running[-1])
    first = int((running <= cut).sum())
    last = int((running < float(running[-1]) - cut).sum())
    low, high = (first - BINS // 2) * histogram.width, (last + 1 - BINS // 2) * histogram.width
    return min(0.0, max(low, histogram.low)), max(0.0, min(high, histogram.high))


def _searched(histogram: Histogram, loss: Loss) -> tuple[float, float]:
    """The ends of least loss: the upper first, then the lower with it, then the upper once more."""
    held = np.flatnonzero(histogram.counts)
    part = slice(int(held[0]), int(held[-1]) + 1)
    counts, centres = histogram.counts[part], histogram.centres()[part]
    low, high = histogram.low, histogram.high
    for _ in range(2):
        if histogram.high > 0:
            high = min((histogram.high * part for part in _SHRUNK), key=lambda end: loss(counts, centres, low, end))
        if histogram.low < 0:
            low = min((histogram.low * part for part in _SHRUNK), key=lambda end: loss(counts, centres, end, high))
    return low, high


def _squared_error(counts: Counts, centres: NDArray[np.float64], low: float, high: float) -> float:
    scale = (high - low) / (_CODES - 1)
    first = np.round(low / scale)
    codes = np.clip(np.round(centres / scale), first, first + _CODES - 1)
    return float((counts * (codes * scale - centres) ** 2).sum())


def _divergence(counts: Counts, centres: NDArray[np.float64], low: float, high: float) -> float:
    """Kullback and Leibler's divergence of the distribution of codes, each spread over its bins, from that of the
    elements, those outside counted at the ends."""
    inside = (centres >= low) & (centres <= high)
    if not inside.any():
        return float("inf")
    within, middle = counts[inside].astype(np.float64), centres[inside]
    clipped = within.copy()
    clipped[0] += counts[centres < low].sum()
    clipped[-1] += counts[centres > high].sum()
    codes = np.round((middle - low) / (high - low) * (_CODES - 1)).astype(np.int64)
    held = within > 0
    sums = np.bincount(codes, weights=within, minlength=_CODES)
    bins = np.bincount(codes, weights=held, minlength=_CODES)
    spread = np.where(held, sums[codes] / np.maximum(bins[codes], 1), 0.0)
    p, q = clipped / clipped.sum(), spread / max(spread.sum(), 1e-300)
    seen = p > 0
    return float((p[seen] * np.log(p[seen] / np.maximum(q[seen], 1e-12))).sum())

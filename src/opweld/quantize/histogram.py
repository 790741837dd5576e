"""The distribution of a value over all samples, in memory that does not grow with them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

BINS = 4096
"""Of a histogram; half of them on either side of 0."""


class Histogram:
    """Counts of elements in bins of one width around 0, with the exact least and largest element.

    Where an element lies outside, the width is doubled until it does not, and pairs of bins become one: the counts are
    those that the final width would have given, whatever the order of the samples, and no sample is seen twice.

    Attributes:
        low, high: the least and the largest element so far, 0 included: what a range has to hold.
        counts: elements a bin. width: of a bin; 0 as long as all elements are 0.
    """

    def __init__(self) -> None:
        self.low = self.high = 0.0
        self.counts = np.zeros(BINS, np.int64)
        self.width = 0.0
        self._zeros = 0

    @property
    def nbytes(self) -> int:
        """Bytes that it takes."""
        return int(self.counts.nbytes)

    def add(self, array: Array) -> None:
        """Counts the elements of a float array, which are finite."""
        if not array.size:
            return
        low, high = float(array.min()), float(array.max())
        self.low, self.high = min(self.low, low), max(self.high, high)
        reach = max(-low, high)
        if reach <= 0 and not self.width:
            self._zeros += array.size
            return
        self._widen(max(reach, -self.low, self.high))
        places = np.floor(array.astype(np.float64).reshape(-1) / self.width).astype(np.int64) + BINS // 2
        self.counts += np.bincount(np.clip(places, 0, BINS - 1), minlength=BINS)

    def _widen(self, reach: float) -> None:
        """Makes the bins so wide that they hold `reach`."""
        needed = 2.0 ** (np.ceil(np.log2(reach)) + 1) / BINS
        if not self.width:
            self.width = float(needed)
            self.counts[BINS // 2] += self._zeros
        while self.width < needed:
            merged = self.counts.reshape(BINS // 2, 2).sum(axis=1)
            self.counts = np.zeros(BINS, np.int64)
            self.counts[BINS // 4 : 3 * BINS // 4] = merged
            self.width *= 2

    def centres(self) -> NDArray[np.float64]:
        """The middle of each bin."""
        return (np.arange(BINS, dtype=np.float64) - BINS // 2 + 0.5) * self.width


class ChannelMeans:
    """The mean of each channel over all samples.

    Attributes:
        axis: of the channels.
    """

    def __init__(self, axis: int) -> None:
        self.axis = axis
        self._sums: NDArray[np.float64] | None = None
        self._count = 0

    @property
    def nbytes(self) -> int:
        """Bytes that it takes."""
        return 0 if self._sums is None else int(self._sums.nbytes)

    def add(self, array: Array) -> None:
        """Adds the elements of an array, of as many channels every time."""
        if not array.size:
            return
        axis = self.axis % array.ndim
        sums = array.sum(axis=tuple(i for i in range(array.ndim) if i != axis), dtype=np.float64)
        self._sums = sums if self._sums is None else self._sums + sums
        self._count += array.size // array.shape[axis]

    def means(self) -> NDArray[np.float64] | None:
        """One number a channel; None where there was no element."""
        return None if self._sums is None else self._sums / self._count

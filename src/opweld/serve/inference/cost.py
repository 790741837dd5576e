"""What a run takes by its size, learned from runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_MEMORY: Final = 16
"""A mean is of about so many runs: what a machine does changes with its neighbours."""

_OUTLIER: Final = 3.0
"""A run that took so many times what others of its size take counts as if it had taken this: a thread lost its core. No
run is so much faster than it can be: one that took so small a part of it tells that those were beside other work."""


@dataclass
class _Mean:
    """Runs of nearly one size."""

    size: float
    seconds: float
    count: int = 1

    def add(self, size: float, seconds: float) -> None:
        self.count = 1 if seconds * _OUTLIER < self.seconds else min(self.count + 1, _MEMORY)
        self.seconds += (min(seconds, self.seconds * _OUTLIER) - self.seconds) / self.count
        self.size += (size - self.size) / self.count


class Cost:
    """Seconds of a run as `fixed + each * size`.

    Recent runs are put into classes by powers of two of their size, and the line through the classes' means is what is
    known: so a thousand runs of one row in a row do not forget what sixteen rows take. Errors count by their ratio, for
    `fixed` is seen in small runs alone.

    Until there are two classes, nothing is known to be fixed, and so nothing is gained by waiting.

    Attributes:
        fixed: seconds that a run takes whatever its size, which are saved where two become one.
        each: seconds that one more unit of size takes.
    """

    def __init__(self) -> None:
        self._classes: dict[int, _Mean] = {}
        self._unfitted = 0
        self.fixed = self.each = 0.0

    @property
    def known(self) -> bool:
        """Whether runs were seen that tell what is fixed."""
        return len(self._classes) > 1

    def seconds(self, size: float) -> float:
        """Of a run; 0 where nothing is known."""
        return self.fixed + self.each * size

    def observe(self, size: int, seconds: float) -> None:
        """A run of a size, 1 or more, took so long."""
        key = size.bit_length()
        if (mean := self._classes.get(key)) is None:
            self._classes[key] = _Mean(size, seconds)
        else:
            mean.add(size, seconds)
            self._unfitted += 1
            if mean.count == _MEMORY and self._unfitted < _MEMORY // 2:
                return  # a mean of many hardly moves
        self._unfitted = 0
        self._fit()

    def _fit(self) -> None:
        """The line of the least squares of relative errors, with neither part below 0."""
        means = [mean for mean in self._classes.values() if mean.seconds > 0]
        weights = [mean.count / mean.seconds**2 for mean in means]
        if not means:
            return
        total = sum(weights)
        size = sum(w * mean.size for w, mean in zip(weights, means, strict=True)) / total
        seconds = sum(w * mean.seconds for w, mean in zip(weights, means, strict=True)) / total
        spread = sum(w * (mean.size - size) ** 2 for w, mean in zip(weights, means, strict=True))
        slope = seconds / size
        if len(means) > 1:
            both = sum(
                w * (mean.size - size) * (mean.seconds - seconds) for w, mean in zip(weights, means, strict=True)
            )
            slope = min(max(both / spread, 0.0), slope)
        self.each, self.fixed = slope, seconds - slope * size

"""When the next call is expected."""

from __future__ import annotations

import math
from typing import Final

_MEMORY: Final = 16
"""The mean time between calls is of about so many."""

_PAUSE: Final = 64
"""A gap of so many times the mean is a pause, after which calls come as they come then."""


class Arrivals:
    """The time between calls of one kind."""

    def __init__(self) -> None:
        self._last = -math.inf
        self._mean = math.inf

    def came(self, now: float) -> None:
        """A call came."""
        gap = now - self._last
        self._last = now
        if math.isinf(self._mean):
            self._mean = gap
        elif gap > _PAUSE * self._mean:
            self._mean = math.inf
        else:
            self._mean += (gap - self._mean) / _MEMORY

    def expected(self, now: float) -> float:
        """Seconds until the next one: the mean, or the time since the last one where that is longer, since then fewer
        come than before. Infinite before there were two."""
        return max(self._mean, now - self._last)

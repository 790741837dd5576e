"""Cosines and sines of rotary embedding, by position: computed in float64, rounded once, and kept."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from opweld.llm.config import Rope

Float32 = NDArray[np.float32]

KEPT = 1 << 15
"""Positions of which the angles are kept; those beyond are computed when they are asked for."""


class Angles:
    """Those of one rotary embedding."""

    def __init__(self, rope: Rope) -> None:
        self._rope = rope
        self._kept = self._computed(np.arange(0))

    def at(self, positions: NDArray[np.int64]) -> tuple[Float32, Float32]:
        """float32 [tokens, pairs] of cosines, and of sines."""
        one = len(positions) == 1
        highest = (positions.item() if one else int(positions.max())) + 1
        if highest > KEPT:
            return self._computed(positions)
        if highest > len(self._kept[0]):
            self._kept = self._computed(np.arange(min(KEPT, max(256, 2 * highest))))
        at = slice(highest - 1, highest) if one else positions
        return self._kept[0][at], self._kept[1][at]

    def _computed(self, positions: NDArray[np.int64]) -> tuple[Float32, Float32]:
        turned = positions[:, None] * self._rope.frequencies
        cosines, sines = (f(turned) * self._rope.scale for f in (np.cos, np.sin))
        return cosines.astype(np.float32), sines.astype(np.float32)

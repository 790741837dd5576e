"""Vectors of texts out of those of their tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from opweld.llm.encoder_config import Pooling

_LEAST = 1e-12
"""No vector counts as shorter, where vectors are divided by their lengths."""


def pooled(states: NDArray[np.float32], counts: Sequence[int], pooling: Pooling) -> NDArray[np.float32]:
    """float32 [texts, hidden] of texts of so many tokens, whose states [tokens, hidden] lie one after the other; for
    "cls", each text has the state of its first token alone.

    Each text is computed by itself, in float64, and rounded once."""
    made = np.empty((len(counts), states.shape[1]), np.float64)
    end = 0
    for vector, count in zip(made, counts, strict=True):
        own = states[end : (end := end + count)]
        vector[:] = own.mean(axis=0, dtype=np.float64) if pooling.kind == "mean" else own.max(axis=0)
        if pooling.normalized:
            vector /= max(float(np.sqrt(vector @ vector)), _LEAST)
    return made.astype(np.float32)

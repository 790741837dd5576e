"""Whether weights of bytes can be multiplied by an instruction that saturates, and the sums be exact.

Without VNNI, vpmaddubsw multiplies four unsigned bytes by four signed ones and adds neighbours, the first two and the
last two, in 16 bits, which saturate. Weights say whether that can happen: of an unsigned byte the most is 255.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from opweld.schedule.cost import dot_products
from opweld.target import Target

UNSIGNED = 255
LIMITS = -(2**15) // UNSIGNED + 1, (2**15 - 1) // UNSIGNED
"""Of the sum of two weights of one sign: times 255 it is an integer of 16 bits."""


def pairs_fit(weights: NDArray[Any], axis: int) -> bool:
    """Whether the products of neighbours along an axis, 2i and 2i + 1, with any unsigned bytes sum to 16 bits."""
    moved = np.moveaxis(np.asarray(weights), axis, -1)
    if moved.shape[-1] % 2:
        return False
    wide = moved.astype(np.int16)
    first, second = wide[..., ::2], wide[..., 1::2]
    low, high = LIMITS
    most = np.maximum(first, 0) + np.maximum(second, 0)
    least = np.minimum(first, 0) + np.minimum(second, 0)
    return bool(most.max(initial=0) <= high and least.min(initial=0) >= low)


def gains_by_pairs(target: Target) -> bool:
    """Whether a target multiplies bytes faster where their pairs are known to fit."""
    return dot_products("dot4s", target) < dot_products("dot4", target)

"""Frequencies of rotary position embeddings, and what stretches them beyond the context of the training.

Formulas are in float64; transformers computes them in float32, llama.cpp too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from opweld.errors import ModelError


def frequencies(theta: float, rotated: int) -> NDArray[np.float64]:
    """theta ** (-2 i / rotated) of each pair i of the `rotated` features (RoFormer, arXiv:2104.09864)."""
    return theta ** (-np.arange(0, rotated, 2, dtype=np.float64) / rotated)


def llama3(plain: NDArray[np.float64], factor: float, low: float, high: float, original: int) -> NDArray[np.float64]:
    """Frequencies of Llama 3.1: those with fewer than `low` turns in the original context are divided by the factor,
    those with more than `high` stay, those between are mixed."""
    turns = original * plain / (2 * math.pi)
    mixed = np.clip((turns - low) / (high - low), 0, 1)
    return plain * (mixed + (1 - mixed) / factor)


def yarn(
    theta: float, rotated: int, factor: float, original: int, fast: float = 32, slow: float = 1, truncated: bool = True
) -> NDArray[np.float64]:
    """Frequencies of YaRN (arXiv:2309.00071): pairs with more than `fast` turns in the original context stay, those
    with fewer than `slow` are divided by the factor, those between are mixed by their index. truncated: the indices
    at both ends are rounded outwards."""

    def index(turns: float) -> float:
        return rotated * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = index(fast), index(slow)
    if truncated:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rotated - 1)
    ramp = np.clip((np.arange(rotated // 2) - low) / max(high - low, 0.001), 0, 1)
    plain = frequencies(theta, rotated)
    return plain * (1 - ramp) + plain / factor * ramp


def yarn_scale(factor: float, weight: float = 1.0) -> float:
    """What YaRN multiplies sine and cosine with."""
    return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0


def divided(
    plain: NDArray[np.float64], factors: Sequence[float] | NDArray[np.floating], what: str
) -> NDArray[np.float64]:
    """Frequencies divided by a factor for each pair, as LongRoPE (arXiv:2402.13753) and llama.cpp's `rope_freqs` have
    them. Raises ModelError, naming `what`, where their number is not that of the pairs, or one is not above 0."""
    found = np.asarray(factors, dtype=np.float64)
    if found.shape != plain.shape or not (found > 0).all():
        raise ModelError(f"{what}: {plain.size} factors above 0 are needed, one for each pair of features of a head")
    return plain / found


def longrope_scale(factor: float, original: int) -> float:
    """What LongRoPE multiplies sine and cosine with. factor: the context by the original one."""
    return math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0


def tabulated(cosines: NDArray[np.floating], sines: NDArray[np.floating]) -> tuple[NDArray[np.float64], float] | None:
    """The frequencies that tables [positions, pairs] were made of, and the scale; None where they are no such tables.

    A table says each angle but for whole turns, and rounded. So position 1 says a frequency roughly, which says the
    whole turns of position 2, and that halves the error; and so on."""
    scale = float(cosines[0].mean(dtype=np.float64))
    if len(cosines) < 2 or not scale > 0:
        return None
    found: NDArray[np.float64] = _angles(cosines[1], sines[1])
    at = 1
    while 2 * at < len(cosines):
        at *= 2
        off: NDArray[np.float64] = _angles(cosines[at], sines[at]) - found * at
        found = found + (off - 2 * math.pi * np.round(off / (2 * math.pi))) / at
    rows = np.unique(np.linspace(0, len(cosines) - 1, 64).astype(np.int64))
    turned: NDArray[np.float64] = rows[:, None] * found
    pairs = ((cosines[rows], np.cos(turned)), (sines[rows], np.sin(turned)))
    right = all(bool((np.abs(table - scale * expected) < 0.01 * scale).all()) for table, expected in pairs)
    return (found, scale) if right else None


def _angles(cosines: NDArray[np.floating], sines: NDArray[np.floating]) -> NDArray[np.float64]:
    return np.arctan2(sines.astype(np.float64), cosines.astype(np.float64))

"""Activations as integers with a scale and a zero point, and what biases ask of the scales of weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from opweld.tensor.integer_weights import LEAST_SCALE

Array = NDArray[Any]
Codes = Literal["uint8", "int8"]


@dataclass(frozen=True)
class Affine:
    """What the codes of a value mean: (code - zero_point) * scale.

    Attributes:
        scale: as float32 holds it. zero_point: a code. low, high: the least and the largest code.
    """

    scale: float
    zero_point: int
    low: int
    high: int


def affine_of(low: float, high: float, codes: Codes) -> Affine | None:
    """256 codes over a range that holds 0; None where it is empty."""
    least, most = (0, 255) if codes == "uint8" else (-128, 127)
    scale = float(np.float32((high - low) / 255))
    if not scale >= LEAST_SCALE:
        return None
    return Affine(scale, int(np.clip(np.round(least - low / scale), least, most)), least, most)


def least_weight_scales(bias: Array, scale: float) -> NDArray[np.float64]:
    """The scales of weights below which a bias, in steps of `scale` times theirs, would be no int32."""
    return np.abs(bias.astype(np.float64)) / (scale * 2.0**30)

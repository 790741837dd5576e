"""Integers in blocks as products of rounded rows read them, see `tensor/rounded.py`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opweld.llm.weights import Blocked
from opweld.tensor.rounded import LINE, PART, fixed_point, numbers_of, panels_of


@dataclass(frozen=True, eq=False)
class Panels:
    """A matrix in panels.

    Attributes:
        codes: uint8 [panels, bytes]. units: float32 [panels, 16].
        numbers: int16, scales or pairs of a scale and a minimum, [panels, numbers].
        bits: of a stored code, 4 or 8. zero: what is subtracted from one. blocks: of a row.
        added: what a stored code is more than the one that it was.
    """

    codes: NDArray[np.uint8]
    units: NDArray[np.float32]
    numbers: NDArray[np.int16]
    bits: int
    zero: int
    blocks: int
    added: int

    @property
    def parts(self) -> dict[str, NDArray[Any]]:
        """Its arrays, by name."""
        return {"codes": self.codes, "units": self.units, "numbers": self.numbers}


def has_panels(weight: Blocked) -> bool:
    """Whether rows are groups that are rounded, and blocks whole parts of them."""
    return weight.shape[1] % LINE == 0 and weight.block % PART == 0


def in_panels(weight: Blocked) -> Panels:
    """Codes of 4 bits count from 8, so that sums of a part are integers of 16 bits; the minimum takes in what unsigned
    ones had before."""
    bits = 4 if weight.bits == 4 else 8
    middle, signed = 1 << weight.bits - 1, weight.codes.dtype == np.int8
    added = 1 << bits - 1 if signed else 0
    minimums, low = weight.minimums, -middle if signed else 0
    zero = added
    if bits == 4 and not signed:
        moved = middle * weight.scales
        minimums, low, zero = moved if minimums is None else minimums + moved, -middle, middle
    units, numbers = fixed_point(weight.scales, minimums, low, low + 2 * middle - 1)
    codes = (weight.codes.astype(np.int16) + added).astype(np.uint8)
    return Panels(
        panels_of(codes, bits), numbers_of(units), numbers_of(numbers), bits, zero, weight.scales.shape[1], added
    )

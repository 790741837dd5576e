"""Weights of a language model as its file has them: arrays, or integers in blocks.

Names are opweld's, whatever the format: `embedding`, `norm`, `head`, `layers.N.query`, ... (`config.py` lists them).
A matrix is [out, in], as the formats store it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Blocked:
    """A matrix of integers with a scale, and perhaps a minimum, for each block of a row.

    value[i, j] = codes[i, j] * scales[i, j // block] + minimums[i, j // block]

    Attributes:
        codes: uint8 or int8 [out, in], in the range of `bits`: 0 to 2**bits - 1 if unsigned.
        scales, minimums: float32 [out, in / block]; minimums None where they are 0.
        bits: of a code, 4 to 8. block: elements of a row that share a scale.
    """

    codes: NDArray[np.uint8] | NDArray[np.int8]
    scales: NDArray[np.float32]
    minimums: NDArray[np.float32] | None
    bits: int
    block: int

    @property
    def shape(self) -> tuple[int, int]:
        """(out, in)."""
        rows, columns = self.codes.shape
        return rows, columns

    def rows(self, first: int, count: int) -> Blocked:
        """Some rows of it."""
        own = slice(first, first + count)
        minimums = None if self.minimums is None else self.minimums[own]
        return replace(self, codes=self.codes[own], scales=self.scales[own], minimums=minimums)

    def values(self) -> NDArray[np.float32]:
        """The matrix in float32: the product rounded, then the sum rounded, as the formats define it."""
        spread = np.repeat(self.scales, self.block, axis=1)
        found = self.codes.astype(np.float32) * spread
        return found if self.minimums is None else found + np.repeat(self.minimums, self.block, axis=1)


Weight: TypeAlias = "NDArray[Any] | Blocked"
"""A float array (float32, float16, ml_dtypes.bfloat16), or integers in blocks."""

Weights: TypeAlias = Mapping[str, Callable[[], Weight]]
"""By name, what reads a weight from its file: nothing is held that is not used."""


def decoded(weights: Weights) -> Weights:
    """The same weights, integers in blocks as the numbers that they stand for."""
    return {name: partial(_decoded, read) for name, read in weights.items()}


def _decoded(read: Callable[[], Weight]) -> Weight:
    found = read()
    return found.values() if isinstance(found, Blocked) else found

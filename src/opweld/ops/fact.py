"""What is known of a graph value before anything runs: dtype, shape, and the elements of small integer tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from opweld.tensor.dim import Dim
from opweld.tensor.dtype import DType

Elements: TypeAlias = "np.ndarray[Any, Any]"
"""An object array of `Dim` (integers) or `bool` (BOOL), of the value's shape, which is fully known."""

ELEMENT_LIMIT = 4096
"""Integer tensors with more elements than this are data, not shapes: their elements are not tracked."""


@dataclass(frozen=True, eq=False)
class Fact:
    """dtype and shape of a value; `elements` when it is a small integer or bool tensor whose values are polynomials of
    the symbols; `constant` reads its data when it is known at compile time (a weight). None of the two: data."""

    dtype: DType
    shape: tuple[Dim, ...]
    elements: Elements | None = None
    constant: Callable[[], np.ndarray[Any, Any]] | None = None

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

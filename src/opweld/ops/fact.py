"""What is known about a graph value at compile time: dtype, shape, and the elements of small integer tensors."""

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
"""The most elements that are tracked: larger integer tensors are data, not shapes."""


@dataclass(frozen=True, eq=False)
class Fact:
    """dtype and shape of a value; `elements` if it is a small integer or bool tensor whose values are polynomials of
    the symbols; `constant` reads its data if that is known at compile time (a weight). Otherwise its values are
    run-time data."""

    dtype: DType
    shape: tuple[Dim, ...]
    elements: Elements | None = None
    constant: Callable[[], np.ndarray[Any, Any]] | None = None

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

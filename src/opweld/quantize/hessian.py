"""The second moments of what a layer multiplies by its weights, in memory that does not grow with the samples."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from opweld.quantize.graph import Graph, Layer

Array = NDArray[Any]

LIMIT = 1 << 30
"""Bytes of all second moments together; layers beyond it, those of most inputs first, have none."""


class SecondMoments:
    """The sum of x times its transpose, over all rows x of a value: half the Hessian of a layer's squared error."""

    def __init__(self, length: int) -> None:
        self.sums = np.zeros((length, length), np.float32)

    @property
    def nbytes(self) -> int:
        """Bytes that they take."""
        return int(self.sums.nbytes)

    def add(self, array: Array) -> None:
        """Adds the rows of a value, along its last axis."""
        rows = array.reshape(-1, len(self.sums)).astype(np.float32, copy=False)
        self.sums += rows.T @ rows


def second_moments(graph: Graph, layers: list[Layer], limit: int = LIMIT) -> dict[str, SecondMoments]:
    """Empty ones, by value, of what matrices multiply, within so many bytes."""
    lengths: dict[str, int] = {}
    for layer in layers:
        dims = graph.stored[layer.weights].dims
        if layer.data and layer.sums is not None and len(dims) == 2:
            lengths[layer.data] = dims[layer.sums]
    found: dict[str, SecondMoments] = {}
    for value, length in sorted(lengths.items(), key=lambda item: item[1]):
        limit -= 4 * length * length
        if limit >= 0:
            found[value] = SecondMoments(length)
    return found

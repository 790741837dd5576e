"""The second moments of what a layer multiplies by its weights, in memory that does not grow with the samples."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opweld.calibration.graph import Graph, Layer

Array = NDArray[Any]

LIMIT = 1 << 30
"""Bytes of all second moments together; layers beyond it, those of most inputs first, have none."""


class SecondMoments:
    """The sum of x times its transpose, over all rows x of a value: half the Hessian of a layer's squared error."""

    def __init__(self, length: int, axis: int = -1) -> None:
        self.axis = axis
        self.sums = np.zeros((length, length), np.float32)

    @property
    def nbytes(self) -> int:
        """Bytes that they take."""
        return int(self.sums.nbytes)

    def add(self, array: Array) -> None:
        """Adds the rows of a value, along the axis. Where squares are no float32, neither are the moments."""
        rows = np.moveaxis(array, self.axis, -1).reshape(-1, len(self.sums)).astype(np.float32, copy=False)
        with np.errstate(over="ignore", invalid="ignore"):
            self.sums += rows.T @ rows


def second_moments(graph: Graph, layers: Iterable[Layer], limit: int = LIMIT) -> dict[tuple[str, int], SecondMoments]:
    """Empty ones, within so many bytes, of what layers multiply by their weights, by value and axis: of matrices and of
    convolutions without groups."""
    lengths: dict[tuple[str, int], int] = {}
    for layer in layers:
        dims = graph.stored[layer.weights].dims
        lengths[layer.data, layer.channels] = dims[1 if layer.sums is None else layer.sums]
    found: dict[tuple[str, int], SecondMoments] = {}
    for (value, axis), length in sorted(lengths.items(), key=lambda item: item[1]):
        limit -= 4 * length * length
        if limit >= 0:
            found[value, axis] = SecondMoments(length, axis)
    return found

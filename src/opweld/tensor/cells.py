"""NumPy arrays with named axes, so that broadcasting is by axis, not by position."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from opweld.tensor.dim import Axis
from opweld.tensor.semantics import Array


@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Values over axes: dimension i of the array runs over `axes[i]`, ordered by `Axis.number`.

    `faults` is non-zero where an element is invalid: the index of the error message, counted from one."""

    array: Array
    axes: tuple[Axis, ...] = ()
    faults: Cells | None = None


def union(*cells: Cells) -> tuple[Axis, ...]:
    """The axes of all, in order."""
    return tuple(sorted({axis for one in cells for axis in one.axes}, key=lambda axis: axis.number))


def expand(cells: Cells, axes: tuple[Axis, ...]) -> Array:
    """The array with a dimension for each of the axes, of length one where it does not depend on it."""
    if cells.axes == axes:
        return cells.array
    return cells.array[tuple(slice(None) if axis in cells.axes else None for axis in axes)]


def combine(function: np.ufunc, x: Cells, y: Cells) -> Cells:
    """The function of each pair of elements, faulty where either is."""
    axes = union(x, y)
    return Cells(np.asarray(function(expand(x, axes), expand(y, axes))), axes, worst(x.faults, y.faults))


def where(condition: Cells, x: Cells, y: Cells) -> Cells:
    """x where the condition holds, else y; without their faults."""
    axes = union(condition, x, y)
    return Cells(np.where(expand(condition, axes), expand(x, axes), expand(y, axes)), axes)


def worst(*faults: Cells | None) -> Cells | None:
    """The combined faults, with the latest message where several apply."""
    result: Cells | None = None
    for one in faults:
        if one is not None:
            result = one if result is None else combine(np.maximum, result, one)
    return result

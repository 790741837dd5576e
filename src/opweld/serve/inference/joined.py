"""Calls put together to one run along the first dim of all tensors, and its outputs taken apart again."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from opweld.errors import RunError
from opweld.serve.inference.lengths import padded
from opweld.serve.inference.model import Array


@dataclass(frozen=True)
class Rows:
    """How calls of a model share a run.

    Attributes:
        most: rows of a run.
        padded: by input with the dim that is padded, its axis; empty where lengths are not padded.
        values: what is written behind what a call has, by input.
        cut: by position of an output with that dim, its axis.
    """

    most: int
    padded: Mapping[str, int] = field(default_factory=dict[str, int])
    values: Mapping[str, int | float] = field(default_factory=dict[str, "int | float"])
    cut: Mapping[int, int] = field(default_factory=dict[int, int])

    def kind(self, feeds: Mapping[str, Array]) -> tuple[Hashable, int, int]:
        """The kind of a call, as `Batcher` has it, its rows, and their length; None where inputs disagree on rows or
        length, or there are none."""
        shapes = [array.shape for array in feeds.values()]
        rows, length = shapes[0][0], 1
        if self.padded:
            lengths = {feeds[name].shape[axis] for name, axis in self.padded.items()}
            length = max(lengths)
            alike = len(lengths) == 1 and length > 0
            others = [_without(array.shape, self.padded.get(name)) for name, array in feeds.items()]
        else:
            alike, others = True, [shape[1:] for shape in shapes]
        if not alike or not rows or (len(shapes) > 1 and any(shape[0] != rows for shape in shapes)):
            return None, max(1, *(shape[0] for shape in shapes)), max(1, length)
        return (*feeds, *others), rows, length

    def join(self, calls: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
        """The inputs of a run of several calls of a kind, one below the other."""
        return {name: self._joined(name, [feeds[name] for feeds in calls]) for name in calls[0]}

    def split(self, outputs: Sequence[Array], calls: Sequence[tuple[int, int]]) -> list[list[Array]]:
        """The outputs of each call, from those of a run. `calls`: the rows and the length of each.

        Raises RunError where an output has not a row for each of theirs."""
        expected = sum([rows for rows, _ in calls])
        for position, array in enumerate(outputs):
            if array.shape[:1] != (expected,):
                raise RunError(f"output {position} of a run of {expected} rows has the shape {list(array.shape)}")
        found: list[list[Array]] = []
        begin = 0
        for rows, length in calls:
            parts = [array[begin : begin + rows] for array in outputs]
            for position, axis in self.cut.items():
                if parts[position].shape[axis] != length:
                    parts[position] = np.ascontiguousarray(_first(parts[position], axis, length))
            found.append(parts)
            begin += rows
        return found

    def _joined(self, name: str, arrays: Sequence[Array]) -> Array:
        axis = self.padded.get(name)
        if axis is None or len({array.shape[axis] for array in arrays}) == 1:
            return np.concatenate(arrays)
        first = arrays[0]
        shape = [sum(array.shape[0] for array in arrays), *first.shape[1:]]
        shape[axis] = padded(max(array.shape[axis] for array in arrays))
        joined = np.full(shape, self.values[name], first.dtype)
        begin = 0
        for array in arrays:
            rows, length = array.shape[0], array.shape[axis]
            _first(joined[begin : begin + rows], axis, length)[...] = array
            begin += rows
        return joined


def _without(shape: tuple[int, ...], axis: int | None) -> tuple[int, ...]:
    """The dims that calls of a kind have alike."""
    return shape[1:] if axis is None else (*shape[1:axis], *shape[axis + 1 :])


def _first(array: Array, axis: int, length: int) -> Array:
    """The first elements along an axis, as a view."""
    return array[(slice(None),) * axis + (slice(length),)]

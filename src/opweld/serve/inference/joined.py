"""Calls put together to one run along the first dim of all tensors, and its outputs taken apart again."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

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
        """The kind of a call, as `Batcher` has it, its rows, and their length; a kind of its own where inputs disagree
        on rows or length, or there are none."""
        rows = {array.shape[0] for array in feeds.values()}
        lengths = {feeds[name].shape[axis] for name, axis in self.padded.items()} or {1}
        if len(rows) > 1 or len(lengths) > 1 or 0 in rows or 0 in lengths:
            return object(), max(1, *rows), max(1, *lengths)
        kind = tuple(
            tuple(size for axis, size in enumerate(array.shape) if axis and axis != self.padded.get(name))
            for name, array in feeds.items()
        )
        return (*feeds, kind), rows.pop(), lengths.pop()

    def join(self, calls: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
        """The inputs of a run of several calls of a kind, one below the other."""
        return {name: self._joined(name, [feeds[name] for feeds in calls]) for name in calls[0]}

    def split(self, outputs: Sequence[Array], calls: Sequence[tuple[int, int]]) -> list[list[Array]]:
        """The outputs of each call, from those of a run. `calls`: the rows and the length of each."""
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
        shape[axis] = max(array.shape[axis] for array in arrays)
        joined = np.full(shape, self.values[name], first.dtype)
        begin = 0
        for array in arrays:
            rows, length = array.shape[0], array.shape[axis]
            _first(joined[begin : begin + rows], axis, length)[...] = array
            begin += rows
        return joined


def _first(array: Array, axis: int, length: int) -> Array:
    """The first elements along an axis, as a view."""
    return array[(slice(None),) * axis + (slice(length),)]

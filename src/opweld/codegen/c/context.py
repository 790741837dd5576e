"""Which indices of the enclosing tiles a statement is written for: one instance for each row and vector."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from opweld.codegen.c.values import ALL, Active
from opweld.tensor.dim import Atom, Axis, Dim


@dataclass(frozen=True)
class Row:
    """One index of a row tile: its number in the text, and the value of the tile's axis."""

    key: int
    value: Dim


@dataclass(frozen=True)
class Vector:
    """One vector of a lane tile: its number in the text, the axis' value in terms of the lane, the lanes that exist."""

    key: int
    value: Dim
    active: Active = ALL


@dataclass(frozen=True)
class Instance:
    """One row of every enclosing row tile, and one vector of the lane tile."""

    rows: Mapping[Axis, Row]
    lane: Axis | None
    vector: Vector | None

    @property
    def active(self) -> Active:
        """The lanes that exist."""
        return ALL if self.vector is None else self.vector.active

    @property
    def mapping(self) -> dict[Atom, Dim]:
        """What the tile axes stand for."""
        found: dict[Atom, Dim] = {axis: row.value for axis, row in self.rows.items()}
        if self.lane is not None and self.vector is not None:
            found[self.lane] = self.vector.value
        return found

    def key(self, axis: Axis) -> int | None:
        """The number of the tile's index in the text; None outside the tile."""
        if axis is self.lane and self.vector is not None:
            return self.vector.key
        row = self.rows.get(axis)
        return None if row is None else row.key


@dataclass(frozen=True)
class Context:
    """The enclosing tiles: the rows that are written out, and the vectors. `shifted`: pieces of a symbolic tail."""

    rows: tuple[tuple[Axis, tuple[Row, ...]], ...] = ()
    lane: Axis | None = None
    vectors: tuple[Vector, ...] = ()
    shifted: frozenset[Axis] = frozenset()

    @property
    def axes(self) -> frozenset[Axis]:
        """The axes of the enclosing tiles."""
        return frozenset((*(axis for axis, _ in self.rows), *(() if self.lane is None else (self.lane,))))

    def instances(self, axes: frozenset[Axis] | None = None) -> Iterator[Instance]:
        """Every combination, rows outside, vectors inside; only over `axes` where given."""
        kept = [(axis, rows) for axis, rows in self.rows if axes is None or axis in axes]
        with_lane = self.lane is not None and (axes is None or self.lane in axes)
        for combination in itertools.product(*(rows for _, rows in kept)):
            chosen = {axis: row for (axis, _), row in zip(kept, combination, strict=True)}
            for vector in self.vectors if with_lane else (None,):
                yield Instance(chosen, self.lane if with_lane else None, vector)

    def split(self, axes: frozenset[Axis]) -> Iterator[Context]:
        """One context for each combination of the rows of `axes`."""
        choices = [[(row,) for row in rows] if axis in axes else [rows] for axis, rows in self.rows]
        for combination in itertools.product(*choices):
            rows = tuple((axis, chosen) for (axis, _), chosen in zip(self.rows, combination, strict=True))
            yield Context(rows, self.lane, self.vectors, self.shifted)

"""The iterations of a contraction or window, by the operands that depend on them.

Lanes run along an axis of the vectorised, packed operand; the other one is broadcast. An axis of the result is one of
either or of both, and windows slide along some.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opweld.tensor.dim import ZERO, Axis, Dim, ceildiv, mod, nonnegative
from opweld.tensor.expr import Reduce, dims_of, loads
from opweld.tile.nest import Nest


@dataclass(frozen=True)
class Grid:
    """The iterations of a contraction or window, by operand.

    Attributes:
        shared: axes of both operands. lanes: of the packed one, tiles of lanes last.
        rows: of the other, row tiles last. of_rows: the same, before tiling.
    """

    shared: tuple[Axis, ...]
    lanes: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    of_rows: tuple[Axis, ...]

    @staticmethod
    def of(nest: Nest, node: Reduce, lane: Axis, row: Axis | None, height: int, width: int) -> Grid:
        """Tiles of `height` rows of `width` lanes."""
        others = [axis for axis in nest.axes if axis not in (lane, row)]
        beside = [axis for axis in others if with_lane(node, axis, lane)]
        shared = tuple(axis for axis in beside if without_lane(node, axis, lane))
        own = tuple(axis for axis in beside if axis not in shared)
        rows = tuple(axis for axis in others if axis not in beside)
        lane_tiles = Axis(lane.name + "t", ceildiv(lane.extent, width))
        row_tiles = () if row is None else (Axis(row.name + "t", ceildiv(row.extent, height)),)
        return Grid(shared, (*own, lane_tiles), (*rows, *row_tiles), rows if row is None else (*rows, row))

    def axes(self, order: str) -> list[Axis]:
        """All axes, in an order of `verify.ORDERS`."""
        return [*self.shared, *self.rows, *self.lanes] if order == "lanes" else [*self.shared, *self.lanes, *self.rows]


def with_lane(node: Reduce, axis: Axis, lane: Axis) -> bool:
    """Whether a vectorised operand also depends on the axis."""
    return any(
        any(d.depends_on(axis) for d in dims_of(site)) and any(d.depends_on(lane) for d in dims_of(site))
        for site in loads(node.body)
    )


def without_lane(node: Reduce, axis: Axis, lane: Axis) -> bool:
    """Whether a broadcast operand depends on the axis."""
    return any(
        any(d.depends_on(axis) for d in dims_of(site)) and not any(d.depends_on(lane) for d in dims_of(site))
        for site in loads(node.body)
    )


def overlap(node: Reduce, axis: Axis, over: Sequence[Axis]) -> bool:
    """Whether adjacent windows along the axis overlap: its stride is less than the span of a reduced axis."""
    for site in loads(node.body):
        address = site.indices[0]
        step = address.coefficient(axis)
        if step is None or not step.terms:
            continue
        for reduced in over:
            stride = address.coefficient(reduced)
            if stride is None or not stride.terms:
                continue
            step, stride = _magnitude(step), _magnitude(stride)
            if mod(step, stride) is ZERO and nonnegative(stride * reduced.extent - step - 1):
                return True
    return False


def _magnitude(stride: Dim) -> Dim:
    return stride if nonnegative(stride) else -stride

"""Loops over vector lanes and register rows: the two ways in which a tile covers an axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from opweld.schedule.schedule import WIDEST
from opweld.target import Target
from opweld.tensor.dim import ZERO, Axis, Dim, as_dim, ceildiv, minimum
from opweld.tile.tile import Loop, Statement, Tile

Body = Callable[[Dim, Axis], tuple[Statement, ...]]
"""Makes the statements of a tile, given the index that its axis stands for, and that axis."""


def tile_at(
    axis: Axis, role: Literal["row", "lane"], width: int, counter: Dim, body: Body, limit: Dim | None = None
) -> Tile:
    """The tile number `counter` of an axis; indices from `limit` on do not exist, by default from its extent on."""
    inner = Axis(axis.name + role[0], width)
    base = width * counter
    if limit is None:
        limit = None if ceildiv(axis.extent, width) * width is axis.extent else axis.extent
    return Tile(inner, role, base, body(base + inner.dim, inner), limit)


def tiles(axis: Axis, role: Literal["row", "lane"], width: int, body: Body) -> tuple[Statement, ...]:
    """A serial loop of tiles over a whole axis."""
    count = ceildiv(axis.extent, width)
    if count.constant == 1:
        return (tile_at(axis, role, width, ZERO, body),)
    counter = Axis(axis.name + "t", count)
    return (Loop(counter, (tile_at(axis, role, width, counter.dim, body),)),)


def chunked(axis: Axis, width: int, count: int, body: Body) -> tuple[Axis, tuple[Statement, ...]]:
    """Splits an axis into chunks of `count` lane tiles: the grid axis that counts chunks, and what one chunk does."""
    total = ceildiv(axis.extent, width)
    chunk = Axis(axis.name + "c", ceildiv(total, count))
    counter = Axis(axis.name + "t", as_dim(count))
    position = count * chunk.dim + counter.dim
    upper = total if chunk.extent.constant == 1 else minimum(count, total - count * chunk.dim)
    inner = Axis(axis.name + "l", width)
    limit = None if total * width is axis.extent else axis.extent
    tile = Tile(inner, "lane", width * position, body(width * position + inner.dim, inner), limit)
    return chunk, (Loop(counter, (tile,), upper=upper),)


def vectors_for(extent: int | None, target: Target) -> int:
    """Vectors that fill an axis, up to `WIDEST`."""
    return WIDEST if extent is None else max(1, min(WIDEST, -(-extent // target.vector_lanes_f32)))

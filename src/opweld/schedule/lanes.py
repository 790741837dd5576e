"""Loops over vector lanes and register rows: the two ways in which a tile covers an axis."""

from __future__ import annotations

from collections.abc import Callable

from opweld.schedule.tile import Loop, Statement, Tile
from opweld.tensor.dim import ZERO, Axis, Dim, as_dim, ceildiv, minimum

Body = Callable[[Dim], tuple[Statement, ...]]
"""Makes the statements of a tile, given the index that its axis stands for."""


def lane_tiles(axis: Axis, width: int, body: Body) -> tuple[Statement, ...]:
    """A serial loop of lane tiles over a whole axis."""
    return _tiles(axis, "lane", width, body)


def row_tiles(axis: Axis, height: int, body: Body) -> tuple[Statement, ...]:
    """A serial loop of row tiles over a whole axis."""
    return _tiles(axis, "row", height, body)


def _tiles(axis: Axis, role: str, width: int, body: Body) -> tuple[Statement, ...]:
    count = ceildiv(axis.extent, width)
    if count.constant == 1:
        return (tile_at(axis, role, width, ZERO, body),)
    counter = Axis(axis.name + "t", count)
    return (Loop(counter, (tile_at(axis, role, width, counter.dim, body),)),)


def tile_at(axis: Axis, role: str, width: int, counter: Dim, body: Body) -> Tile:
    """The tile number `counter` of an axis."""
    inner = Axis(axis.name + ("v" if role == "lane" else "r"), width)
    base = width * counter
    limit = None if ceildiv(axis.extent, width) * width is axis.extent else axis.extent
    assert role in ("lane", "row")
    return Tile(inner, "lane" if role == "lane" else "row", base, body(base + inner.dim), limit)


def chunked(axis: Axis, width: int, tiles: int, body: Body) -> tuple[Axis, tuple[Statement, ...]]:
    """Splits an axis into chunks of `tiles` lane tiles: the grid axis that counts chunks, and what one chunk does."""
    total = ceildiv(axis.extent, width)
    chunk = Axis(axis.name + "c", ceildiv(total, tiles))
    counter = Axis(axis.name + "t", as_dim(tiles))
    position = tiles * chunk.dim + counter.dim
    upper = minimum(tiles, total - tiles * chunk.dim)
    inner = Axis(axis.name + "v", width)
    limit = None if total * width is axis.extent else axis.extent
    tile = Tile(inner, "lane", width * position, body(width * position + inner.dim), limit)
    if chunk.extent.constant == 1:
        upper = total
    return chunk, (Loop(counter, (tile,), upper=upper),)

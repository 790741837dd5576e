"""For which rows and vectors a statement inside tiles is written out: all of a full tile, fewer at an edge."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from opweld.tensor.dim import Atom, Axis, Dim, Mod, as_dim, atoms_of, nonnegative
from opweld.tile.tile import Tile

_MOST_COMBINATIONS = 20_000
_MOST_SIZES = 3


def instances(tiles: Sequence[Tile], lanes: int) -> Iterator[dict[Atom, Dim]]:
    """What the tiles' axes stand for in each row and vector of the largest piece of the enclosing tiles.

    A lane tile's axis becomes `lanes` times the number of the vector, plus itself."""
    choices: list[list[Dim]] = []
    for tile in tiles:
        count = copies(tile, lanes)
        if tile.role == "row":
            choices.append([as_dim(row) for row in range(count)])
        else:
            choices.append([vector * lanes + tile.axis.dim for vector in range(count)])
    for values in itertools.product(*choices):
        yield dict(zip((tile.axis for tile in tiles), values, strict=True))


def copies(tile: Tile, lanes: int) -> int:
    """The rows, or vectors, of the largest piece of a tile."""
    count = _largest(tile)
    return count if tile.role == "row" else -(-count // lanes)


def _largest(tile: Tile) -> int:
    """How many indices of a tile exist at most."""
    if tile.limit is None:
        return tile.width
    counts = possible_counts(tile.limit - tile.base, tile.width)
    return tile.width if counts is None else counts[0]


def possible_counts(remaining: Dim, width: int) -> tuple[int, ...] | None:
    """The numbers of indices that a tile may have, the largest first; 0 among them where some tiles are empty.

    `remaining` is limit - base. None when there are too many, or when it depends on a symbolic size."""
    if nonnegative(remaining - width):
        return (width,)
    constant = remaining.constant
    if constant is not None:
        return (max(0, min(width, constant)),)
    # What a remainder is of need not be known: it is one of a few numbers.
    remainders = [atom for atom in atoms_of(remaining) if isinstance(atom, Mod) and atom.right.constant is not None]
    for atoms in ([], sorted(remainders, key=lambda atom: atom.key)):
        free = remaining.substitute({atom: Axis(f"m{n}", atom.right).dim for n, atom in enumerate(atoms)})
        axes = [atom for atom in atoms_of(free) if atom.rank not in (2, 3, 4, 5)]
        if all(isinstance(atom, Axis) and atom.extent.constant is not None for atom in axes):
            counts = _counts_of(free, [atom for atom in axes if isinstance(atom, Axis)], width)
            if counts is not None:
                return counts
    return None


def _counts_of(remaining: Dim, axes: Sequence[Axis], width: int) -> tuple[int, ...] | None:
    extents = [int(axis.extent) for axis in axes]
    if math.prod(extents) > _MOST_COMBINATIONS:
        return None
    found: set[int] = set()
    for values in itertools.product(*map(range, extents)):
        found.add(max(0, min(width, remaining.evaluate(dict(zip(axes, values, strict=True))))))
        if len(found - {0}) > _MOST_SIZES:
            return None
    return tuple(sorted(found, reverse=True))

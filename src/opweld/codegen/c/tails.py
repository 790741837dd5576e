"""How many indices of a tile exist: always all, one of a few numbers, or anything up to its width."""

from __future__ import annotations

import itertools
import math

from opweld.tensor.dim import Axis, Dim, atoms_of, nonnegative

_MOST_COMBINATIONS = 20_000
_MOST_SIZES = 3


def possible_counts(remaining: Dim, width: int) -> tuple[int, ...] | None:
    """The numbers of indices that a tile may have, the largest first, empty tiles left out.

    `remaining` is limit - base. None when there are too many, or when it depends on a symbolic size."""
    if nonnegative(remaining - width):
        return (width,)
    constant = remaining.constant
    if constant is not None:
        return (min(width, constant),) if constant > 0 else ()
    axes = sorted((atom for atom in atoms_of(remaining)), key=lambda atom: atom.key)
    axes = [atom for atom in axes if atom.rank not in (2, 3, 4, 5)]
    extents: list[int] = []
    for atom in axes:
        if not isinstance(atom, Axis) or atom.extent.constant is None:
            return None
        extents.append(int(atom.extent))
    if math.prod(extents) > _MOST_COMBINATIONS:
        return None
    found: set[int] = set()
    for values in itertools.product(*map(range, extents)):
        count = min(width, remaining.evaluate(dict(zip(axes, values, strict=True))))
        if count > 0:
            found.add(count)
            if len(found) > _MOST_SIZES:
                return None
    return tuple(sorted(found, reverse=True))

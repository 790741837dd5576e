"""In which order the guards of a load or a store are to be tested."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from opweld.tensor.dim import Dim, Value, atoms_of
from opweld.tensor.expr import dims_of, walk

Groups: TypeAlias = tuple[tuple[Dim, ...], ...]
"""Guards, each to be tested where those of earlier groups hold."""


def in_turn(guards: Iterable[Dim]) -> Groups:
    """The guards in groups.

    A guard may depend on indices that are read at run time, from where only the others may say that there is
    something: of `x[v[i - 2]] if i - 2 >= 0, 4 - v[i - 2] >= 0` the second one is no question where the first fails."""
    found: dict[int, list[Dim]] = {}
    for guard in guards:
        found.setdefault(_reads(guard), []).append(guard)
    return tuple(tuple(found[reads]) for reads in sorted(found))


def _reads(dim: Dim) -> int:
    """How many reads follow one another until a polynomial is known."""
    values = [atom for atom in atoms_of(dim) if isinstance(atom, Value)]
    return max((1 + max(map(_reads, _dims(value)), default=0) for value in values), default=0)


def _dims(value: Value) -> Iterable[Dim]:
    """The polynomials that a run-time index is read at."""
    return (dim for node in walk(value.expr) for dim in dims_of(node))

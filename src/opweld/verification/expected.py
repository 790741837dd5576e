"""What a compiled model expects to be fed: the sizes and numbers of the likeliest variant. Imports NumPy only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from opweld.build.artifact import GRAPH
from opweld.errors import ArtifactError
from opweld.record import Record

Place = tuple[str, int]
"""A dim by its input and its position there."""


@dataclass(frozen=True)
class Expectation:
    """What the likeliest variant expects.

    Attributes:
        sizes: of dims that are free, each of which may have any size that the guards allow. A dim that is none of them
            follows from others.
        numbers: by input and flat position, of the elements that decide shapes or what runs, such as a sampling rate.
        indexed: by input, the sizes of the axes that its elements choose along: numbers, or dims of inputs and what
            these are divided by.
    """

    sizes: Mapping[Place, int] = field(default_factory=dict[Place, int])
    numbers: Mapping[Place, int] = field(default_factory=dict[Place, int])
    indexed: Mapping[str, tuple[int | tuple[Place, int], ...]] = field(
        default_factory=dict[str, "tuple[int | tuple[Place, int], ...]"]
    )


def expectation_of(folder: Path) -> Expectation:
    """What the model of an artifact expects; nothing where its record cannot be read."""
    try:
        record = Record.loads((folder / GRAPH).read_text(encoding="utf-8"))
    except (OSError, ValueError, ArtifactError):
        return Expectation()
    first = record.usual[0]
    sizes: dict[Place, int] = {}
    numbers: dict[Place, int] = {}
    for name, symbol in first.symbols.items():
        found = numbers if symbol.by_value else sizes
        found[symbol.input, symbol.position] = first.sizes[name] * symbol.divisor
    known = {name: ((s.input, s.position), s.divisor) for name, s in first.symbols.items() if not s.by_value}
    indexed: dict[str, tuple[int | tuple[Place, int], ...]] = {}
    for name, extents in first.indexed.items():
        dims = [known[extent] for extent in extents if isinstance(extent, str) and extent in known]
        indexed[name] = (*(extent for extent in extents if isinstance(extent, int)), *dims)
    return Expectation(sizes, numbers, indexed)

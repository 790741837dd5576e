"""Which sizes a model takes, for somebody whose own it refused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from opweld.interface import ANONYMOUS, TensorInfo

Shapes = Sequence[tuple[int, ...]]

LARGEST: Final = 1024
"""Sizes up to this are tried; larger ones than were fed only as its next multiples."""

_SHOWN: Final = 8
"""Sizes, or runs of sizes, that are told of one dim."""


def advice(inputs: Sequence[TensorInfo], shapes: Shapes, fits: Callable[[Shapes], bool]) -> str:
    """Which sizes fit, of one open dim at a time, in the model's words; empty where none does alone.

    `shapes` are those that were refused, in the order of the inputs."""
    found: list[str] = []
    for title, places in _open_dims(inputs).items():
        first, axis = places[0]
        fed = shapes[first][axis]
        sizes = [size for size in range(1, LARGEST + 1) if fits(_with(shapes, places, size))]
        if sizes:
            found.append(f"{title} {_ranges(sizes)} (not {fed})")
    return "; or ".join(found) and f"sizes that would fit: {'; or '.join(found)}"


def _open_dims(inputs: Sequence[TensorInfo]) -> dict[str, list[tuple[int, int]]]:
    """The dims that a model leaves open as it calls them, and where each stands: input and axis."""
    found: dict[str, list[tuple[int, int]]] = {}
    for number, info in enumerate(inputs):
        for axis, dim in enumerate(info.shape or ()):
            if isinstance(dim, int) and dim >= 0:
                continue
            label = "" if isinstance(dim, int) else dim.strip()
            title = f"dim {axis} of {info.name!r}" if label in ANONYMOUS else repr(label)
            found.setdefault(title, []).append((number, axis))
    return found


def _with(shapes: Shapes, places: Sequence[tuple[int, int]], size: int) -> Shapes:
    changed = [list(shape) for shape in shapes]
    for number, axis in places:
        changed[number][axis] = size
    return [tuple(shape) for shape in changed]


def _ranges(sizes: Sequence[int]) -> str:
    """Rising numbers in a few words: `33 to 80`, `32, 64, 96, ...`."""
    runs: list[list[int]] = []
    for size in sizes:
        if runs and size == runs[-1][1] + 1:
            runs[-1][1] = size
        else:
            runs.append([size, size])
    texts = [str(a) if a == b else f"{a} or more" if b == LARGEST else f"{a} to {b}" for a, b in runs[:_SHOWN]]
    return ", ".join(texts) + (", ..." if len(runs) > _SHOWN else "")

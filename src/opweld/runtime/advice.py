"""Suggests sizes that a model accepts, after it rejected others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from opweld.interface import ANONYMOUS, TensorInfo

Shapes = Sequence[tuple[int, ...]]

LARGEST: Final = 1024
"""The largest size that is tried; larger ones only as the next multiples of the fed size."""

_SHOWN: Final = 8
"""The most sizes, or ranges of sizes, listed for one dim."""


def advice(inputs: Sequence[TensorInfo], shapes: Shapes, fits: Callable[[Shapes], bool]) -> str:
    """The sizes that fit, of one dynamic dim at a time, by the model's names; empty if none fits alone.

    `shapes` are the rejected ones, in the order of the inputs."""
    found: list[str] = []
    for title, places in _open_dims(inputs).items():
        first, axis = places[0]
        fed = shapes[first][axis]
        sizes = [size for size in range(1, LARGEST + 1) if fits(_with(shapes, places, size))]
        if sizes:
            found.append(f"{title} {_ranges(sizes)} (not {fed})")
    return "; or ".join(found) and f"sizes that would fit: {'; or '.join(found)}"


def _open_dims(inputs: Sequence[TensorInfo]) -> dict[str, list[tuple[int, int]]]:
    """The dynamic dims of a model by name, with their positions: input and axis."""
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
    """Ascending numbers as text: `33 to 80`, `32, 64, 96, ...`."""
    runs: list[list[int]] = []
    for size in sizes:
        if runs and size == runs[-1][1] + 1:
            runs[-1][1] = size
        else:
            runs.append([size, size])
    texts = [str(a) if a == b else f"{a} or more" if b == LARGEST else f"{a} to {b}" for a, b in runs[:_SHOWN]]
    return ", ".join(texts) + (", ..." if len(runs) > _SHOWN else "")

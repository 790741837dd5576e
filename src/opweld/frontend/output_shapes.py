"""The shapes of outputs that callers see: those that the file declares, merged with ONNX's own inference.

opweld's inference often differs from the file: it finds 128 where a dim has a name, or three dims where two are
declared. Callers compare with the declaration, which other runtimes return too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from opweld.frontend.program import Shape

Library: TypeAlias = Callable[[], Mapping[str, Shape | None]]
"""ONNX's own inference of the shapes of a model's outputs, merged with the declared ones."""


def declared_shapes(
    names: Sequence[str], declared: Sequence[Shape | None], found: Sequence[Shape | None], library: Library
) -> tuple[Shape | None, ...]:
    """The shape of each output for callers.

    `found`: the inferred shapes, with declared names of dims. Where one is more specific than the file, or of another
    rank, ONNX's inference (called only then) decides whether other runtimes would infer that too."""
    if not any(_disagree(own, shape) for own, shape in zip(declared, found, strict=True)):
        return tuple(found)
    known = library()
    return tuple(
        _merged(own, shape, known.get(name)) if _disagree(own, shape) else shape
        for name, own, shape in zip(names, declared, found, strict=True)
    )


def _disagree(declared: Shape | None, found: Shape | None) -> bool:
    if declared is None or found is None:
        return False
    if len(declared) != len(found):
        return True
    return any(_open(own) and own != dim for own, dim in zip(declared, found, strict=True))


def _merged(declared: Shape | None, found: Shape | None, known: Shape | None) -> Shape | None:
    if declared is None or found is None or len(declared) != len(found):
        return declared
    if known is None or len(known) != len(found):
        known = declared
    return tuple(other if _open(own) else dim for own, dim, other in zip(declared, found, known, strict=True))


def _open(dim: int | str) -> bool:
    """Whether a dim is dynamic; exporters write negative sizes for unknown dims too."""
    return isinstance(dim, str) or dim < 0

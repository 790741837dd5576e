"""The shapes of outputs as programs are told them: what the file declares, as far as ONNX's own inference leaves it.

What is inferred here is often more than the file says, or another thing: a name for a dim that is always 128, two dims
where there are three. Programs compare with what the file says, and other runtimes tell them that."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from opweld.frontend.program import Shape

Library: TypeAlias = Callable[[], Mapping[str, Shape | None]]
"""Asks ONNX's own inference for the shapes of a model's outputs, merged with those that are declared."""


def declared_shapes(
    names: Sequence[str], declared: Sequence[Shape | None], found: Sequence[Shape | None], library: Library
) -> tuple[Shape | None, ...]:
    """What programs are told of each output.

    `found`: what the compiler found, with names as declared. Where it found more than the file says, or another rank,
    ONNX's inference says whether other runtimes find that too; it is asked only then."""
    if not any(_disagree(own, shape) for own, shape in zip(declared, found, strict=True)):
        return tuple(found)
    known = library()
    return tuple(
        _told(own, shape, known.get(name)) if _disagree(own, shape) else shape
        for name, own, shape in zip(names, declared, found, strict=True)
    )


def _disagree(declared: Shape | None, found: Shape | None) -> bool:
    if declared is None or found is None:
        return False
    if len(declared) != len(found):
        return True
    return any(_open(own) and own != dim for own, dim in zip(declared, found, strict=True))


def _told(declared: Shape | None, found: Shape | None, known: Shape | None) -> Shape | None:
    if declared is None or found is None or len(declared) != len(found):
        return declared
    if known is None or len(known) != len(found):
        known = declared
    return tuple(other if _open(own) else dim for own, dim, other in zip(declared, found, known, strict=True))


def _open(dim: int | str) -> bool:
    """Whether a dim is no size: exporters write negative ones, too, for what they do not know."""
    return isinstance(dim, str) or dim < 0

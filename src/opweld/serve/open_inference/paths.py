"""What is at a path, by templates of paths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

T = TypeVar("T")

_MOST: Final = 256
"""Paths whose place is kept: most requests come for a few. _LONGEST: characters of one of them."""

_LONGEST: Final = 256


@dataclass(slots=True)
class _Node(Generic[T]):
    """What begins with the same segments.

    Attributes:
        words: by the next segment. name: where it may be any.
        here: the template that ends here, with what is there.
    """

    words: dict[str, _Node[T]] = field(default_factory=dict[str, "_Node[T]"])
    name: _Node[T] | None = None
    here: tuple[str, T] | None = None


class Paths(Generic[T]):
    """Things by templates of paths as /v2/models/{model}, where a name in braces is any segment that is not empty.
    Words come before names: /v2/models/stats is found before it."""

    def __init__(self, templates: Mapping[str, T]) -> None:
        self._root = _Node[T]()
        for template, thing in templates.items():
            node = self._root
            for segment in template.split("/"):
                if _is_name(segment):
                    node.name = node.name or _Node[T]()
                    node = node.name
                else:
                    node = node.words.setdefault(segment, _Node[T]())
            node.here = template, thing
        self._kept: dict[str, tuple[str, T, Mapping[str, str]]] = {}
        self._names = {one: [segment[1:-1] for segment in one.split("/") if _is_name(segment)] for one in templates}

    def find(self, path: str) -> tuple[str, T, Mapping[str, str]] | None:
        """The template that fits a path, what is there, and the path's segments by the names of the template."""
        if (kept := self._kept.get(path)) is not None:
            return kept
        values: list[str] = []
        found = _find(self._root, path.split("/"), 0, values)
        if found is None:
            return None
        template, thing = found
        told = template, thing, dict(zip(self._names[template], values, strict=True))
        if len(path) <= _LONGEST:
            if len(self._kept) == _MOST:
                del self._kept[next(iter(self._kept))]
            self._kept[path] = told
        return told


def _is_name(segment: str) -> bool:
    return segment.startswith("{")


def _find(node: _Node[T], segments: Sequence[str], place: int, values: list[str]) -> tuple[str, T] | None:
    if place == len(segments):
        return node.here
    segment = segments[place]
    word = node.words.get(segment)
    if word is not None and (found := _find(word, segments, place + 1, values)) is not None:
        return found
    if node.name is None or not segment:
        return None
    values.append(segment)
    found = _find(node.name, segments, place + 1, values)
    if found is None:
        values.pop()
    return found

"""Dims that are 0. Compiled code takes sizes to be 1 or more; an empty batch has its own, made when it comes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from opweld.errors import AssumptionError
from opweld.interface import TensorInfo
from opweld.runtime.session import Session

Compile = Callable[[Mapping[str, int]], Path]
"""Makes the artifact of a model with these sizes of some of its dims."""


class EmptySessions:
    """The sessions of one model for feeds of size 0, one for each set of dims that are."""

    def __init__(self, session: Session, compile: Compile | None) -> None:
        """`session` has refused the feeds; `compile` is None where an artifact is all there is of the model."""
        self._session, self._compile = session, compile
        self._made: dict[tuple[str, ...], Session] = {}

    def session_for(self, feeds: Mapping[str, Any], error: AssumptionError) -> Session:
        """The session for these feeds, compiled at their first time. Raises `error` where none can be."""
        dims = empty_dims(self._session.manifest.inputs, feeds)
        if not dims or self._compile is None:
            raise error
        key = tuple(sorted(dims))
        if key not in self._made:
            self._made[key] = Session(self._compile(dims), threads=self._session.threads)
        return self._made[key]


def empty_dims(inputs: Sequence[TensorInfo], feeds: Mapping[str, Any]) -> dict[str, int]:
    """The named dims of a model that are 0 in these feeds, each with its size: 0."""
    found: dict[str, int] = {}
    for info in inputs:
        for dim, size in zip(info.shape or (), getattr(feeds.get(info.name), "shape", ()), strict=False):
            if size == 0 and isinstance(dim, str) and dim:
                found[dim] = 0
    return found

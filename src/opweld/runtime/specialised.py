"""Models that can only be compiled for the form of their inputs: compiled when they are fed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

from opweld.errors import InputError, UnspecifiedError
from opweld.interface import ModelMetadata, Specialisation, Structure
from opweld.runtime.fitted import symbolic_sizes
from opweld.runtime.kept import Kept
from opweld.runtime.session import Session

MAX_SESSIONS: Final = 8
"""The capacity of the cache of sessions (least recently used)."""

Compile = Callable[[Mapping[str, int], Specialisation], Path]
"""Compiles a model for these sizes of some of its dims, and this form of inputs; raises UnspecifiedError if more must
be known."""

Facts = tuple[tuple[str, str, str], ...]
"""(option, input, value as text) for everything that must be known."""


class SpecialisedSessions:
    """The sessions of one model, one for each form of the inputs. Thread-safe.

    Attributes:
        structure, metadata: as the model declares them.
    """

    def __init__(
        self, structure: Structure, metadata: ModelMetadata, compile: Compile, threads: int | None = None
    ) -> None:
        self.structure, self.metadata = structure, metadata
        self._compile, self._threads = compile, threads
        self._needed: list[tuple[str, str]] = []
        self._sessions: Kept[Facts, Session] = Kept(MAX_SESSIONS)
        self._lock = threading.Lock()  # of `_needed`

    def session_for(self, feeds: Mapping[str, Any]) -> Session:
        """The session for these feeds, compiled on first use.

        Raises InputError if a required feed is missing, OpweldError if the model does not compile for these.
        """
        for argument in self.structure.inputs:
            if argument.name not in feeds and not argument.type.startswith("optional("):
                raise InputError(f"input {argument.name!r} is missing: {argument.type}")
        while True:
            with self._lock:
                needed = tuple(self._needed)
            known = _known(needed, feeds)
            dims = symbolic_sizes(self.structure.inputs, feeds) if ("dims", "") in needed else {}
            key = (*((o, name, repr(value)) for o, name, value in known), ("dims", "", repr(sorted(dims.items()))))
            try:
                return self._sessions.get(key, partial(self._made, dims, known))
            except UnspecifiedError as error:
                if (error.option, error.name) in needed:
                    raise  # the feeds do not determine it
                with self._lock:
                    if (error.option, error.name) not in self._needed:
                        self._needed.append((error.option, error.name))

    def _made(self, dims: Mapping[str, int], known: Sequence[tuple[str, str, Any]]) -> Session:
        given: dict[str, dict[str, Any]] = {"lengths": {}, "ranks": {}, "constants": {}}
        for option, name, value in known:
            given[option][name] = value
        return Session(self._compile(dims, Specialisation(**given)), threads=self._threads)


def _known(needed: Sequence[tuple[str, str]], feeds: Mapping[str, Any]) -> list[tuple[str, str, Any]]:
    """The required values that these feeds determine."""
    tensors: dict[str, Any] = {}
    for name, value in feeds.items():
        if isinstance(value, list | tuple):
            tensors |= {f"{name}[{i}]": element for i, element in enumerate(cast("Sequence[Any]", value))}
        if value is not None:
            tensors[name] = value
    known: list[tuple[str, str, Any]] = []
    for option, name in needed:
        if option == "dims":
            continue
        if option == "lengths":
            known.append((option, name, _length(feeds.get(name))))
        elif name in tensors:
            array = np.asarray(tensors[name])
            known.append((option, name, array.ndim if option == "ranks" else array.tolist()))
    return known


def _length(value: Any) -> int | None:
    return None if value is None else len(cast("Sequence[Any]", value)) if isinstance(value, list | tuple) else 1

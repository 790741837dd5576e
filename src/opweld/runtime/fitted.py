"""Sizes that no variant accepts: an empty batch, an axis of one element that is broadcast, an axis shorter than a
window.

Each set of them has a session of its own, compiled on first use, with these sizes as constants."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from opweld.errors import AssumptionError, OpweldError
from opweld.interface import symbol_name
from opweld.runtime.kept import Kept
from opweld.runtime.session import Session

MAX_SESSIONS: Final = 8
"""The capacity of the cache of sessions (least recently used)."""

Compile = Callable[[Mapping[str, int]], Path]
"""Compiles a model for these sizes of some of its dims, with options as `Options.fitted`, while a run waits."""

Answer = TypeVar("Answer")

_log = logging.getLogger("opweld")


class Declared(Protocol):
    """What a model declares of an input: a `TensorInfo` or an `Argument`."""

    @property
    def name(self) -> str:
        """The input's name."""
        ...

    @property
    def shape(self) -> Sequence[int | str] | None:
        """Sizes and names of dims; None for any rank."""
        ...


class FittedSessions:
    """The sessions of one model for feeds that its main session rejected. Thread-safe."""

    def __init__(self, session: Session, compile: Compile | None) -> None:
        """`session` rejected the feeds; `compile` is None if only an artifact of the model is available."""
        self._session, self._compile = session, compile
        self._made: Kept[tuple[tuple[str, int], ...], Session | OpweldError] = Kept(MAX_SESSIONS)

    def answer(self, feeds: Mapping[str, Any], error: AssumptionError, run: Callable[[Session], Answer]) -> Answer:
        """The result of `run` on a session that accepts these feeds; only dims of 0 and 1 are fixed if that suffices.

        Raises an AssumptionError with the text of `error` if none can be made, with the error of compiling for these
        sizes, and with sizes that would fit."""
        sizes = symbolic_sizes(self._session.manifest.inputs, feeds)
        if not sizes or self._compile is None:
            raise self._advised(feeds, f"{error}{_remedy(sizes)}") from error
        few = {dim: size for dim, size in sizes.items() if size <= 1}
        reason: OpweldError = error
        for dims in (few, sizes) if few and few != sizes else (sizes,):
            made = self._session_of(dims, self._compile)
            if isinstance(made, Session):
                try:
                    return run(made)
                except AssumptionError as refusal:
                    reason = refusal
            else:
                reason = made
        raise self._advised(feeds, f"{error}; for these sizes alone: {reason}") from reason

    def _advised(self, feeds: Mapping[str, Any], text: str) -> AssumptionError:
        words = self._session.advice(feeds)
        return AssumptionError(f"{words}; {text}" if words else text)

    def _session_of(self, dims: Mapping[str, int], compile: Compile) -> Session | OpweldError:
        key = tuple(sorted(dims.items()))

        def make() -> Session | OpweldError:
            _log.info("compiling for %s alone", ", ".join(f"{dim} = {size}" for dim, size in key))
            try:
                return Session(compile(dims), threads=self._session.threads)
            except OpweldError as error:
                return error

        return self._made.get(key, make)


def _remedy(sizes: Mapping[str, int]) -> str:
    """The remedy for an artifact that is fed empty arrays."""
    empty = {dim: 0 for dim, size in sizes.items() if size == 0}
    if not empty:
        return ""
    return (
        ". An artifact has no code for sizes of 0: run the ONNX model itself, which compiles it when it is fed, or what"
        f" was compiled with dims={empty}"
    )


def symbolic_sizes(inputs: Sequence[Declared], feeds: Mapping[str, Any]) -> dict[str, int]:
    """The sizes of dynamic dims in these feeds, by their names in the option `dims`; without names that are fed two
    different sizes."""
    found: dict[str, int] = {}
    twice: set[str] = set()
    for info in inputs:
        fed = getattr(feeds.get(info.name), "shape", ())
        # Undeclared dims are named as unnamed ones.
        declared = ("",) * len(fed) if info.shape is None else info.shape
        for position, (dim, size) in enumerate(zip(declared, fed, strict=False)):
            if isinstance(dim, int) and dim >= 0:
                continue
            name = symbol_name(info.name, position, dim)
            if found.setdefault(name, size) != size:
                twice.add(name)
    return {name: size for name, size in found.items() if name not in twice}

"""Sizes that no variant takes: an empty batch, an axis of one element that is broadcast, an axis shorter than a window.

Each set of them has a session of its own, compiled when it comes, with these sizes as constants."""

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
"""Sessions that are kept; the one that was not used for the longest time goes first."""

Compile = Callable[[Mapping[str, int]], Path]
"""Makes the artifact of a model with these sizes of some of its dims, with options as `Options.fitted`: a run waits."""

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
    """The sessions of one model for feeds that its own session refused. Any number of threads may ask for them."""

    def __init__(self, session: Session, compile: Compile | None) -> None:
        """`session` has refused the feeds; `compile` is None where an artifact is all there is of the model."""
        self._session, self._compile = session, compile
        self._made: Kept[tuple[tuple[str, int], ...], Session | OpweldError] = Kept(MAX_SESSIONS)

    def answer(self, feeds: Mapping[str, Any], error: AssumptionError, run: Callable[[Session], Answer]) -> Answer:
        """What `run` gives for a session that takes these feeds; dims of 0 and 1 alone are fixed where that does.

        Raises an AssumptionError with the words of `error` where none can be, with what went wrong when these sizes
        were compiled, and which would fit."""
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
    """What somebody can do who has an artifact and feeds it nothing."""
    empty = {dim: 0 for dim, size in sizes.items() if size == 0}
    if not empty:
        return ""
    return (
        ". An artifact has no code for sizes of 0: run the ONNX model itself, which compiles it when it is fed, or what"
        f" was compiled with dims={empty}"
    )


def symbolic_sizes(inputs: Sequence[Declared], feeds: Mapping[str, Any]) -> dict[str, int]:
    """The sizes in these feeds of the dims that a model leaves open, by the names that the option `dims` has for them;
    of a name that is fed two sizes, none."""
    found: dict[str, int] = {}
    twice: set[str] = set()
    for info in inputs:
        fed = getattr(feeds.get(info.name), "shape", ())
        # Dims that a model does not even declare are called as those that it leaves without a name.
        declared = ("",) * len(fed) if info.shape is None else info.shape
        for position, (dim, size) in enumerate(zip(declared, fed, strict=False)):
            if isinstance(dim, int) and dim >= 0:
                continue
            name = symbol_name(info.name, position, dim)
            if found.setdefault(name, size) != size:
                twice.add(name)
    return {name: size for name, size in found.items() if name not in twice}

"""A model that is run to learn something of it: an ONNX file, compiled on the way, or an artifact, opened as it is."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from numpy.typing import NDArray

from opweld.errors import AssumptionError, UnsupportedError
from opweld.interface import TensorInfo
from opweld.ledger import printable
from opweld.options import Options
from opweld.runtime.fitted import FittedSessions
from opweld.runtime.session import Session
from opweld.verification.inputs import Given

if TYPE_CHECKING:
    from opweld.compile import Progress
    from opweld.stages import Stage

Array = NDArray[Any]
T = TypeVar("T")

_fed = logging.getLogger("opweld.fed")
"""Tells what was made up, at level INFO."""


MADE_UP: ContextVar[tuple[str, ...]] = ContextVar("opweld_made_up", default=())
"""The inputs of the last feeds that nobody gave, for who says why a run failed."""


@dataclass
class Opened:
    """A session, and what the commands ask of it; `fitted` are those of sizes that it refuses, `hints`
    the sizes that dims are expected to have."""

    session: Session
    fitted: FittedSessions
    hints: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """The inputs as the model declares them; the tensors of a sequence are inputs of their own."""
        return self.session.manifest.inputs

    def feeds(self, given: Mapping[str, Given], dims: Mapping[str, int], seed: int) -> dict[str, Array]:
        """Inputs that the model takes, as far as they are not given, of the sizes of `hints` where it takes those; the
        logger `opweld.fed` tells what was made up. Where no variant takes what is given, the session becomes one that
        does."""
        from opweld.verification.expected import expectation_of
        from opweld.verification.inputs import described, fitting_inputs, make_inputs

        expected = expectation_of(self.session.folder)
        feeds: dict[str, Array] | None = None
        refusal: AssumptionError | None = None
        for sizes in ({**self._hinted(), **dims}, dims) if self.hints else (dims,):
            try:
                check = self.session.check
                feeds, _ = fitting_inputs(self.inputs, check, given=given, dims=sizes, seed=seed, expected=expected)
                break
            except AssumptionError as error:
                refusal = error
        if feeds is None:
            assert refusal is not None
            feeds = make_inputs(self.inputs, given=given, dims=dims, seed=seed)
            self.session = self.fitted.answer(feeds, refusal, partial(_checked, feeds))
        MADE_UP.set(tuple(name for name in feeds if name not in given))
        if feeds.keys() - given.keys():
            _fed.info("fed: %s", printable(described(feeds, given), 400))
        return feeds

    def _hinted(self) -> dict[str, int]:
        """The sizes that are expected of dims which the inputs have by name."""
        named = {dim for info in self.inputs for dim in info.shape or () if isinstance(dim, str)}
        return {dim: size for dim, size in self.hints.items() if dim in named}

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """All outputs by name, in the model's order; the tensors of a sequence are outputs of their own."""
        names = (info.name for info in self.session.manifest.outputs)
        return dict(zip(names, self.session.run_tensors(feeds), strict=True))


def open_model(
    model: Path,
    options: Options,
    dims: Mapping[str, int] | None = None,
    *,
    verify: bool = False,
    progress: Progress | None = None,
) -> Opened:
    """Opens an artifact, its files compared with their digests where `verify`, or compiles an ONNX file and opens the
    result; `dims` as for `artifact_of`."""
    session = Session(
        artifact_of(model, options, dims, progress=progress), threads=options.threads or None, verify=verify
    )

    def compile(dims: Mapping[str, int]) -> Path:
        return artifact_of(model, options.fitted(dims), progress=progress)

    return Opened(session, FittedSessions(session, None if model.is_dir() else compile), options.dim_hints)


def _checked(feeds: Mapping[str, Array], session: Session) -> Session:
    session.check(feeds)
    return session


def artifact_of(
    model: Path,
    options: Options,
    dims: Mapping[str, int] | None = None,
    watched: Stage | None = None,
    progress: Progress | None = None,
) -> Path:
    """The folder of an artifact, which is the model itself or what an ONNX file becomes.

    `dims` are sizes of symbolic dims that it is to be run at: where the model compiles for no others, for these.
    `watched`: runs the stages, see `compile_model`."""
    if model.is_dir():
        return model
    # Compiling brings in onnx and the whole compiler; opening an artifact must not.
    from opweld.cached import compile_model

    return at_sizes(lambda options: compile_model(model, options, progress, watched), options, dims)


def at_sizes(make: Callable[[Options], T], options: Options, dims: Mapping[str, int] | None) -> T:
    """What is made of a model for all sizes, or, where that cannot be, for these."""
    try:
        return make(options)
    except UnsupportedError:
        if not dims:
            raise
        return make(replace(options, dims={**options.dims, **dims}))

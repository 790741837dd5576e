"""A model as commands use it: an ONNX file, compiled on the way, or an artifact, opened as it is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from numpy.typing import NDArray

from opweld.account.account import Account
from opweld.build.artifact import WEIGHTS, read
from opweld.cli import show
from opweld.errors import ArtifactError, AssumptionError, UnsupportedError
from opweld.interface import TensorInfo
from opweld.ledger import printable
from opweld.options import Options
from opweld.runtime.fitted import FittedSessions
from opweld.runtime.session import Session
from opweld.target import Target

if TYPE_CHECKING:
    from opweld.stages import Stage

Array = NDArray[Any]
T = TypeVar("T")


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

    def feeds(self, given: Mapping[str, str], dims: Mapping[str, int], seed: int) -> dict[str, Array]:
        """Inputs that the model takes, as far as they are not given, of the sizes of `hints` where it takes those; says
        on standard error what was made up. Where no variant takes what is given, the session becomes one that does."""
        from opweld.verify.expected import expectation_of
        from opweld.verify.inputs import described, fitting_inputs, make_inputs

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
        if feeds.keys() - given.keys():
            print(f"fed: {printable(described(feeds, given), 400)}", file=sys.stderr)
        return feeds

    def _hinted(self) -> dict[str, int]:
        """The sizes that are expected of dims which the inputs have by name."""
        named = {dim for info in self.inputs for dim in info.shape or () if isinstance(dim, str)}
        return {dim: size for dim, size in self.hints.items() if dim in named}

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """All outputs by name, in the model's order; the tensors of a sequence are outputs of their own."""
        names = (info.name for info in self.session.manifest.outputs)
        return dict(zip(names, self.session.run_tensors(feeds), strict=True))


def open_model(model: Path, options: Options, dims: Mapping[str, int] | None = None, *, verify: bool = False) -> Opened:
    """Opens an artifact, its files compared with their digests where `verify`, or compiles an ONNX file with a progress
    bar and opens the result; `dims` as for `artifact_of`."""
    session = Session(artifact_of(model, options, dims), threads=options.threads or None, verify=verify)

    def compile(dims: Mapping[str, int]) -> Path:
        return artifact_of(model, options.fitted(dims))

    return Opened(session, FittedSessions(session, None if model.is_dir() else compile), options.dim_hints)


def _checked(feeds: Mapping[str, Array], session: Session) -> Session:
    session.check(feeds)
    return session


def read_decisions(model: Path, options: Options, dims: Mapping[str, int] | None = None) -> tuple[Account, Path | None]:
    """What compiling left in an artifact, or would leave of an ONNX file, without a C compiler; and the artifact, where
    there is one. `dims` as for `artifact_of`."""
    from opweld.accounts import account_of, left_without_compiler

    if model.is_dir():
        return account_of(model), model
    with show.progress() as progress:
        return _at_sizes(lambda options: left_without_compiler(model, options, progress), options, dims)


def target_of(model: Path, options: Options) -> str:
    """The name of the target that a model is compiled for."""
    return read(model).target if model.is_dir() else Target.of(options.target).name


def file_bytes(model: Path) -> int:
    """What a model takes on the disk: an ONNX file with those that its tensors lie in, the weights of an artifact."""
    if model.is_dir():
        try:
            return (model / WEIGHTS).stat().st_size
        except OSError as error:
            raise ArtifactError(f"{model / WEIGHTS}: {error.strerror}; compile the model again") from error
    from opweld.frontend.check import external_files
    from opweld.frontend.onnx import read_model

    external = external_files(read_model(model)[0])
    return sum((model.parent / name).stat().st_size for name in (model.name, *external))


def artifact_of(
    model: Path, options: Options, dims: Mapping[str, int] | None = None, watched: Stage | None = None
) -> Path:
    """The folder of an artifact, which is the model itself or what an ONNX file becomes, with a progress bar.

    `dims` are sizes of symbolic dims that it is to be run at: where the model compiles for no others, for these.
    `watched`: runs the stages, see `compile_model`."""
    if model.is_dir():
        return model
    # Compiling brings in onnx and the whole compiler; opening an artifact must not.
    from opweld.cached import compile_model

    with show.progress() as progress:
        return _at_sizes(lambda options: compile_model(model, options, progress, watched), options, dims)


def _at_sizes(make: Callable[[Options], T], options: Options, dims: Mapping[str, int] | None) -> T:
    """What is made of a model for all sizes, or, where that cannot be, for these."""
    try:
        return make(options)
    except UnsupportedError:
        if not dims:
            raise
        return make(replace(options, dims={**options.dims, **dims}))

"""A model as commands use it: an ONNX file, compiled on the way, or an artifact, opened as it is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from numpy.typing import NDArray

from opweld.account.account import Account
from opweld.backends import target_of as machine_of
from opweld.build.artifact import WEIGHTS, read
from opweld.cli import show
from opweld.errors import ArtifactError
from opweld.experiments import opened
from opweld.experiments.opened import Opened
from opweld.options import Options

if TYPE_CHECKING:
    from opweld.stages import Stage

Array = NDArray[Any]
T = TypeVar("T")


def open_model(model: Path, options: Options, dims: Mapping[str, int] | None = None, *, verify: bool = False) -> Opened:
    """See `opened.open_model`, with a progress bar."""
    with show.progress() as progress:
        return opened.open_model(model, options, dims, verify=verify, progress=progress)


def artifact_of(
    model: Path, options: Options, dims: Mapping[str, int] | None = None, watched: Stage | None = None
) -> Path:
    """See `opened.artifact_of`, with a progress bar."""
    with show.progress() as progress:
        return opened.artifact_of(model, options, dims, watched, progress)


def read_decisions(model: Path, options: Options, dims: Mapping[str, int] | None = None) -> tuple[Account, Path | None]:
    """What compiling left in an artifact, or would leave of an ONNX file, without a C compiler; and the artifact, where
    there is one. `dims` as for `artifact_of`."""
    from opweld.accounts import account_of, left_without_compiler

    if model.is_dir():
        return account_of(model), model
    with show.progress() as progress:
        return opened.at_sizes(lambda options: left_without_compiler(model, options, progress), options, dims)


def target_of(model: Path, options: Options) -> str:
    """The name of the target that a model is compiled for."""
    return read(model).target if model.is_dir() else machine_of(options.target).name


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

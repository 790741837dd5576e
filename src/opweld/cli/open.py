"""A model as commands use it: an ONNX file, compiled on the way, or an artifact, opened as it is."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from opweld.build.artifact import LEDGER, SCHEDULES
from opweld.cli import show
from opweld.errors import ArtifactError, AssumptionError, OptionError
from opweld.given import Given
from opweld.interface import TensorInfo
from opweld.ledger import Ledger, printable
from opweld.options import Options
from opweld.runtime.fitted import FittedSessions
from opweld.runtime.session import Session
from opweld.schedule.file import parse_schedules

Array = NDArray[Any]


@dataclass
class Opened:
    """A session, and what the commands ask of it; `fitted` are those of sizes that it refuses."""

    session: Session
    fitted: FittedSessions

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """The inputs as the model declares them; the tensors of a sequence are inputs of their own."""
        return self.session.manifest.inputs

    def feeds(self, given: Mapping[str, str], dims: Mapping[str, int], seed: int) -> dict[str, Array]:
        """Inputs that the model takes, as far as they are not given; says which shapes where it had to search. Where no
        variant takes what is given, the session becomes one that does."""
        from opweld.verify.inputs import fitting_inputs, make_inputs

        try:
            feeds, found = fitting_inputs(self.inputs, self.session.check, given=given, dims=dims, seed=seed)
        except AssumptionError as error:
            feeds = make_inputs(self.inputs, given=given, dims=dims, seed=seed)
            self.session = self.fitted.answer(feeds, error, partial(_checked, feeds))
            return feeds
        if found:
            shapes = (
                f"--input {name}={'x'.join(map(str, array.shape))}" for name, array in feeds.items() if array.ndim
            )
            print(f"usual sizes do not fit this model; fed as with {printable(' '.join(shapes))}", file=sys.stderr)
        return feeds

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """All outputs by name, in the model's order; the tensors of a sequence are outputs of their own."""
        names = (info.name for info in self.session.manifest.outputs)
        return dict(zip(names, self.session.run_tensors(feeds), strict=True))


def open_model(model: Path, options: Options, *, verify: bool = False) -> Opened:
    """Opens an artifact, its files compared with their digests where `verify`, or compiles an ONNX file with a progress
    bar and opens the result."""
    session = Session(_artifact(model, options), threads=options.threads or None, verify=verify)

    def compile(dims: Mapping[str, int]) -> Path:
        return _artifact(model, replace(options, dims={**options.dims, **dims}))

    return Opened(session, FittedSessions(session, None if model.is_dir() else compile))


def _checked(feeds: Mapping[str, Array], session: Session) -> Session:
    session.check(feeds)
    return session


def read_decisions(model: Path, options: Options) -> tuple[Ledger, Given]:
    """The ledger and the schedules of an artifact, or of an ONNX file once compiled."""
    folder = _artifact(model, options)
    try:
        ledger, schedules = ((folder / name).read_text(encoding="utf-8") for name in (LEDGER, SCHEDULES))
        return Ledger.loads(ledger), parse_schedules(schedules, str(folder / SCHEDULES))
    except (OSError, UnicodeDecodeError, OptionError) as error:
        raise ArtifactError(f"cannot read the decisions of {folder} ({error}); compile the model again") from error


def _artifact(model: Path, options: Options) -> Path:
    if model.is_dir():
        return model
    # Compiling brings in onnx and the whole compiler; opening an artifact must not.
    from opweld.compile import compile_model

    with show.progress() as progress:
        return compile_model(model, options, progress)

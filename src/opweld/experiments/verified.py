"""Is a compiled model's answer right?"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from opweld.build.artifact import MANIFEST
from opweld.errors import OptionError
from opweld.experiments.opened import open_model
from opweld.option import documented
from opweld.options import CompileOptions, Options
from opweld.verification.asked import check_asked
from opweld.verification.check import Check, check_outputs, check_tolerances
from opweld.verification.inputs import Given

if TYPE_CHECKING:
    from opweld.compile import Progress


@documented(Options)
def verify(
    model: str | os.PathLike[str],
    feeds: Mapping[str, Given] | None = None,
    *,
    sizes: Mapping[str, int] | None = None,
    seed: int = 0,
    rtol: float | None = None,
    atol: float | None = None,
    against: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    **options: Unpack[CompileOptions],
) -> Check:
    """Compares a compiled model with the model itself, computed in float64, and with ONNX Runtime where that is
    installed: what `opweld verify` prints.

    Args:
        model: the path of an ONNX file, or of an artifact.
        feeds: by input, an array, or a text as `opweld run --input` takes it; what is not given is made up. Noise is a
            poor input for a detector.
        sizes: of symbolic dims of inputs that are made up; of the model too where it does not compile without.
        seed: of inputs that are made up.
        rtol: tolerance as a part of each output's scale; by dtype and by ONNX Runtime's own error where None.
        atol: tolerance of the difference itself.
        against: the ONNX file to compare with: of an artifact, or another model.
        progress: called with (what is being done, steps done, steps in all).
        options: see docs/options.md.

    Returns the comparison: `passed`, `error`, one entry an output. Raises what `compile` raises; OptionError for an
    artifact with nothing to compare with, an input or size that the model does not have, a tolerance that is none;
    UnsupportedError where there is no reference."""
    check_tolerances(rtol=rtol, atol=atol)
    path, given, dims, chosen = Path(model), feeds or {}, sizes or {}, Options.of(**options)
    if against is None and (path / MANIFEST).is_file():
        raise OptionError(f"{str(path)!r} is an artifact, which holds no graph: say against which model")
    if against is not None:
        from opweld.frontend.onnx import read_model

        read_model(Path(against))  # what cannot be read is said before anything runs
    check_asked(path, given, dims, seed)
    opened = open_model(path, chosen, dims, progress=progress)
    fed = opened.feeds(given, dims, seed)
    outputs = opened.session.run_values(fed)
    names = [info.name for info in opened.session.manifest.outputs]
    if progress is not None:
        progress("computing in float64", 0, 0)
    right = path if against is None else Path(against)
    declared = opened.session.as_declared(fed)
    return check_outputs(right, declared, names, outputs, rtol=rtol, atol=atol)

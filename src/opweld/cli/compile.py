"""`opweld compile`: a model in, an artifact folder out."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from opweld.cli import arguments, show
from opweld.errors import OptionError
from opweld.options import Options


@arguments.with_options()
def compile_command(
    model: arguments.ModelArgument,
    *,
    options: Options,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="OUT.opweld", help="The artifact; MODEL's name with .opweld where not given."
        ),
    ] = None,
) -> None:
    """Compile a model into an artifact: a folder that runs without ONNX and without a compiler.

    \b
    opweld compile model.onnx -o model.opweld
    opweld compile model.onnx --target x86-64-v3
        for any machine with AVX2
    opweld compile model.onnx --dim batch=1 --dim seq=128 for one size only
    opweld compile model.onnx --dim-hint seq=512
        for any size, fastest near this one
    opweld compile model.onnx --level none
        one kernel a node, to compare with
    opweld compile model.onnx --schedules mine.txt
        kernels as the (edited) schedules.txt of an artifact says
    opweld compile model.onnx --tune quick
        try other schedules on this machine, keep what is faster

    Symbolic dims stay symbolic unless --dim fixes them: one artifact serves every size. It also holds a C header.
    """
    out = output or Path(f"{model.stem}.opweld")
    if out.exists() and not (out / "manifest.json").is_file():
        raise OptionError(f"--output {out}: is there already and is no artifact; name another folder")
    from opweld.build import artifact
    from opweld.cached import compile_model

    start = time.perf_counter()
    with show.progress() as progress:
        folder = compile_model(model, options, progress)
    # Not opened: it may be for another machine.
    artifact.copy(folder, out, options.threads)
    show.text(f"{out}  ({time.perf_counter() - start:.1f} s)")

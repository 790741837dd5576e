"""`opweld run`: run a model once and show its outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opweld.cli import arguments, show
from opweld.cli.outputs import show_outputs, summaries_of, write_outputs
from opweld.options import Options


@arguments.with_options(without=arguments.RUNNING)
def run(
    model: arguments.AnyModelArgument,
    *,
    options: Options,
    values: arguments.InputOption = None,
    dim: arguments.InputDimOption = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="DIR", help="Write each output there as a .npy file.")
    ] = None,
    seed: arguments.SeedOption = 0,
    verify_files: arguments.VerifyFilesOption = False,
    json: arguments.JsonOption = None,
) -> None:
    """Run a model on inputs from files, or on random ones.

    \b
    opweld run model.onnx --input x=photo.npy --output results
    opweld run model.opweld
        random inputs of usual sizes
    opweld run model.opweld --dim seq=200
        of this size, where the model names its dims
    opweld run vad.onnx --input sr=16000 --input input=1x576

    The table gives each output's shape, range and number of NaNs.
    """
    from opweld.cli.open import open_model
    from opweld.verification.asked import check_asked

    arguments.check_files(model, json=json)
    given, dims = arguments.pairs(values, "--input"), arguments.sizes(dim)
    check_asked(model, given, dims, seed)
    opened = open_model(model, options, dims, verify=verify_files)
    feeds = opened.feeds(given, dims, seed)
    outputs = opened.run(feeds)
    files = {} if output is None else write_outputs(outputs, output)
    summaries = summaries_of(outputs, files)
    if json is not None:
        show.write_json({"model": str(model), "outputs": summaries}, json)
        if str(json) == "-":
            return
    show_outputs(summaries)

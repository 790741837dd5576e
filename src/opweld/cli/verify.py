"""`opweld verify`: is the compiled model's answer right, and where does it go wrong?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import opweld
from opweld.cli import arguments, show
from opweld.errors import OptionError
from opweld.ledger import printable
from opweld.options import Options

if TYPE_CHECKING:
    from opweld.verification.check import Check


@arguments.with_options(without=arguments.RUNNING)
def verify(
    model: arguments.AnyModelArgument,
    *,
    options: Options,
    values: arguments.InputOption = None,
    dim: arguments.InputDimOption = None,
    rtol: arguments.RtolOption = None,
    atol: arguments.AtolOption = None,
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL", help="The ONNX file to compare with: of an artifact, or another model.", show_default=False
        ),
    ] = None,
    intermediates: Annotated[
        bool, typer.Option("--intermediates", help="Compare every value of the graph that is in memory, too.")
    ] = False,
    first_bad: Annotated[
        bool, typer.Option("--first-bad", help="Name the node of the first NaN, infinity or bad index, and no more.")
    ] = False,
    seed: arguments.SeedOption = 0,
    json: arguments.JsonOption = None,
) -> None:
    """Compare the compiled model with the model itself, computed in float64, and with ONNX Runtime unoptimised.

    \b
    opweld verify model.onnx --input x=photo.npy
    opweld verify model.onnx --dim batch=3 --rtol 1e-6
    opweld verify model.onnx --level none
        is it fusion that changes the answer?
    opweld verify model.onnx --intermediates
        where does the error begin?
    opweld verify model.onnx --first-bad
        which node makes the first NaN?
    opweld verify model.opweld --against model.onnx
        an artifact, with the model that it was made from

    Tolerated is the larger of 1e-5 of an output's scale and four times ONNX Runtime's own error, unless --rtol or
    --atol say otherwise. Exit status 1 when an output is outside. Noise is a poor input for a detector: give real ones.
    """
    arguments.check_files(model, json=json)
    given, dims = arguments.pairs(values, "--input"), arguments.sizes(dim)
    if intermediates or first_bad:
        if model.is_dir() or against is not None:
            raise OptionError("--intermediates and --first-bad compile the model to see where its values are: name it")
        from opweld.cli.traced import report_first_bad, report_values

        if first_bad:
            report_first_bad(model, options, given, dims, seed, json)
        else:
            report_values(model, options, given, dims, seed, json, rtol=rtol, atol=atol)
        return
    if model.is_dir() and against is None:
        raise OptionError(f"{str(model)!r} is an artifact, which holds no graph: name the model with --against")
    with show.progress() as progress:
        check = opweld.verify(
            model,
            given,
            sizes=dims,
            seed=seed,
            rtol=rtol,
            atol=atol,
            against=against,
            progress=progress,
            **options.keywords(),
        )
    if json is not None:
        show.write_json({"model": str(model), **_data(check)}, json)
    if json is None or str(json) != "-":
        _show(model, check)
    if not check.passed:
        raise typer.Exit(1)


def _data(check: Check) -> dict[str, Any]:
    return {
        "reference": check.reference,
        "passed": check.passed,
        "outputs": [c.to_json() for c in check.comparisons],
        "notes": list(check.notes),
    }


def _show(model: Path, check: Check) -> None:
    table = check.table()
    problems = [f"{printable(c.name)}: {c.problem}" for c in check.comparisons if not c.passed]
    title = f"{printable(str(model))}: against {check.reference}, errors as parts of the scale"
    show.table(title, table.columns, table.rows, [*problems, *(f"note: {note}" for note in check.notes)])

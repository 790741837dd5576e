"""`opweld verify`: is the compiled model's answer right?"""

from __future__ import annotations

from typing import Annotated

import typer

from opweld.cli import arguments, show
from opweld.ledger import printable


def verify(
    model: arguments.ModelArgument,
    values: arguments.InputOption = None,
    dim: arguments.InputDimOption = None,
    rtol: Annotated[
        float | None, typer.Option(metavar="X", help="Tolerance as a part of each output's scale.", show_default=False)
    ] = None,
    atol: Annotated[
        float | None, typer.Option(metavar="X", help="Tolerance of the difference itself.", show_default=False)
    ] = None,
    level: arguments.LevelOption = "all",
    threads: arguments.ThreadsOption = None,
    disable: arguments.DisableOption = None,
    pin: arguments.PinOption = None,
    dim_hint: arguments.HintOption = None,
    schedules: arguments.SchedulesOption = None,
    length: arguments.LengthOption = None,
    constant: arguments.ConstantOption = None,
    seed: arguments.SeedOption = 0,
    json: arguments.JsonOption = None,
) -> None:
    """Compare the compiled model with the model itself, computed in float64, and with ONNX Runtime unoptimised.

    \b
    opweld verify model.onnx --input x=photo.npy
    opweld verify model.onnx --dim batch=3 --rtol 1e-6
    opweld verify model.onnx --level none                 is it fusion that changes the answer?

    Tolerated is the larger of 1e-5 of an output's scale and four times ONNX Runtime's own error, unless --rtol or
    --atol say otherwise. Exit status 1 when an output is outside. Noise is a poor input for a detector: give real ones.
    """
    from opweld.cli.open import open_model
    from opweld.verify.check import check_outputs, check_tolerances

    check_tolerances(rtol=rtol, atol=atol)
    options = arguments.options(
        level=level,
        threads=threads,
        disable=disable,
        pin=pin,
        dim_hint=dim_hint,
        schedules=schedules,
        length=length,
        constant=constant,
    )
    opened = open_model(model, options)
    feeds = opened.feeds(arguments.pairs(values, "--input"), arguments.sizes(dim), seed)
    outputs = opened.run(feeds)
    check = check_outputs(
        model, opened.session.as_declared(feeds), list(outputs), list(outputs.values()), rtol=rtol, atol=atol
    )
    if json is not None:
        data = {
            "model": str(model),
            "reference": check.reference,
            "passed": check.passed,
            "outputs": [c.to_json() for c in check.comparisons],
            "notes": list(check.notes),
        }
        show.write_json(data, json)
    if json is None or str(json) != "-":
        columns = ("output", "dtype", "shape", "scale", "error", "tolerated", "ONNX Runtime", "verdict")
        rows = [
            (
                printable(c.name),
                c.dtype,
                "x".join(map(str, c.shape)) or "scalar",
                f"{c.scale:.3g}",
                f"{c.error:.2e}",
                f"{c.tolerance:.2e}",
                "-" if c.peer_error is None else f"{c.peer_error:.2e}",
                "right" if c.passed else "WRONG",
            )
            for c in check.comparisons
        ]
        problems = [f"{printable(c.name)}: {c.problem}" for c in check.comparisons if not c.passed]
        title = f"{printable(str(model))}: against {check.reference}, errors as parts of the scale"
        show.table(title, columns, rows, [*problems, *(f"note: {note}" for note in check.notes)])
    if not check.passed:
        raise typer.Exit(1)

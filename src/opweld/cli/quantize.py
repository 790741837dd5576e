"""`opweld quantize`: an ONNX file with fewer bits, and what that costs, node by node."""

from __future__ import annotations

from typing import Annotated, Any

import typer

import opweld
from opweld.cli import arguments, show
from opweld.ledger import printable


def quantize(
    model: arguments.ModelArgument,
    output: arguments.OnnxFileOption,
    data: arguments.SamplesOption = None,
    held_out: arguments.HeldOutOption = None,
    random: arguments.RandomSamplesOption = None,
    precision: Annotated[
        str, typer.Option(metavar="PRECISION", help="int8, or int8-weights or int4-weights: stored weights alone.")
    ] = "int8",
    ranges: Annotated[
        str,
        typer.Option(metavar="METHOD", help="Of activations: minmax, percentile, entropy, mse, or the best of them."),
    ] = "best",
    activations: Annotated[str, typer.Option(metavar="CODES", help="uint8 or int8.")] = "uint8",
    reduce_range: Annotated[
        bool,
        typer.Option("--reduce-range", help="Smaller weights, exact and faster on processors without VNNI."),
    ] = False,
    max_error: Annotated[
        float | None,
        typer.Option(metavar="E", help="What the outputs may lose, as a part of their size.", show_default=False),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="NODE", help="A node that stays in float; repeat for more.", show_default=False),
    ] = None,
    json: arguments.JsonOption = None,
) -> None:
    """Write an ONNX file with fewer bits, for any runtime: calibrated, measured node by node.

    \b
    opweld quantize model.onnx --data samples -o int8.onnx
    opweld quantize model.onnx --data samples -o int8.onnx --max-error 0.01
        what loses most by second saved becomes int8 weights alone, then float
    opweld quantize model.onnx -o small.onnx --precision int4-weights
        weights alone: no data needed
    opweld quantize model.onnx --data samples -o int8.onnx --json nodes.json

    Standard pairs of QuantizeLinear and DequantizeLinear. The error is that of the file that is written, compiled, over
    samples by which nothing but a budget was chosen: the root of the squared differences' sum over that of the squared
    answers' sum.
    """
    arguments.check_files(model, output=output, json=json)
    choices: dict[str, Any] = {"precision": precision, "ranges": ranges, "activations": activations}
    choices["reduce_range"] = reduce_range
    with show.progress() as progress:
        done = opweld.quantize(
            model, data, held_out=held_out, max_error=max_error, keep=keep or (), random=random, progress=progress,
            **choices,
        )  # fmt: skip
    done.save(output)
    if json is not None:
        show.write_json({"model": str(model), "file": str(output), **done.to_json()}, json)
    if json is None or str(json) != "-":
        table = done.table()
        show.table(f"{printable(str(model))} -> {printable(str(output))}", table.columns, table.rows)
        show.text(done.summary())

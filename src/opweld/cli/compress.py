"""`opweld compress`: an ONNX file with fewer weights, where it is faster, and what that costs, layer by layer."""

from __future__ import annotations

from typing import Annotated, Any

import typer

import opweld
from opweld.cli import arguments, show
from opweld.ledger import printable


def compress(
    model: arguments.ModelArgument,
    output: arguments.OnnxFileOption,
    data: arguments.SamplesOption = None,
    held_out: arguments.HeldOutOption = None,
    random: arguments.RandomSamplesOption = None,
    method: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METHOD",
            help="low-rank, channels, 2:4, blocks or unstructured; repeat for more.",
            show_default="low-rank, channels",
        ),
    ] = None,
    max_error: Annotated[
        float, typer.Option(metavar="E", help="What the outputs may lose, as a part of their size.")
    ] = 0.01,
    keep: Annotated[
        list[str] | None,
        typer.Option(metavar="NODE", help="A node that stays as it is; repeat for more.", show_default=False),
    ] = None,
    without_speedup: Annotated[
        bool, typer.Option("--without-speedup", help="Keep what does not measure faster too.")
    ] = False,
    json: arguments.JsonOption = None,
) -> None:
    """Write an ONNX file with fewer weights, for any runtime: decomposed by what data show, kept where it is faster.

    \b
    opweld compress model.onnx --data samples -o smaller.onnx
    opweld compress model.onnx --data samples -o smaller.onnx --max-error 0.05
    opweld compress model.onnx --data samples -o smaller.onnx --json layers.json
    opweld compress m.onnx --data samples -o z.onnx --method 2:4 --without-speedup
        zeros for hardware that skips them; no kernel of opweld does

    Of the ways to make a layer smaller those are made that lose least at the outputs by second saved; each is timed
    beside the layer as it was, and all together beside the model. The error is that of the file that is written,
    compiled, over samples by which nothing but the budget was kept: the root of the squared differences' sum over that
    of the squared answers' sum.
    """
    arguments.check_files(model, output=output, json=json)
    choices: dict[str, Any] = {"methods": method} if method else {}
    with show.progress() as progress:
        done = opweld.compress(
            model, data, held_out=held_out, max_error=max_error, keep=keep or (), without_speedup=without_speedup,
            random=random, progress=progress, **choices,
        )  # fmt: skip
    done.save(output)
    if json is not None:
        show.write_json({"model": str(model), "file": str(output), **done.to_json()}, json)
    if json is None or str(json) != "-":
        table = done.table()
        show.table(f"{printable(str(model))} -> {printable(str(output))}", table.columns, table.rows)
        show.text(done.summary())

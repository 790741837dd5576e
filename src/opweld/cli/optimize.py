"""`opweld optimize`: a smaller ONNX file that any runtime loads."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opweld.cli import arguments, show
from opweld.errors import OptionError
from opweld.ledger import Ledger, printable
from opweld.rules import REWRITES

if TYPE_CHECKING:
    from opweld.rewrite.optimize import Optimized

RUNTIMES = ("any", "onnxruntime")


def optimize(
    model: arguments.ModelArgument,
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="The ONNX file to write.", show_default=False)
    ],
    runtime: Annotated[
        str,
        typer.Option(
            "--for", metavar="RUNTIME", help="Who will run it: any, or onnxruntime, whose own operators help."
        ),
    ] = "any",
    level: arguments.LevelOption = "all",
    disable: arguments.DisableOption = None,
    pin: arguments.PinOption = None,
    near_misses: Annotated[int, typer.Option(metavar="N", help="How many near misses to list.")] = 10,
    json: arguments.JsonOption = None,
) -> None:
    """Write an ONNX file that gives the same with less: for any runtime, in the opset and under the names that it had.

    \b
    opweld optimize model.onnx -o smaller.onnx
    opweld optimize model.onnx -o smaller.onnx --for onnxruntime    Gelu and others as ONNX Runtime's own operators
    opweld optimize model.onnx -o smaller.onnx --level basic
    opweld optimize model.onnx -o smaller.onnx --disable rewrite.gemm
    opweld optimize model.onnx -o smaller.onnx --json - | jq '.decisions[].rule'

    The file passes ONNX's checker and is never larger. Weights are combined in float64 and rounded once.
    """
    from opweld.rewrite.optimize import optimize_model
    from opweld.rewrite.write import save

    options = arguments.options(level=level, disable=disable, pin=pin)
    if output.exists() and model.exists() and output.samefile(model):
        raise OptionError(f"{str(output)!r} is the model itself; give the result another name")
    if runtime not in RUNTIMES:
        raise OptionError(f"--for {runtime!r}: expected {' or '.join(RUNTIMES)}")
    done = optimize_model(
        model,
        lambda: Ledger(options.disable, level=options.level, pins=options.pins, rules=REWRITES),
        contributed=runtime == "onnxruntime",
    )
    files = save(done, output)
    before, after = sum(done.before.values()), sum(done.after.values())
    sizes = _bytes(model), sum(file.stat().st_size for file in files)
    if json is not None:
        data = {
            "model": str(model),
            "files": [str(file) for file in files],
            "nodes": {"before": before, "after": after},
            "bytes": {"before": sizes[0], "after": sizes[1]},
            "operators": {name: [done.before.get(name, 0), done.after.get(name, 0)] for name in _names(done)},
            "notes": list(done.notes),
            "decisions": done.ledger.to_json(),
        }
        show.write_json(data, json)
    if json is None or str(json) != "-":
        rows = [(printable(name), str(done.before.get(name, 0)), str(done.after.get(name, 0))) for name in _names(done)]
        rows += [("all nodes", str(before), str(after)), ("bytes", f"{sizes[0]:,}", f"{sizes[1]:,}")]
        show.table(f"{printable(str(model))} -> {printable(str(output))}", ("operator", "before", "after"), rows)
        fired = [(rule, str(taken), str(every)) for rule, (taken, every) in done.ledger.counts().items()]
        show.table("\nwhat was done", ("rule", "taken", "of"), fired)
        missed = [d for d in done.ledger if d.near_miss][:near_misses]
        if missed:
            table = [(d.id, d.rule, printable(d.site[0]), printable(d.reason)) for d in missed]
            show.table("\nwhat was not, and why", ("id", "rule", "node", "because"), table)
        for note in done.notes:
            print(f"note: {printable(note, 400)}")


def _names(done: Optimized) -> list[str]:
    return sorted({*done.before, *done.after}, key=lambda name: (-done.before.get(name, 0), name))


def _bytes(model: Path) -> int:
    """Of a model's file, and of the files that its tensors lie in."""
    from opweld.frontend.description import external_files

    return sum((model.parent / name).stat().st_size for name in (model.name, *external_files(model)))

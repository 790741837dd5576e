"""`opweld optimize`: a smaller ONNX file that any runtime loads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from opweld.cli import arguments, show
from opweld.errors import OptionError
from opweld.ledger import printable
from opweld.options import Options
from opweld.table import Column, of_names

if TYPE_CHECKING:
    from opweld.account.regions import Kept
    from opweld.rewrite.optimize import Optimized


@arguments.with_options(rewriting=True)
def optimize(
    model: arguments.ModelArgument,
    *,
    options: Options,
    output: arguments.OnnxFileOption,
    runtime: Annotated[
        str,
        typer.Option(
            "--for", metavar="RUNTIME", help="Who will run it: any, or onnxruntime, whose own operators help."
        ),
    ] = "any",
    keep_regions: Annotated[
        bool, typer.Option("--keep-regions", help="Say on each node which kernel of `opweld compile` computes it.")
    ] = False,
    functions: Annotated[
        bool, typer.Option("--functions", help="With --keep-regions: the nodes of a kernel are a function, too.")
    ] = False,
    near_misses: Annotated[int, typer.Option(metavar="N", help="How many near misses to list.")] = 10,
    json: arguments.JsonOption = None,
) -> None:
    """Write an ONNX file that gives the same with less: for any runtime, in the opset and under the names that it had.

    \b
    opweld optimize model.onnx -o smaller.onnx
    opweld optimize model.onnx -o smaller.onnx --for onnxruntime
        Gelu and others as ONNX Runtime's own operators
    opweld optimize model.onnx -o smaller.onnx --level basic
    opweld optimize model.onnx -o smaller.onnx --disable rewrite.gemm
    opweld optimize model.onnx -o smaller.onnx --json - | jq '.decisions[].rule'
    opweld optimize model.onnx -o seen.onnx --keep-regions
        for viewers: the kernels, as metadata of nodes
    opweld optimize model.onnx -o seen.onnx --keep-regions --functions
        and as functions, a graph of kernels

    The file passes ONNX's checker and is never larger, but for the regions that it is to tell of. Weights are combined
    in float64 and rounded once.
    """
    from opweld.cli.open import file_bytes
    from opweld.compile import keep_regions_of
    from opweld.experiments.bisect import RUNTIMES
    from opweld.rewrite.optimize import optimize_as_asked
    from opweld.rewrite.write import save

    arguments.check_files(model, output=output, json=json)
    if runtime not in RUNTIMES:
        raise OptionError(f"--for {runtime!r}: expected {' or '.join(RUNTIMES)}")
    if functions and not keep_regions:
        raise OptionError("--functions says how regions are kept; give --keep-regions too")
    done = optimize_as_asked(model, options, contributed=runtime == "onnxruntime")
    kept = None
    if keep_regions:
        with show.progress() as progress:
            kept = keep_regions_of(done, "functions" if functions else "metadata", progress)
    files = save(done, output)
    before, after = sum(done.before.values()), sum(done.after.values())
    sizes = file_bytes(model), sum(file.stat().st_size for file in files)
    if json is not None:
        data = {
            "model": str(model),
            "files": [str(file) for file in files],
            "nodes": {"before": before, "after": after},
            "bytes": {"before": sizes[0], "after": sizes[1]},
            "operators": {name: [done.before.get(name, 0), done.after.get(name, 0)] for name in _names(done)},
            "notes": list(done.notes),
            "decisions": done.ledger.to_json(),
            "regions": None if kept is None else vars(kept),
        }
        show.write_json(data, json)
    if json is None or str(json) != "-":
        rows = [(printable(name), str(done.before.get(name, 0)), str(done.after.get(name, 0))) for name in _names(done)]
        rows += [("all nodes", str(before), str(after)), ("bytes", f"{sizes[0]:,}", f"{sizes[1]:,}")]
        title = f"{printable(str(model))} -> {printable(str(output))}"
        show.table(title, (of_names("operator"), Column("before"), Column("after")), rows)
        fired = [(rule, str(taken), str(every)) for rule, (taken, every) in done.ledger.counts().items()]
        if fired:
            show.table("\nwhat was done", (of_names("rule"), Column("taken"), Column("of")), fired)
        missed = [d for d in done.ledger if d.near_miss][:near_misses]
        if missed:
            print("\nwhat was not, and why")
            for decision in missed:
                show.text(f"  {decision.rule} {decision.id}: {printable(decision.reason)}")
                show.text(f"    at {printable(decision.site[0])}")
        if kept is not None:
            show.text(f"\n{_regions(kept)}")
            for refused, reason in kept.refused.items():
                show.text(f"note: {printable(refused)} is no function: {reason}")
        for note in done.notes:
            show.text(f"note: {printable(note, 400)}")


def _regions(kept: Kept) -> str:
    several = sum(count > 1 for count in kept.kernels.values())
    text = f"regions: nodes of {len(kept.kernels)} kernels, {several} of several nodes"
    return f"{text}; functions: {len(kept.functions)}" if kept.functions or kept.refused else text


def _names(done: Optimized) -> list[str]:
    return sorted({*done.before, *done.after}, key=lambda name: (-done.before.get(name, 0), name))

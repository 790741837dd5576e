"""`opweld analyze`: what a model costs, before and after fusion, and what each kernel is bound by."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from opweld.cli import arguments, show
from opweld.errors import OptionError
from opweld.options import Options


@arguments.with_options(without=("dims",))
def analyze(
    model: arguments.AnyModelArgument,
    *,
    options: Options,
    nodes: Annotated[bool, typer.Option("--nodes", help="List the nodes of the file, not the kernels.")] = False,
    formulas: Annotated[
        bool, typer.Option("--formulas", help="Write amounts as formulas of the symbolic sizes.")
    ] = False,
    sort: Annotated[
        str,
        typer.Option(metavar="WHAT", help="time, flops, bytes, parameters or order; nodes have no time: flops there."),
    ] = "time",
    top: Annotated[int, typer.Option(metavar="N", min=0, help="How many rows to print; 0 for all.")] = 25,
    dim: arguments.InputDimOption = None,
    csv: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write all rows as CSV too; - for stdout alone.", show_default=False),
    ] = None,
    json: arguments.JsonOption = None,
) -> None:
    """Count parameters, operations, bytes and memory of a model: every node, every kernel, before and after fusion.

    \b
    opweld analyze model.onnx
    opweld analyze model.onnx --dim batch=8 --dim sequence=512   at these sizes
    opweld analyze model.onnx --nodes --formulas                 how do they grow?
    opweld analyze model.opweld --csv kernels.csv --json all.json

    No C compiler is needed; the memory that a run takes is told of what is compiled already.

    Everything is counted from the tensor program. A sum of products is two FLOPs a product; functions and divisions are
    one each. Bytes are each value once for each kernel that reads or writes it. What a kernel is bound by needs the
    machine's ceilings: `opweld machine` measures them once. What --json writes is described by
    docs/analyze.schema.json; in Python, `opweld.analyze(model)` has the same, and frame() makes a DataFrame.
    """
    from opweld.analysis.analysis import KERNEL_COLUMNS, NODE_COLUMNS, analysis_of, kernel_rows, node_rows
    from opweld.analysis.analysis_text import SORTS, head_text, kernel_table, memory_text, node_table, totals_table
    from opweld.analysis.data import analysis_json
    from opweld.analysis.machine import Machine
    from opweld.analysis.usual_run import most_threads, planned
    from opweld.cli.open import file_bytes, read_decisions, target_of
    from opweld.verification.asked import check_asked

    arguments.check_files(model, csv=csv, json=json)
    if sort not in SORTS:
        raise OptionError(f"--sort {sort!r}: expected one of {', '.join(SORTS)}")
    dims = arguments.sizes(dim)
    check_asked(model, {}, dims)
    account, folder = read_decisions(model, options, dims)
    machine = Machine.remembered()
    sizes, plan = planned(folder, account, dims, options.threads)
    found, size = analysis_of(account, sizes, machine, plan, most_threads(options)), file_bytes(model)
    if json is not None:
        show.write_json(analysis_json(found, str(model), target_of(model, options), size), json)
    if csv is not None:
        columns, rows = (NODE_COLUMNS, node_rows(found)) if nodes else (KERNEL_COLUMNS, kernel_rows(found))
        show.write_csv(columns, rows, csv)
    if "-" in (str(json), str(csv)):
        return
    show.text(head_text(found, str(model), size))
    totals, rows, more = totals_table(found), *(node_table if nodes else kernel_table)(found, sort, top, formulas)
    show.table("", totals.columns, totals.rows)
    show.text(memory_text(found))
    print()
    show.table("", rows.columns, rows.rows, [f"{more}: --top 0 for all"] if more else ())
    if not nodes and machine is None:
        show.text("what kernels are bound by: unknown, `opweld machine` measures what this machine can do at most")

"""`opweld analyze`: what a model costs, before and after fusion, and what each kernel is bound by."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from opweld.account.summary import bytes_text, seconds_text
from opweld.cli import arguments, show
from opweld.cli.table import Column, of_names, of_words
from opweld.errors import OptionError
from opweld.ledger import printable

if TYPE_CHECKING:
    from opweld.analysis.analysis import Analysis, KernelAnalysis, NodeAnalysis, Totals

SORTS = ("time", "flops", "bytes", "parameters", "order")
"""What rows can be sorted by; the largest first, but `order`, which is that of the model."""


_FORMULA = 12
"""Characters that formulas may be shortened to in a narrow terminal."""


def analyze(
    model: arguments.AnyModelArgument,
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
    target: arguments.TargetOption = "native",
    level: arguments.LevelOption = "all",
    threads: arguments.ThreadsOption = None,
    disable: arguments.DisableOption = None,
    pin: arguments.PinOption = None,
    dim_hint: arguments.HintOption = None,
    schedules: arguments.SchedulesOption = None,
    tune: arguments.TuneOption = "off",
    length: arguments.LengthOption = None,
    rank: arguments.RankOption = None,
    constant: arguments.ConstantOption = None,
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

    Everything is counted from the tensor program. A sum of products is two FLOPs a product; functions and divisions are
    one each. Bytes are each value once for each kernel that reads or writes it. What a kernel is bound by needs the
    machine's ceilings: `opweld machine` measures them once. What --json writes is described by
    docs/analyze.schema.json; in Python, `opweld.analyze(model)` has the same, and frame() makes a DataFrame.
    """
    from opweld.analysis.analysis import KERNEL_COLUMNS, NODE_COLUMNS, analysis_of, kernel_rows, node_rows
    from opweld.analysis.data import analysis_json
    from opweld.analysis.machine import Machine
    from opweld.cli.open import file_bytes, planned, read_account, target_of

    arguments.distinct(model, csv=csv, json=json)
    if sort not in SORTS:
        raise OptionError(f"--sort {sort!r}: expected one of {', '.join(SORTS)}")
    options = arguments.options(
        target=target,
        level=level,
        threads=threads,
        disable=disable,
        pin=pin,
        dim_hint=dim_hint,
        schedules=schedules,
        tune=tune,
        length=length,
        rank=rank,
        constant=constant,
    )
    dims = arguments.sizes(dim)
    account = read_account(model, options, dims)
    machine = Machine.remembered()
    sizes, plan = planned(model, options, account, dims)
    found, size = analysis_of(account, sizes, machine, plan), file_bytes(model)
    if json is not None:
        show.write_json(analysis_json(found, str(model), target_of(model, options), size), json)
    if csv is not None:
        columns, rows = (NODE_COLUMNS, node_rows(found)) if nodes else (KERNEL_COLUMNS, kernel_rows(found))
        show.write_csv(columns, rows, csv)
    if "-" in (str(json), str(csv)):
        return
    print_summary(found, str(model), size)
    if nodes:
        _print_nodes(found, sort, top, formulas)
    else:
        _print_kernels(found, sort, top, formulas)
        if machine is None:
            show.text("what kernels are bound by: unknown, `opweld machine` measures what this machine can do at most")


def print_summary(found: Analysis, model: str, size: int) -> None:
    """Prints totals before and after, memory, and what training would take."""
    sizes = ", ".join(f"{printable(name)}={value}" for name, value in found.dims.items())
    show.text(
        f"{printable(model)}: {count_text(found.parameters)} parameters, {bytes_text(found.parameter_bytes)}"
        f" ({bytes_text(size)} on disk){f', at {printable(sizes, 200)}' if sizes else ''}"
    )
    columns = (
        of_words(""),
        Column("launches"),
        Column("FLOPs"),
        Column("MACs", 2),
        Column("functions", 3),
        Column("integer", 4),
        Column("read"),
        Column("written"),
        Column("FLOP/byte", 1),
    )
    rows = [_total("before fusion", found.before), _total("after fusion", found.after)]
    show.table("", columns, rows)
    memory = found.memory
    arena = "" if memory.arena is None else f"{bytes_text(memory.arena)} of memory for values; "
    show.text(
        f"memory: {arena}{bytes_text(memory.live)} are needed at one time at most, all values together would take "
        f"{bytes_text(memory.tensors)}; weights {bytes_text(memory.weights)}"
    )
    t = found.training
    show.text(
        f"training in float32 would take {bytes_text(t.total)}: weights {bytes_text(t.weights)}, gradients "
        f"{bytes_text(t.gradients)}, Adam {bytes_text(t.optimizer)}, activations {bytes_text(t.activations.value)}"
    )
    print()


def _total(name: str, totals: Totals) -> tuple[str, ...]:
    a = totals.amounts
    counts = (a.flops, a.macs, a.special, a.integer)
    moved = (bytes_text(a.read.value), bytes_text(a.written.value))
    return (name, f"{totals.launches:,}", *(count_text(c.value) for c in counts), *moved, f"{a.intensity:.1f}")


def _print_kernels(found: Analysis, sort: str, top: int, formulas: bool) -> None:
    keys: Mapping[str, Callable[[KernelAnalysis], float]] = {
        "time": lambda k: -k.work.seconds,
        "flops": lambda k: -k.amounts.flops.value,
        "bytes": lambda k: -k.amounts.moved,
        "parameters": lambda k: -k.entry.weights,
        "order": lambda k: 0,
    }
    chosen = sorted(found.kernels, key=keys[sort])
    seconds = sum(kernel.work.seconds for kernel in found.kernels) or 1.0
    least = _FORMULA if formulas else 0
    columns = (
        of_words("kernel"),
        Column("FLOPs", least=least),
        Column("of FLOPs", 5),
        Column("bytes", least=least),
        Column("FLOP/byte", 4),
        Column("weights", 3),
        Column("predicted"),
        Column("of time", 2),
        of_words("bound", 1),
        of_names("nodes"),
    )
    flops = found.after.amounts.flops.value or 1
    rows = [
        (
            kernel.entry.name,
            kernel.amounts.flops.formula if formulas else count_text(kernel.amounts.flops.value),
            f"{kernel.amounts.flops.value / flops:.1%}",
            _moved(kernel, formulas),
            f"{kernel.amounts.intensity:.1f}",
            bytes_text(kernel.entry.weights),
            seconds_text(kernel.work.seconds),
            f"{kernel.work.seconds / seconds:.1%}",
            "-" if kernel.bound is None else kernel.bound.name,
            _names(kernel.entry.nodes),
        )
        for kernel in chosen[: top or None]
    ]
    show.table("", columns, rows, _more(len(chosen), len(rows), "kernels"))


def _print_nodes(found: Analysis, sort: str, top: int, formulas: bool) -> None:
    keys: Mapping[str, Callable[[NodeAnalysis], float]] = {
        "time": lambda n: -n.amounts.flops.value,
        "flops": lambda n: -n.amounts.flops.value,
        "bytes": lambda n: -n.amounts.moved,
        "parameters": lambda n: -n.parameters,
        "order": lambda n: 0,
    }
    chosen = sorted(found.nodes, key=keys[sort])
    flops = found.before.amounts.flops.value or 1
    least = _FORMULA if formulas else 0
    columns = (
        of_names("node", least=24),
        of_words("operator", 1),
        Column("FLOPs", least=least),
        Column("of FLOPs", 5),
        Column("bytes", least=least),
        Column("FLOP/byte", 4),
        Column("parameters", 3),
        of_words("fate", 2),
        of_names("kernels"),
    )
    rows = [
        (
            printable(node.name, 60),
            printable(node.operator),
            node.amounts.flops.formula if formulas else count_text(node.amounts.flops.value),
            f"{node.amounts.flops.value / flops:.1%}",
            _moved(node, formulas),
            f"{node.amounts.intensity:.1f}",
            count_text(node.parameters),
            node.fate,
            _names(node.kernels),
        )
        for node in chosen[: top or None]
    ]
    show.table("", columns, rows, _more(len(chosen), len(rows), "nodes"))


def _moved(row: KernelAnalysis | NodeAnalysis, formulas: bool) -> str:
    a = row.amounts
    return f"{a.read.formula} + {a.written.formula}" if formulas else bytes_text(a.moved)


def _names(names: Sequence[str]) -> str:
    told = " ".join(printable(name, 40) for name in names[:2])
    return f"{told} and {len(names) - 2} more" if len(names) > 2 else told or "-"


def _more(every: int, told: int, what: str) -> list[str]:
    return [f"and {every - told} more {what}: --top 0 for all"] if every > told else []


def count_text(count: int) -> str:
    """A number for people: `4.09 G`."""
    value = float(count)
    for unit in ("", " k", " M", " G", " T"):
        if abs(value) < 999.5 or unit == " T":
            return f"{value:.0f}" if not unit else f"{value:.3g}{unit}"
        value /= 1000
    raise AssertionError("unreachable")

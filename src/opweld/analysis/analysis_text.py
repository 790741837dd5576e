"""An analysis as text: totals, memory, the tables of kernels and nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from opweld.account.summary import bytes_text, seconds_text
from opweld.analysis.analysis import Analysis, KernelAnalysis, NodeAnalysis, Totals
from opweld.display import Piece, Table
from opweld.ledger import printable
from opweld.table import Column, of_names, of_words

SORTS = ("time", "flops", "bytes", "parameters", "order")
"""Keys for sorting rows, largest first, except `order`, which is that of the model."""

_FORMULA = 12
"""The least width of formulas in narrow tables."""

_SCREEN = 12
"""The number of kernels that an analysis displays by default."""


def pieces_of(found: Analysis) -> list[Piece]:
    """The default display of an analysis."""
    kernels, more = kernel_table(found, top=_SCREEN)
    tail = [f"{more}: frame() has all"] if more else []
    return [head_text(found), totals_table(found), memory_text(found), kernels, *tail]


def head_text(found: Analysis, model: str = "", size: int | None = None) -> str:
    """A line: the model if named, its parameters, its bytes on disk if known, and sizes."""
    sizes = ", ".join(f"{printable(name)}={value}" for name, value in found.dims.items())
    return (
        (f"{printable(model)}: " if model else "")
        + f"{count_text(found.parameters)} parameters, {bytes_text(found.parameter_bytes)}"
        + ("" if size is None else f" ({bytes_text(size)} on disk)")
        + (f", at {printable(sizes, 200)}" if sizes else "")
    )


def totals_table(found: Analysis) -> Table:
    """Totals of all nodes and all kernels: before and after fusion."""
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
    return Table(columns, (_total("before fusion", found.before), _total("after fusion", found.after)))


def memory_text(found: Analysis) -> str:
    """Two lines: the memory of a run, and what training would take."""
    memory = found.memory
    arena = "" if memory.arena is None else f"{bytes_text(memory.arena)} of memory for values; "
    t = found.training
    return (
        f"memory: {arena}{bytes_text(memory.live)} are live at one time at most, all values together would take "
        f"{bytes_text(memory.tensors)}; weights {bytes_text(memory.weights)}\n"
        f"training in float32 would take {bytes_text(t.total)}: weights {bytes_text(t.weights)}, gradients "
        f"{bytes_text(t.gradients)}, Adam {bytes_text(t.optimizer)}, activations {bytes_text(t.activations.value)}"
    )


def _total(name: str, totals: Totals) -> tuple[str, ...]:
    a = totals.amounts
    counts = (a.flops, a.macs, a.special, a.integer)
    moved = (bytes_text(a.read.value), bytes_text(a.written.value))
    return (name, f"{totals.launches:,}", *(count_text(c.value) for c in counts), *moved, f"{a.intensity:.1f}")


def kernel_table(found: Analysis, sort: str = "time", top: int = 25, formulas: bool = False) -> tuple[Table, str]:
    """The first `top` kernels, all if it is 0, and a text about the number of others."""
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
    rows = tuple(
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
    )
    return Table(columns, rows), _more(len(chosen), len(rows), "kernels")


def node_table(found: Analysis, sort: str = "time", top: int = 25, formulas: bool = False) -> tuple[Table, str]:
    """The first `top` nodes of the file, all if it is 0, and a text about the number of others."""
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
        of_words("outcome", 2),
        of_names("kernels"),
    )
    rows = tuple(
        (
            printable(node.name, 60),
            printable(node.operator),
            node.amounts.flops.formula if formulas else count_text(node.amounts.flops.value),
            f"{node.amounts.flops.value / flops:.1%}",
            _moved(node, formulas),
            f"{node.amounts.intensity:.1f}",
            count_text(node.parameters),
            node.outcome,
            _names(node.kernels),
        )
        for node in chosen[: top or None]
    )
    return Table(columns, rows), _more(len(chosen), len(rows), "nodes")


def _moved(row: KernelAnalysis | NodeAnalysis, formulas: bool) -> str:
    a = row.amounts
    return f"{a.read.formula} + {a.written.formula}" if formulas else bytes_text(a.moved)


def _names(names: Sequence[str]) -> str:
    told = " ".join(printable(name, 40) for name in names[:2])
    return f"{told} and {len(names) - 2} more" if len(names) > 2 else told or "-"


def _more(every: int, told: int, what: str) -> str:
    return f"and {every - told} more {what}" if every > told else ""


def count_text(count: int) -> str:
    """A rounded number: `4.09 G`."""
    value = float(count)
    for unit in ("", " k", " M", " G", " T"):
        if abs(value) < 999.5 or unit == " T":
            return f"{value:.0f}" if not unit else f"{value:.3g}{unit}"
        value /= 1000
    raise AssertionError("unreachable")

"""`opweld machine`: what this machine can do at most, measured once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from opweld.cli import arguments, show
from opweld.table import Column, of_words

if TYPE_CHECKING:
    from opweld.analysis.gpu import Gpu
    from opweld.analysis.machine import Figure, Machine, Pair

_DOUBTS = 6
"""How many doubts are shown; --json has all."""


def machine(
    json: arguments.JsonOption = None,
    again: Annotated[bool, typer.Option("--again", help="Measure, whatever is remembered.")] = False,
    threads: Annotated[
        int, typer.Option(metavar="N", min=0, help="Of the sums and copies; all processors where 0.")
    ] = 0,
) -> None:
    """Measure what this machine can do at most: arithmetic, bandwidth and latency of every level of memory.

    \b
    opweld machine              measured the first time, remembered from then on
    opweld machine --again      measure anew: something else ran the last time
    opweld machine --threads 4  the ceilings of four cores

    Measuring takes some ten seconds and wants the machine to itself. A figure is the median of its samples; its spread
    is what lies between the lowest tenth of them and the highest. What is remembered is for this processor alone.
    Of an NVIDIA GPU it tells copies, launches, and matrix products where PyTorch is.
    """
    from opweld.analysis.ceilings import measure
    from opweld.analysis.gpu import gpus
    from opweld.analysis.machine import Machine

    found = None if again else Machine.remembered(threads=threads or 0)
    remembered = found is not None
    if found is None:
        with show.progress() as progress:
            found = measure(threads or 0, progress)
        found.remember()
    cards = gpus(again)
    if json is not None:
        told = found.to_json()
        if cards:
            told["gpus"] = [card.to_json() for card in cards]
        show.write_json(told, json)
        if str(json) == "-":
            return
    _show(found, remembered)
    for card in cards:
        print()
        _show_gpu(card)


def _show(found: Machine, remembered: bool) -> None:
    when = datetime.fromisoformat(found.measured).strftime("%Y-%m-%d %H:%M UTC")
    told = "remembered from" if remembered else "measured"
    title = f"{found.processor}: {found.target}, {_threads(found.threads)}, {told} {when}"
    units = {"int8": _operations}
    rows = [_row(f"{kind} arithmetic", pair, units.get(kind, _flops)) for kind, pair in found.compute.items()]
    for level in found.levels:
        size = f" ({show.byte_count(level.bytes)})" if level.bytes else ""
        rows.append(_row(f"{level.name} read{size}", level.read, _bandwidth))
        rows.append(_row(f"{level.name} write", level.write, _bandwidth))
        rows.append((f"{level.name} latency", _duration(level.latency), "-", _spread(level.latency)))
    rows.append(("barrier", "-", _duration(found.barrier), _spread(found.barrier)))
    columns = (of_words("what"), Column("one core", 1), Column("all threads"), Column("spread", 2))
    show.table(title, columns, rows)
    print()
    ranks = range(2 * len(found.levels) - 1, 0, -2)  # what fits the first cache is bound by nothing that lies further
    columns = [of_words("operations a byte")]
    for level, rank in zip(found.levels, ranks, strict=True):
        columns += [Column(f"{level.name} one", rank), Column(f"{level.name} all", rank - 1)]
    ridges = [
        (kind, *(f"{found.ridge(kind, level, n):.3g}" for level in found.levels for n in (1, found.threads)))
        for kind in found.compute
    ]
    show.table("", columns, ridges, ("above it a kernel that reads from that level is bound by its arithmetic",))
    print()
    _show_sure(found, remembered)


def _show_gpu(gpu: Gpu) -> None:
    has = gpu.properties
    when = datetime.fromisoformat(gpu.measured).strftime("%Y-%m-%d %H:%M UTC")
    size = f"{has.multiprocessors} multiprocessors, {show.byte_count(has.memory)}"
    title = f"{has.name}: sm_{has.arch}, {size}, measured {when}"
    rows = [(f"{kind} matrix products", _flops(rate.value), _spread(rate)) for kind, rate in gpu.matrix.items()]
    rows += [
        ("copy, read and written", _bandwidth(gpu.copy.value), _spread(gpu.copy)),
        ("copy from the host", _bandwidth(gpu.to_device.value), _spread(gpu.to_device)),
        ("copy to the host", _bandwidth(gpu.to_host.value), _spread(gpu.to_host)),
        ("launch", _duration(gpu.launch), _spread(gpu.launch)),
        ("launch in a graph", _duration(gpu.graph_launch), _spread(gpu.graph_launch)),
    ]
    show.table(title, (of_words("what"), Column("at most"), Column("spread", 1)), rows)


def _show_sure(found: Machine, remembered: bool) -> None:
    show.text(f"sure: {found.sure}")
    for doubt in found.doubts[:_DOUBTS]:
        show.text(f"  {doubt}")
    if len(found.doubts) > _DOUBTS:
        print(f"  and {len(found.doubts) - _DOUBTS} more, which --json names")
    if found.sure == "low":
        show.text("  something else ran meanwhile: measure --again when the machine is quiet")
    for note in found.notes:
        show.text(f"note: {note}")
    if remembered:
        print("--again measures anew")


def _row(what: str, pair: Pair, unit: Callable[[float], str]) -> tuple[str, str, str, str]:
    spread = max(pair.one, pair.all, key=lambda figure: figure.spread)
    return what, unit(pair.one.value), unit(pair.all.value), _spread(spread)


def _flops(value: float) -> str:
    return f"{value / 1e9:.0f} GFLOP/s"


def _operations(value: float) -> str:
    return f"{value / 1e9:.0f} GOP/s"


def _bandwidth(value: float) -> str:
    return f"{value / 1e9:.1f} GB/s"


def _duration(figure: Figure) -> str:
    return f"{figure.value * 1e9:.3g} ns"


def _spread(figure: Figure) -> str:
    return f"{figure.spread:.0%}"


def _threads(count: int) -> str:
    return "1 thread" if count == 1 else f"{count} threads"

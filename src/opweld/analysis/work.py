"""The work of a kernel at given sizes, from its costs and its prediction."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from opweld.analysis.bound import KernelWork
from opweld.analysis.costs import Evaluation
from opweld.record import KernelEntry, Predicted

THREAD_S: Final = 1e-6
"""The least work for a thread of its own, as in runtime/c/divide.c (NANOSECONDS_PER_THREAD)."""


def work_of(entry: KernelEntry, evaluation: Evaluation, threads: int | None, most: int = 1) -> KernelWork:
    """The work of a kernel on this many threads; if None, on as many of `most` as it is divided among. Predictions
    for the expected sizes are scaled with operations and bytes."""
    amounts = evaluation.amounts([entry.costs])
    made = KernelWork(
        kind=entry.name.partition("_")[2],
        flops=amounts.flops.value,
        special=amounts.special.value,
        read=amounts.read.value,
        written=amounts.written.value,
        predicted=_predicted(entry, evaluation, amounts.moved),
        threads=max(1, threads or 1),
        computes=entry.computes,
        products=amounts.integer.value if entry.computes == "int8" else 2 * amounts.macs.value,
    )
    return made if threads is not None else replace(made, threads=_repaid(made, most))


def _repaid(work: KernelWork, most: int) -> int:
    """The threads that runtime/c/divide.c would give a kernel, by its seconds; a recurrence is one piece."""
    return 1 if work.kind == "scan" else max(1, min(most, int((work.seconds - work.predicted.launch) / THREAD_S)))


def _predicted(entry: KernelEntry, evaluation: Evaluation, bytes_moved: int) -> Predicted:
    costs, p = entry.costs, entry.predicted
    operations = evaluation.growth(costs.flops or costs.integer or costs.written)
    moved = bytes_moved / entry.bytes if entry.bytes else 1.0
    return Predicted(
        arithmetic=p.arithmetic * operations,
        dependency=p.dependency * operations,
        traffic=p.traffic * moved,
        launch=p.launch,
        l2=p.l2 * moved,
        l3=p.l3 * moved,
        dram=p.dram * moved,
    )

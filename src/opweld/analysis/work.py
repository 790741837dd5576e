"""What a kernel has to do at sizes, as far as its costs and its prediction tell."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from opweld.analysis.bound import KernelWork
from opweld.analysis.costs import Evaluation
from opweld.record import KernelEntry, Predicted

THREAD_S: Final = 1e-6
"""Work that repays a thread of its own, as runtime/c/divide.c has it (NANOSECONDS_PER_THREAD)."""


def work_of(entry: KernelEntry, evaluation: Evaluation, threads: int | None, most: int = 1) -> KernelWork:
    """The work of a kernel on so many threads; where that is None, on those of `most` that it would repay. What is
    predicted for the expected sizes grows as operations and bytes do."""
    amounts = evaluation.amounts([entry.costs])
    made = KernelWork(
        kind=entry.name.partition("_")[2],
        flops=amounts.flops.value,
        special=amounts.special.value,
        read=amounts.read.value,
        written=amounts.written.value,
        predicted=_predicted(entry, evaluation, amounts.moved),
        threads=max(1, threads or 1),
    )
    return made if threads is not None else replace(made, threads=_repaid(made, most))


def _repaid(work: KernelWork, most: int) -> int:
    """The threads that runtime/c/divide.c would give a kernel, as far as seconds tell; a recurrence is one piece."""
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

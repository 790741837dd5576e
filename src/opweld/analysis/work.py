"""What a kernel has to do at sizes, as far as its costs and its prediction tell."""

from __future__ import annotations

from opweld.analysis.bound import Work
from opweld.analysis.costs import Evaluation
from opweld.record import KernelEntry, Predicted


def work_of(entry: KernelEntry, evaluation: Evaluation, threads: int) -> Work:
    """The work of a kernel on so many threads. What is predicted for the expected sizes grows as operations and bytes
    do."""
    amounts = evaluation.amounts([entry.costs])
    return Work(
        kind=entry.name.partition("_")[2],
        flops=amounts.flops.value,
        special=amounts.special.value,
        read=amounts.read.value,
        written=amounts.written.value,
        predicted=_predicted(entry, evaluation, amounts.moved),
        threads=max(1, threads),
    )


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

"""The bottleneck of each kernel of a profile, as measured and as predicted."""

from __future__ import annotations

from collections.abc import Mapping

from opweld.account.account import Account
from opweld.analysis.bound import bound_of, disagreement
from opweld.analysis.costs import evaluations
from opweld.analysis.machine import Machine
from opweld.analysis.profile import Judge, Judgement, KernelProfile
from opweld.analysis.work import work_of


def judge_of(account: Account, machine: Machine, sizes: Mapping[str, int]) -> Judge:
    """Judges the kernels of a compilation, run at these sizes of dims, by the ceilings of a machine. Kernels that a run
    executes several times are skipped, since their sizes may differ."""
    entries = {(v.name, kernel.name): kernel for v in account.record.variants for kernel in v.kernels}
    evaluated = evaluations(account.record, sizes)

    def judge(kernel: KernelProfile) -> Judgement:
        entry, found = entries.get((kernel.variant, kernel.name)), evaluated.get(kernel.variant)
        if kernel.times > 1 or entry is None or found is None or not kernel.seconds.median:
            return Judgement()
        work = work_of(entry, found, _threads(kernel))
        measured = bound_of(work, machine, kernel.seconds.median, kernel.waiting)
        predicted = bound_of(work, machine)
        said = disagreement(predicted, measured, work.seconds, kernel.seconds.median)
        return Judgement(measured, predicted, said)

    return judge


def _threads(kernel: KernelProfile) -> int:
    """The threads that a kernel's part of the run occupies: all of its phase's, if kernels run concurrently."""
    return max(1, kernel.threads, round((kernel.busy + kernel.waiting) / kernel.seconds.median))

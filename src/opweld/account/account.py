"""The account of a compilation: decisions, savings and near misses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from opweld.account.amounts import Amounts
from opweld.account.misses import Miss, misses_of
from opweld.account.outcomes import ALONE, FUSED, Outcomes
from opweld.ledger import Ledger
from opweld.record import KernelEntry, Record
from opweld.schedules_file import SchedulesFile


@dataclass(frozen=True)
class RuleCount:
    """The decisions of one rule: how many took another alternative than the baseline, of how many; and savings, if
    counted."""

    rule: str
    taken: int
    decisions: int
    bytes: int | None
    seconds: float | None


@dataclass(frozen=True, eq=False)
class Account:
    """The records of a compilation: every decision, the schedules, the nodes of the file and the kernels."""

    ledger: Ledger
    schedules: SchedulesFile
    record: Record

    @cached_property
    def amounts(self) -> Amounts:
        """Amounts as numbers."""
        return Amounts(self.record)

    @cached_property
    def outcomes(self) -> Outcomes:
        """The outcome of each node."""
        return Outcomes(self.record, self.ledger)

    @cached_property
    def misses(self) -> list[Miss]:
        """Near misses, most expensive first."""
        return misses_of(self.ledger, self.record, self.outcomes, self.amounts)

    @cached_property
    def kernels(self) -> tuple[KernelEntry, ...]:
        """The kernels of a typical run: those of the likeliest variant of each segment."""
        return tuple(kernel for variant in self.record.usual for kernel in variant.kernels)

    @property
    def seconds(self) -> float:
        """The predicted seconds of a typical run on one core."""
        return sum(kernel.seconds for kernel in self.kernels)

    @property
    def bytes(self) -> int:
        """The least bytes that a typical run reads and writes."""
        return sum(kernel.bytes for kernel in self.kernels)

    @property
    def sizes(self) -> Mapping[str, int]:
        """The sizes assumed by predictions."""
        return {name: size for variant in self.record.usual for name, size in variant.sizes.items()}

    @property
    def fused_nodes(self) -> float | None:
        """The fraction of computed nodes that share a kernel with others; None if there are none."""
        counts = self.outcomes.counts
        computed = counts.get(FUSED, 0) + counts.get(ALONE, 0)
        return counts.get(FUSED, 0) / computed if computed else None

    @property
    def fused_time(self) -> float | None:
        """The fraction of the predicted time in kernels of several nodes; None without predictions."""
        fused = sum(kernel.seconds for kernel in self.kernels if len(set(kernel.nodes)) > 1)
        return fused / self.seconds if self.seconds else None

    @cached_property
    def rules(self) -> list[RuleCount]:
        """The decisions by rule, in order of first use. Savings are those of memory traffic between kernels, by
        fusion."""
        usual = {"", *(variant.name for variant in self.record.usual)}
        made: list[RuleCount] = []
        for rule, (taken, total) in self.ledger.counts().items():
            fired = [d for d in self.ledger if d.rule == rule and d.fired and d.stage == "fuse" and d.variant in usual]
            counted = [b for d in fired if (b := self.amounts.bytes_saved(d)) is not None]
            seconds = [s for d in fired if (s := self.amounts.seconds_saved(d)) is not None]
            made.append(
                RuleCount(rule, taken, total, sum(counted) if counted else None, sum(seconds) if seconds else None)
            )
        return made

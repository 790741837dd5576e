"""A compilation as it is told to people and to programs: what was done, what it saves, what nearly was."""

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
    """Decisions of one rule: how many took more than their baseline, of how many; what that saves, where counted."""

    rule: str
    taken: int
    decisions: int
    bytes: int | None
    seconds: float | None


@dataclass(frozen=True, eq=False)
class Account:
    """What a compilation left: every decision, the schedules, the nodes of the file and the kernels."""

    ledger: Ledger
    schedules: SchedulesFile
    record: Record

    @cached_property
    def amounts(self) -> Amounts:
        """Amounts as numbers."""
        return Amounts(self.record)

    @cached_property
    def outcomes(self) -> Outcomes:
        """What became of each node."""
        return Outcomes(self.record, self.ledger)

    @cached_property
    def misses(self) -> list[Miss]:
        """Near misses, most expensive first."""
        return misses_of(self.ledger, self.record, self.outcomes, self.amounts)

    @cached_property
    def kernels(self) -> tuple[KernelEntry, ...]:
        """The kernels of a usual run: those of the likeliest variant of each segment."""
        return tuple(kernel for variant in self.record.usual for kernel in variant.kernels)

    @property
    def seconds(self) -> float:
        """What a usual run is predicted to take on one core."""
        return sum(kernel.seconds for kernel in self.kernels)

    @property
    def bytes(self) -> int:
        """What a usual run must read and write at least."""
        return sum(kernel.bytes for kernel in self.kernels)

    @property
    def sizes(self) -> Mapping[str, int]:
        """The sizes at which all of this is predicted."""
        return {name: size for variant in self.record.usual for name, size in variant.sizes.items()}

    @property
    def fused_nodes(self) -> float | None:
        """The part of the nodes that kernels compute that share one with others; None where there are none."""
        counts = self.outcomes.counts
        computed = counts.get(FUSED, 0) + counts.get(ALONE, 0)
        return counts.get(FUSED, 0) / computed if computed else None

    @property
    def fused_time(self) -> float | None:
        """The part of the predicted time that goes to kernels of several nodes; None where nothing is predicted."""
        fused = sum(kernel.seconds for kernel in self.kernels if len(set(kernel.nodes)) > 1)
        return fused / self.seconds if self.seconds else None

    @cached_property
    def rules(self) -> list[RuleCount]:
        """The decisions by rule, in order of first use. Savings are those of fusion: of traffic between kernels."""
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

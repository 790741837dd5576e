"""Asks the ledger for the fields of a schedule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from opweld.ledger import Alternative, Ledger
from opweld.schedule.expected import Expected
from opweld.target import Target


@dataclass(frozen=True)
class Choice:
    """Who asks: the graph nodes and values that a schedule is about, and what costs are predicted from.

    Attributes:
        site: graph nodes. subject: values, the same in every compilation; see `Ledger.decide`.
        expected: sizes of symbolic dims. target: the machine.
        field: the first output of the region, and the part of its schedule that is chosen.
    """

    ledger: Ledger
    site: tuple[str, ...]
    subject: tuple[str, ...]
    expected: Expected
    target: Target
    field: tuple[str, str] = ("", "")

    def about(self, *subject: str) -> Choice:
        """The same, about a part: a step, a piece, a loop."""
        return replace(self, subject=(*self.subject, *subject))

    def part(self, *names: str) -> Choice:
        """The same, for a part of the schedule: `member 0`; of that, `tensor 2`."""
        return replace(self, field=(self.field[0], " ".join(filter(None, (self.field[1], *names)))))

    def cheapest(
        self, rule: str, seconds: Mapping[str, float], reason: str, failed: Mapping[str, str] | None = None
    ) -> str:
        """The alternative of the fewest predicted seconds, or what a pin says; the first is the baseline.

        failed: alternatives that are not legal, and so have no price, and why."""
        refused = failed or {}
        priced = [Alternative(name, seconds=price) for name, price in seconds.items()]
        return self.ledger.decide(
            rule=rule,
            site=self.site,
            subject=self.subject,
            alternatives=[*priced, *map(Alternative, refused)],
            reason=reason,
            failed=refused,
            field=self.field,
        )

    def preferred(
        self,
        rule: str,
        names: Sequence[str],
        prefer: str,
        reason: str,
        failed: Mapping[str, int | str] | None = None,
    ) -> str:
        """The alternative that a measured rule prefers, or what a pin says; the first is the baseline."""
        return self.ledger.decide(
            rule=rule,
            site=self.site,
            subject=self.subject,
            alternatives=[Alternative(name) for name in names],
            prefer=prefer,
            reason=reason,
            failed=failed,
            field=self.field,
        )

"""Asks the ledger for the fields of a schedule."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from opweld.ledger import Alternative, Ledger
from opweld.schedule.expected import Expected
from opweld.schedule.schedule import MemberSchedule
from opweld.target import Target

TRIED = 4
"""Alternatives of a decision that are realised at most."""
NEAR = 1.1
"""How far beyond the least bound an alternative may lie that is realised: bounds leave out nearly the same of all."""
ABOVE = 1.001
"""What an alternative that was not realised is thought to take at least, by what the best one takes."""


@dataclass(frozen=True)
class Choice:
    """Who asks: the graph nodes and values that a schedule is about, and what costs are predicted from.

    Attributes:
        site: graph nodes. subject: values, the same in every compilation; see `Ledger.decide`.
        expected: sizes of symbolic dims. target: the machine.
        field: the first output of the region, and the part of its schedule that is chosen.
        price: seconds of the kernel, made and read, when its only member is computed so; None where it has others.
    """

    ledger: Ledger
    site: tuple[str, ...]
    subject: tuple[str, ...]
    expected: Expected
    target: Target
    field: tuple[str, str] = ("", "")
    price: Callable[[MemberSchedule], float] | None = None

    def about(self, *subject: str) -> Choice:
        """The same, about a part: a step, a piece, a loop."""
        return replace(self, subject=(*self.subject, *subject))

    def part(self, *names: str) -> Choice:
        """The same, for a part of the schedule: `member 0`; of that, `tensor 2`."""
        return replace(self, field=(self.field[0], " ".join(filter(None, (self.field[1], *names)))))

    def predicted(
        self, bounds: Mapping[str, float], made: Callable[[str], MemberSchedule], worth: Callable[[str], float]
    ) -> dict[str, float]:
        """Seconds of alternatives, by name; `made` gives the whole schedule that one stands for, `worth` a factor of
        its seconds that is near one and decides between equals.

        bounds: what each takes at least, nearly, by a closed form. Those that could be the best are realised and
        predicted, the most promising first, `TRIED` at most; the others keep their bounds, above the best."""
        bounds = {name: bound * worth(name) for name, bound in bounds.items()}
        if self.price is None:
            return dict(bounds)
        found: dict[str, float] = {}
        best, least = math.inf, min(bounds.values())
        for name in sorted(bounds, key=bounds.__getitem__)[:TRIED]:
            if bounds[name] > min(best, NEAR * least):
                break
            found[name] = self.price(made(name)) * worth(name)
            best = min(best, found[name])
        return {name: found.get(name, max(bound, best * ABOVE)) for name, bound in bounds.items()}

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

"""Chooses the fields of a schedule: alternatives are priced, and the ledger decides."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from opweld.ledger import Alternative, Ledger
from opweld.schedule.expected import Expected, weighed
from opweld.schedule.schedule import MemberSchedule
from opweld.target import Target

TRIED = 4
"""The most alternatives of a decision that are realised and predicted."""
NEAR = 1.1
"""An alternative is realised where its bound is at most this factor above the least: bounds of alternatives leave out
nearly the same costs."""
ABOVE = 1.001
"""The least factor of the best time that is recorded for an alternative that was not realised."""


@dataclass(frozen=True)
class Choice:
    """What a decision is about (graph nodes, values, a part of a schedule), and what its costs are predicted from.

    Attributes:
        site: graph nodes. subject: names of values, stable between compilations; see `Ledger.decide`.
        expected: sizes of symbolic dims. target: the machine.
        field: the region (by its first output), and the part of its schedule that is chosen.
        price: predicted seconds of the kernel with this schedule of its only member, realised, at the expected sizes
            and at others where any may come; None where the region has several members.
    """

    ledger: Ledger
    site: tuple[str, ...]
    subject: tuple[str, ...]
    expected: Expected
    target: Target
    field: tuple[str, str] = ("", "")
    price: Callable[[MemberSchedule], tuple[float, ...]] | None = None

    def about(self, *subject: str) -> Choice:
        """The same choice, narrowed to a part: a step, a piece, a loop."""
        return replace(self, subject=(*self.subject, *subject))

    def part(self, *names: str) -> Choice:
        """The same, for a part of the schedule: `member 0`; of that, `tensor 2`."""
        return replace(self, field=(self.field[0], " ".join(filter(None, (self.field[1], *names)))))

    def predicted(
        self, bounds: Mapping[str, float], made: Callable[[str], MemberSchedule], worth: Callable[[str], float]
    ) -> dict[str, float]:
        """Predicted seconds of alternatives, by name, with part of what each loses at other sizes (`ELSEWHERE`) added.
        `made` completes an alternative to a whole schedule; `worth` is a factor near one that breaks ties.

        bounds: nearly a lower bound of each, by a closed form. Alternatives that could be the best are realised and
        predicted in the order of their bounds, `TRIED` at most; the others keep their bounds, above the best."""
        bounds = {name: bound * worth(name) for name, bound in bounds.items()}
        if self.price is None:
            return dict(bounds)
        priced: dict[str, tuple[float, ...]] = {}
        found: dict[str, float] = {}
        best, least = math.inf, min(bounds.values())
        for name in sorted(bounds, key=bounds.__getitem__)[:TRIED]:
            if bounds[name] > min(best, NEAR * least):
                break
            priced[name] = self.price(made(name))
            own, *elsewhere = ({name: times[k] for name, times in priced.items()} for k in range(len(priced[name])))
            found = {name: seconds * worth(name) for name, seconds in weighed(own, elsewhere).items()}
            best = min(found.values())
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

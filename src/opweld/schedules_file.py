"""The contents of a schedules file: alternatives of decisions by id, and the fields of schedules by region.

`schedule/file.py` reads and writes the text. The ledger treats each entry as a pin: it is checked and recorded as one.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from opweld.errors import OptionError

Fields = Mapping[tuple[str, str], str]
"""The fields of a schedule as text, by part and rule; see `Schedule.fields`."""


@dataclass(frozen=True)
class PinnedDecision:
    """A line that pins a decision: its number, the variant, the rule and the alternative."""

    line: int
    variant: str
    rule: str
    alternative: str


@dataclass(frozen=True)
class PinnedRegion:
    """A line with the schedule of a region: its number, its text and the fields."""

    line: int
    text: str
    fields: Fields


@dataclass(frozen=True)
class SchedulesFile:
    """A schedules file.

    Attributes:
        source: its name in errors.
        decisions: by id. Where a variant has any, missing ones stay at their baseline: the compilation that wrote the
            file did not have them.
        regions: by variant and the label of the first output. The schedule of a missing region is chosen freely.
    """

    source: str
    decisions: Mapping[str, PinnedDecision]
    regions: Mapping[tuple[str, str], PinnedRegion]

    @cached_property
    def decided(self) -> frozenset[str]:
        """The variants whose decisions the file holds."""
        return frozenset(found.variant for found in self.decisions.values())

    def decision(self, variant: str, identity: str, baseline: str) -> tuple[str, str] | None:
        """(alternative, line of the file as text); None where the file does not fix it."""
        found = self.decisions.get(identity)
        if found is not None:
            return found.alternative, f"{self.source}, line {found.line}: decision {identity}"
        return (baseline, f"{self.source}: decision {identity}") if variant in self.decided else None

    def field(self, variant: str, region: str, part: str, rule: str, baseline: str) -> tuple[str, str] | None:
        """(alternative, line of the file as text) of a schedule's field; None where the file does not fix it.

        A line without loops leaves them free. Fields `keep` and `block` that it omits stay at the baseline. Raises
        OptionError when it has fewer members than the region."""
        found = self.regions.get((variant, region))
        if found is None:
            return None
        where = f"{self._where(found, region)}, {part}"
        if (part, rule) in found.fields:
            return found.fields[part, rule], where
        if part.startswith("loop "):
            return None
        if part == "block" or " tensor " in part:
            return baseline, where
        raise OptionError(f"{where}: the region has that member, but the line does not say how it is computed")

    def check_decisions(self, rules: Mapping[str, str]) -> None:
        """Raises OptionError for a decision that is not among these, or is of another rule; `rules` by id."""
        for identity, found in self.decisions.items():
            where = f"{self.source}, line {found.line}: decision {identity}"
            if identity not in rules:
                raise OptionError(f"{where}: the model has no such decision, compiled as the lines before it say")
            if rules[identity] != found.rule:
                raise OptionError(f"{where}: is of {rules[identity]}, not {found.rule}")

    def check_regions(self, made: Mapping[tuple[str, str], Fields]) -> None:
        """Raises OptionError where a line matches no region or was not followed; `made` by variant and label."""
        for (variant, region), found in self.regions.items():
            where = self._where(found, region)
            if (variant, region) not in made:
                known = [label for name, label in made if name == variant]
                close = difflib.get_close_matches(region, known, 3, 0.6)
                hint = f"did you mean {', '.join(map(repr, close))}?" if close else "`opweld explain` lists the regions"
                raise OptionError(f"{where}: variant {variant!r} has no such region; {hint}")
            actual = made[variant, region]
            if not any(part.startswith("loop ") for part, _ in found.fields):
                actual = {key: text for key, text in actual.items() if not key[0].startswith("loop ")}
            for part, rule in {**found.fields, **actual}:
                said, done = found.fields.get((part, rule)), actual.get((part, rule))
                if said != done:
                    what = f"{part} should have {rule} = {said or 'nothing'}, but has {done or 'nothing'}"
                    loops = "; without its loops, the line leaves them to the compiler" if part[:4] == "loop" else ""
                    raise OptionError(f"{where}: {what} as the region is now{loops}")

    def _where(self, found: PinnedRegion, region: str) -> str:
        return f"{self.source}, line {found.line}: region {region!r}"

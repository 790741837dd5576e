"""Amounts of decisions as numbers: symbolic ones at the expected sizes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from opweld.errors import OpweldError
from opweld.ledger import Alternative, Amount, Decision
from opweld.record import Record
from opweld.schedule.expected import Expected
from opweld.tensor.dim import Symbol
from opweld.tensor.parse import parse_size


class Amounts:
    """Evaluates amounts of a compilation."""

    def __init__(self, record: Record) -> None:
        self._sizes = {variant.name: variant.sizes for variant in record.variants}

    @cached_property
    def _symbols(self) -> Mapping[str, tuple[Mapping[str, Symbol], Expected]]:
        found: dict[str, tuple[Mapping[str, Symbol], Expected]] = {}
        for variant, sizes in self._sizes.items():
            symbols = {name: Symbol(name, None) for name in sizes}
            found[variant] = symbols, Expected({symbols[name]: size for name, size in sizes.items()})
        return found

    def count(self, amount: Amount, variant: str) -> int | None:
        """A number of bytes or operations; None if not counted."""
        if not isinstance(amount, str):
            return amount
        if variant not in self._symbols:
            return None
        symbols, expected = self._symbols[variant]
        try:
            return expected(parse_size(amount, symbols))
        except OpweldError:
            return None  # a size known at run time only

    def bytes_saved(self, decision: Decision) -> int | None:
        """Bytes of memory traffic saved by the alternative taken, or else by the best; None if not counted."""
        base, others = _compared(decision)
        counts = [self.count(a.bytes, decision.variant) for a in others]
        known = [count for count in counts if count is not None]
        start = self.count(base.bytes, decision.variant)
        return start - min(known) if start is not None and known else None

    def seconds_saved(self, decision: Decision) -> float | None:
        """Predicted seconds saved, likewise."""
        base, others = _compared(decision)
        known = [a.seconds for a in others if a.seconds is not None]
        return base.seconds - min(known) if base.seconds is not None and known else None


def _compared(decision: Decision) -> tuple[Alternative, list[Alternative]]:
    """The baseline, and the alternatives that it is compared with."""
    others = [a for a in decision.alternatives[1:] if not decision.fired or a.name == decision.taken]
    return decision.alternatives[0], others

"""Programs that are compiled once more for a size at which decisions would be others.

A variant is right for all sizes that its guards let through, and decided for those that are expected. Where decisions
say that another alternative would take less at another size (`ledger.Crossover`), the program is compiled for that one
too, with the number in the symbol's place: a session takes the first variant whose guards hold. It stores its weights
as the other one does, so that they are there once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from opweld.ledger import Alternative, Ledger
from opweld.tensor.fixed import fixed
from opweld.tensor.program import TensorProgram


def versions(program: TensorProgram, ledger: Ledger) -> Sequence[TensorProgram]:
    """The programs to compile beside this one, whose decisions the ledger has just recorded, and to try before it; not
    yet simplified."""
    found = [d for d in ledger if d.variant == program.name and d.crossovers]
    made: list[TensorProgram] = []
    for source in program.symbols:
        symbol = source.symbol
        for size in sorted({c.size for d in found for c in d.crossovers if c.symbol == symbol.name}):
            about = [(d, c) for d in found for c in d.crossovers if (c.symbol, c.size) == (symbol.name, size)]
            where = f"{symbol.name} is {size}"
            only = fixed(program, symbol, size, f"this code is for runs in which {where}")
            choice = ledger.decide(
                rule="version.size",
                site=tuple(dict.fromkeys(node for d, _ in about for node in d.site)),
                subject=(symbol.name, str(size)),
                alternatives=(
                    Alternative("one", seconds=sum(c.taken for _, c in about)),
                    Alternative("apart", seconds=sum(c.seconds for _, c in about)),
                ),
                prefer="one" if only is None else "apart",
                reason=f"where {where}, {len(about)} decisions would be others; predicted of what they are about",
                failed={}
                if only is not None
                else {"apart": f"not all sizes of the program are possible where {where}"},
            )
            if choice == "apart" and only is not None:
                made.append(replace(only, name=f"{program.name}_{symbol.name}_{size}"))
    return made

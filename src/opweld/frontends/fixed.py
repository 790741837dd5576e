"""Dims of tensor programs fixed by a caller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opweld.errors import OptionError
from opweld.schedule.expected import dim_name
from opweld.tensor.program import TensorProgram


def symbol_sizes(programs: Sequence[TensorProgram], dims: Mapping[str, int]) -> dict[str, int]:
    """For each symbol, by name, its value for these sizes of dims; a symbol that is a quotient of a dim is named as the
    dim. Raises OptionError for an unknown dim, or a size that is not valid."""
    found: dict[str, int] = {}
    known: dict[str, None] = {}
    for source in (source for program in programs for source in program.symbols if not source.by_value):
        name, symbol = dim_name(source), source.symbol
        known[name] = None
        size = dims.get(name)
        if size is None:
            continue
        least = max(symbol.least or 0, 0) * source.divisor
        if size < least or size % source.divisor:
            multiple = "" if source.divisor == 1 else f" that {source.divisor} divides"
            raise OptionError(f"dim {name!r} is {size}, expected a size of at least {least}{multiple}")
        found[symbol.name] = size // source.divisor
    for name in dims:
        if name not in known:
            names = ", ".join(map(repr, known)) or "none"
            raise OptionError(f"no dim is called {name!r}; the dynamic dims of this model are {names}")
    return found

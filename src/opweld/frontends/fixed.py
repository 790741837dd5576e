"""Dims of tensor programs that a caller fixes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opweld.errors import OptionError
from opweld.schedule.expected import dim_name
from opweld.tensor.program import TensorProgram


def symbol_sizes(programs: Sequence[TensorProgram], dims: Mapping[str, int]) -> dict[str, int]:
    """By name of a symbol, the number that it is where these dims have these sizes; a symbol that is a quotient of a
    dim goes by the name of the dim. Raises OptionError for a dim that no program has, or a size that it cannot be."""
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

"""The inputs of a model as inference sees them: a symbol for each dynamic dim, and for each element of a fed shape."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from dataclasses import dataclass, field

import onnx_ir as ir

from opweld.errors import ModelError, OptionError
from opweld.frontend.assume import Assumptions
from opweld.frontend.infer import dtype_of
from opweld.ops.elements import make
from opweld.ops.fact import Fact
from opweld.tensor.dim import Dim, Symbol, as_dim
from opweld.tensor.dtype import DType
from opweld.tensor.program import SymbolSource

VALUE_LIMIT = 8
"""Integer inputs with more elements than this are data: their values never decide a shape."""

_NAME_LIMIT = 40


@dataclass
class Interface:
    """Facts of the graph's inputs, and where each symbol comes from: (input name, position, whether it is a value)."""

    facts: dict[ir.Value, Fact] = field(default_factory=dict[ir.Value, Fact])
    origins: dict[Symbol, tuple[str, int, bool]] = field(default_factory=dict[Symbol, tuple[str, int, bool]])

    def sources(self, assumptions: Assumptions, used: Set[Symbol]) -> tuple[SymbolSource, ...]:
        """Where symbols get their values when a shape is bound: all dims of inputs, and the values that are used."""
        sources: list[SymbolSource] = []
        replaced = assumptions.symbols
        for symbol, (name, position, by_value) in self.origins.items():
            for final, known in assumptions.divided.items():
                if known.base is symbol and final not in replaced:
                    sources.append(SymbolSource(final, name, position, by_value, known.divisor, known.reason))
            if symbol in used or (not by_value and symbol not in replaced):
                sources.append(SymbolSource(symbol, name, position, by_value))
        return tuple(sources)


def interface_of(graph: ir.Graph, dims: Mapping[str, int], by_value: Set[str]) -> Interface:
    """The interface of a graph with some dims fixed by the user; `by_value` names inputs whose elements are symbols.

    Named dims of one name are one symbol; unnamed, negative and `?` dims are symbols of their own. `dims` may name a
    symbol by its declared or its printed name. Raises OptionError for a name that no dim has.
    """
    found = Interface()
    named: dict[str, Symbol] = {}
    taken: set[str] = set()
    wanted = dict(dims)
    known: list[str] = []
    for name, size in dims.items():
        if size < 1:
            raise OptionError(f"dim {name!r} must be at least 1, got {size}")
    for value in graph.inputs:
        shape: list[Dim] = []
        assert value.name is not None
        for position, declared in enumerate(value.shape or ()):
            if isinstance(declared, int) and declared >= 0:
                shape.append(as_dim(declared))
                continue
            label = "" if isinstance(declared, int) else (declared.value or "").strip()
            anonymous = label in ("", "?", "-1", "None")
            symbol = None if anonymous else named.get(label)
            if symbol is None:
                symbol = Symbol(_fresh(f"{value.name}_{position}" if anonymous else label, taken))
                named[label] = symbol
                known.append(repr(symbol.name if anonymous else label))
            fixed = next(
                (size for key, size in dims.items() if key in (symbol.name, None if anonymous else label)), None
            )
            if fixed is not None:
                wanted.pop(label, None)
                wanted.pop(symbol.name, None)
                shape.append(as_dim(fixed))
                continue
            found.origins.setdefault(symbol, (value.name, position, False))
            shape.append(symbol.dim)
        found.facts[value] = _input_fact(value, tuple(shape), by_value, found, taken)
    if wanted:
        raise OptionError(
            f"no dim is called {next(iter(wanted))!r}; the dynamic dims of this model are {', '.join(known) or 'none'}"
        )
    return found


def may_be_shape(value: ir.Value) -> bool:
    """Whether an input is a small integer tensor, whose values may take part in shapes and conditions."""
    if value.dtype not in (ir.DataType.INT32, ir.DataType.INT64) or value.shape is None or len(value.shape) > 1:
        return False
    return all(isinstance(dim, int) and 0 <= dim <= VALUE_LIMIT for dim in value.shape)


def _input_fact(value: ir.Value, shape: tuple[Dim, ...], by_value: Set[str], found: Interface, taken: set[str]) -> Fact:
    assert value.name is not None
    dtype: DType = dtype_of(value.name, value.dtype)
    if value.name not in by_value:
        return Fact(dtype, shape)
    count = int(shape[0]) if shape else 1
    symbols = [Symbol(_fresh(f"{value.name}_value{i if shape else ''}", taken), None) for i in range(count)]
    for position, symbol in enumerate(symbols):
        found.origins[symbol] = (value.name, position, True)
    return Fact(dtype, shape, make(tuple(map(int, shape)), [symbol.dim for symbol in symbols]))


def _fresh(label: str, taken: set[str]) -> str:
    """A name of letters, digits and underscores that no other symbol has."""
    plain = re.sub(r"[^A-Za-z0-9]+", "_", label).strip("_")[:_NAME_LIMIT] or "dim"
    plain = plain if plain[0].isalpha() else f"dim_{plain}"
    name, number = plain, 2
    while name in taken:
        name, number = f"{plain}_{number}", number + 1
    taken.add(name)
    return name


def check_interface(graph: ir.Graph) -> None:
    """Refuses inputs that cannot be fed."""
    for value in graph.inputs:
        if value.shape is None:
            raise ModelError(f"input {value.name!r} has no declared rank. Declare its dims before export.")

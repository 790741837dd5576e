"""The values that exist when a segment begins, with a symbol for each dynamic dim and for each element of a small
integer value that determines a shape."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field

from opweld import ir
from opweld.errors import ModelError, OptionError
from opweld.frontend.assume import Assumptions
from opweld.frontend.values import dtype_of
from opweld.interface import ANONYMOUS, plain_name
from opweld.ops.elements import make
from opweld.ops.fact import Fact
from opweld.tensor.dim import Dim, Symbol, as_dim
from opweld.tensor.program import SymbolSource


@dataclass(frozen=True)
class Interface:
    """Facts of values that exist when a segment begins, and the source of each symbol: (value name, position, whether
    it is an element)."""

    facts: dict[ir.Value, Fact] = field(default_factory=dict[ir.Value, Fact])
    origins: dict[Symbol, tuple[str, int, bool]] = field(default_factory=dict[Symbol, tuple[str, int, bool]])
    names: dict[str, tuple[str, int, bool]] = field(default_factory=dict[str, tuple[str, int, bool]])

    def sources(self, assumptions: Assumptions, used: Set[Symbol], given: Set[str]) -> tuple[SymbolSource, ...]:
        """The sources of symbols when a shape is bound: all dims of the given values, and other used symbols."""
        sources: list[SymbolSource] = []
        replaced = assumptions.symbols
        for symbol, (name, position, by_value) in self.origins.items():
            for final, known in assumptions.divided.items():
                if known.base is symbol and final not in replaced and (name in given or final in used):
                    sources.append(SymbolSource(final, name, position, by_value, known.divisor, known.reason))
            if symbol in used or (name in given and not by_value and symbol not in replaced):
                sources.append(SymbolSource(symbol, name, position, by_value))
        return tuple(sources)

    def tracking(self, values: Iterable[ir.Value], facts: Mapping[ir.Value, Fact]) -> Interface:
        """With a symbol for each element of these values, which have these facts."""
        found = Interface(dict(self.facts), dict(self.origins), self.names)
        for value in values:
            fact, name = facts[value], value.name or ""
            count = int(fact.shape[0]) if fact.shape else 1
            elements: list[Dim] = []
            for position in range(count):
                origin = name, position, True
                symbol = Symbol(self.fresh(f"{name}_value{position if fact.shape else ''}", origin), None)
                found.origins[symbol] = origin
                elements.append(symbol.dim)
            found.facts[value] = Fact(fact.dtype, fact.shape, make(tuple(map(int, fact.shape)), elements))
        return found

    def sized(self, value: ir.Value, fact: Fact, free: Set[int]) -> Interface:
        """With a value whose dims at the free positions are symbols of their own."""
        found = Interface(dict(self.facts), dict(self.origins), self.names)
        shape = list(fact.shape)
        for position in free:
            origin = value.name or "", position, False
            symbol = Symbol(self.fresh(f"{value.name}_{position}", origin), 0)
            found.origins[symbol] = origin
            shape[position] = symbol.dim
        found.facts[value] = Fact(fact.dtype, tuple(shape))
        return found

    def fresh(self, label: str, origin: tuple[str, int, bool]) -> str:
        """A unique name, of letters, digits and underscores, for the symbol of a source."""
        plain = plain_name(label)
        name, number = plain, 2
        while self.names.setdefault(name, origin) != origin:
            name, number = f"{plain}_{number}", number + 1
        return name


def interface_of(graph: ir.Graph, dims: Mapping[str, int], states: Collection[str] = ()) -> Interface:
    """The inputs of a graph, some dims fixed by the user; dims that only those named `states` have may be 0.

    Named dims of one name are one symbol; unnamed, negative and `?` dims are symbols of their own. `dims` may name a
    symbol by its declared or its printed name. Raises OptionError for a name that no dim has.
    """
    found = Interface()
    named: dict[str, Symbol] = {}
    wanted, kept = dict(dims), kept_dims(graph, states)
    known: list[str] = []
    for name, size in dims.items():
        if size < 0:
            raise OptionError(f"dim {name!r} must not be negative, got {size}")
    for value in graph.inputs:
        shape: list[Dim] = []
        assert value.name is not None
        for position, declared in enumerate(value.shape or ()):
            if isinstance(declared, int) and declared >= 0:
                shape.append(as_dim(declared))
                continue
            label = name_of(declared)
            symbol = None if label is None else named.get(label)
            if symbol is None:
                origin = (value.name, position, False)
                least = 0 if (value.name in states if label is None else label in kept) else 1
                symbol = Symbol(found.fresh(f"{value.name}_{position}" if label is None else label, origin), least)
                if label is not None:
                    named[label] = symbol
                known.append(repr(symbol.name if label is None else label))
            fixed = next((size for key, size in dims.items() if key in (symbol.name, label)), None)
            if fixed is not None:
                wanted = {key: size for key, size in wanted.items() if key not in (label, symbol.name)}
                shape.append(as_dim(fixed))
                continue
            found.origins.setdefault(symbol, (value.name, position, False))
            shape.append(symbol.dim)
        found.facts[value] = Fact(dtype_of(value.name, value.dtype), tuple(shape))
    if wanted:
        raise OptionError(
            f"no dim is called {next(iter(wanted))!r}; the dynamic dims of this model are {', '.join(known) or 'none'}"
        )
    return found


def kept_dims(graph: ir.Graph, states: Collection[str]) -> frozenset[str]:
    """The names of dims that only states have: their lengths, which may be zero."""
    named: dict[bool, set[str]] = {True: set(), False: set()}
    for value in graph.inputs:
        for dim in value.shape or ():
            label = name_of(dim)
            if label is not None:
                named[value.name in states].add(label)
    return frozenset(named[True] - named[False])


def name_of(declared: int | str) -> str | None:
    """The name of a dynamic dim; None without one."""
    label = "" if isinstance(declared, int) else declared.strip()
    return None if label in ANONYMOUS else label


def check_interface(graph: ir.Graph) -> None:
    """Rejects inputs without a declared rank."""
    for value in graph.inputs:
        if value.shape is None:
            raise ModelError(f"input {value.name!r} has no declared rank. Declare its dims before export.")

"""The assumptions of a variant: equal sizes, divisible sizes, outcomes of conditions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import gcd

from opweld.tensor.dim import (
    Atom,
    Axis,
    Dim,
    FloorDiv,
    Max,
    Min,
    Mod,
    Symbol,
    as_dim,
    atoms_of,
    nonnegative,
    symbols_of,
)
from opweld.tensor.program import Guard

MAX_DIVISOR = 1024
"""The largest number of which sizes are assumed to be multiples."""


@dataclass(frozen=True)
class Divided:
    """A symbol that is an input's number, the `base`, divided by a constant."""

    base: Symbol
    divisor: int
    reason: str


@dataclass(frozen=True)
class Assumptions:
    """Immutable; each method that adds one returns new assumptions.

    `symbols` replaces symbols by polynomials of the others; `equations` are remaining guards of kind "zero", from which
    `atoms` follows (an atom that equals a simpler polynomial); `decisions` are the other outcomes of conditions;
    `values` are guards on value symbols that were replaced. `general` assumptions do not assume divisibility of sizes;
    `unexpected` ones contain an unlikely outcome.
    """

    general: bool = False
    unexpected: bool = False

    symbols: Mapping[Symbol, Dim] = field(default_factory=dict[Symbol, Dim])
    divided: Mapping[Symbol, Divided] = field(default_factory=dict[Symbol, Divided])
    equations: tuple[Guard, ...] = ()
    decisions: tuple[Guard, ...] = ()
    values: tuple[Guard, ...] = ()
    atoms: Mapping[Atom, Dim] = field(default_factory=dict[Atom, Dim])

    def rewrite(self, dim: Dim) -> Dim:
        """The polynomial with the replaced symbols and atoms substituted."""
        if self.symbols:
            dim = dim.substitute(self.symbols)  # type: ignore[arg-type]
        for _ in range(8):
            if not self.atoms or not any(atom in self.atoms for atom in atoms_of(dim)):
                break
            dim = dim.substitute(self.atoms)
        return dim

    def replacing(self, symbol: Symbol, dim: Dim, reason: str) -> Assumptions:
        """With a symbol replaced everywhere. One that comes from a value remains a guard: its input must have that
        value.

        The dims of inputs need none, because every input must have the shape that the program gives it.
        """
        mapping: dict[Atom, Dim] = {symbol: dim}
        values = self.values
        known = self.divided.get(symbol, Divided(symbol, 1, ""))
        if known.base.least is None:
            values = (*values, Guard("zero", known.base.dim - dim * known.divisor, reason))
        symbols = {old: new.substitute(mapping) for old, new in self.symbols.items()}
        moved = replace(
            self,
            symbols={**symbols, symbol: dim},
            values=values,
            equations=tuple(_moved(guard, mapping) for guard in self.equations),
            decisions=tuple(_moved(guard, mapping) for guard in self.decisions),
        )
        return moved._solved()

    def dividing(self, symbol: Symbol, divisor: int, reason: str) -> Assumptions:
        """With a size symbol replaced by divisor times a new one."""
        known = self.divided.get(symbol, Divided(symbol, 1, ""))
        total = known.divisor * divisor
        fresh = Symbol(f"{known.base.name}_by_{total}")
        reasons = f"{known.reason}; {reason}" if known.reason else reason
        divided = {**self.divided, fresh: Divided(known.base, total, reasons)}
        return replace(self.replacing(symbol, fresh.dim * divisor, reason), values=self.values, divided=divided)

    def sized(self, symbol: Symbol, least: int, reason: str) -> Assumptions:
        """With a value symbol taken to be a size or a count: at least one, or at least zero."""
        size = Symbol(f"{symbol.name}_{'size' if least else 'count'}", least)
        moved = self.replacing(symbol, size.dim, reason)
        return replace(moved, values=self.values, divided={**self.divided, size: Divided(symbol, 1, reason)})

    def base(self, symbol: Symbol) -> Symbol:
        """The input's number from which a symbol was derived by `dividing` or `sized`; else the symbol itself."""
        known = self.divided.get(symbol)
        return symbol if known is None else known.base

    def equal(self, difference: Dim, reason: str) -> Assumptions:
        """With `difference == 0`: by replacing a symbol, by divisibility, or as a guard."""
        solved = _solve_symbol(difference)
        if solved is not None:
            return self.replacing(*solved, reason)
        factor = None if self.general else _divisor(difference)
        if factor is not None:
            return self.dividing(*factor, reason)
        return replace(self, equations=(*self.equations, Guard("zero", difference, reason)))._solved()

    @property
    def divides(self) -> bool:
        """Whether a size is assumed to be a multiple of a number."""
        return any(known.divisor > 1 for known in self.divided.values())

    def decided(self, kind: str, dim: Dim, outcome: bool, reason: str) -> Assumptions:
        """With a condition (`dim == 0` for kind "zero", `dim >= 0` for kind "least") assumed true or false."""
        if kind == "zero":
            if outcome:
                return self.equal(primitive(dim), reason)
            return replace(self, decisions=(*self.decisions, Guard("nonzero", dim, reason)))
        guard = Guard("least", dim if outcome else -dim - 1, reason)
        return replace(self, decisions=(*self.decisions, guard))

    def answer(self, kind: str, dim: Dim) -> bool | None:
        """The outcome of a condition under the assumptions; None if undetermined."""
        if kind == "zero":
            if self.states(dim):
                return True
            if any(guard.kind == "nonzero" and guard.dim in (dim, -dim) for guard in self.decisions):
                return False
            return False if self._implied(dim - 1) or self._implied(-dim - 1) else None
        if self._implied(dim):
            return True
        return False if self._implied(-dim - 1) else None

    def states(self, dim: Dim) -> bool:
        """Whether `dim == 0` is one of the equations."""
        return bool(self.equations) and (primitive(dim) in self._zeros or primitive(-dim) in self._zeros)

    @cached_property
    def _zeros(self) -> frozenset[Dim]:
        return frozenset(primitive(self.rewrite(guard.dim)) for guard in self.equations)

    def _implied(self, dim: Dim) -> bool:
        if nonnegative(dim):
            return True
        return any(guard.kind == "least" and nonnegative(dim - guard.dim) for guard in self.decisions)

    def guards(self) -> tuple[Guard, ...]:
        """Everything that must be checked when a shape is bound."""
        values = tuple(_fixed(guard, self.symbols) for guard in self.values)
        return (*values, *self.equations, *self.decisions)

    def contradiction(self) -> Guard | None:
        """A guard that no sizes satisfy; None if none is known."""
        for guard in self.guards():
            value = self.rewrite(guard.dim).constant if guard.kind != "zero" else guard.dim.constant
            if value is not None and not Guard(guard.kind, as_dim(value), "").holds({}):
                return guard
        return None

    def _solved(self) -> Assumptions:
        atoms: dict[Atom, Dim] = {}
        for guard in self.equations:
            dim = guard.dim.substitute(atoms) if atoms else guard.dim
            solved = _solve_atom(dim)
            if solved is not None:
                atoms = {
                    **{atom: right.substitute(dict([solved])) for atom, right in atoms.items()},
                    solved[0]: solved[1],
                }
        return replace(self, atoms=atoms)


def _moved(guard: Guard, mapping: Mapping[Atom, Dim]) -> Guard:
    return Guard(guard.kind, guard.dim.substitute(mapping), guard.reason)


def _fixed(guard: Guard, symbols: Mapping[Symbol, Dim]) -> Guard:
    """A guard `value - dim` whose value symbols are kept, while the sizes in it are replaced."""
    mapping: dict[Atom, Dim] = {s: d for s, d in symbols.items() if s.least is not None}
    return _moved(guard, mapping)


def primitive(dim: Dim) -> Dim:
    """The polynomial without the factors of all of its terms that are zero for empty values only: integers and
    sizes."""
    if not dim.terms:
        return dim
    common = [atom for atom in dim.terms[0][0] if _is_zero_for_empty_values_only(atom)]
    for monomial, _ in dim.terms[1:]:
        rest = list(monomial)
        kept: list[Atom] = []
        for atom in common:
            if atom in rest:
                rest.remove(atom)
                kept.append(atom)
        common = kept
    content = 0
    for _, coefficient in dim.terms:
        content = gcd(content, coefficient)
    total = as_dim(0)
    for monomial, coefficient in dim.terms:
        rest = list(monomial)
        for atom in common:
            rest.remove(atom)
        term = as_dim(coefficient // content)
        for atom in rest:
            term = term * atom.dim
        total = total + term
    return total


def _is_zero_for_empty_values_only(atom: Atom) -> bool:
    """Whether it is positive where all sizes in it are: a size, or `(n + 1) // 2`; not `n // 2` or `n % 2`."""
    positive: dict[Atom, Dim] = {s: s.dim + 1 for s in symbols_of(atom.dim) if s.least == 0}
    return nonnegative(atom.dim.substitute(positive) - 1)


def _solve_symbol(difference: Dim) -> tuple[Symbol, Dim] | None:
    """A symbol and the polynomial it must equal; value symbols first, then sizes, the last by name."""
    candidates = sorted(symbols_of(difference), key=lambda s: (s.least is None, s.name), reverse=True)
    for symbol in candidates:
        slope = difference.coefficient(symbol)
        if slope is None or slope.constant not in (1, -1):
            continue
        right = difference.without(symbol) * -int(slope)
        if symbol.least is None or nonnegative(right - symbol.least):
            return symbol, right
    return None


def _divisor(difference: Dim) -> tuple[Symbol, int] | None:
    """A size symbol and the smallest power of two such that multiples of it make the difference vanish."""
    divisor = 2
    while divisor <= MAX_DIVISOR:
        for symbol in sorted(symbols_of(difference), key=lambda s: s.name):
            if symbol.least is None:
                continue
            fresh = Symbol(f"{symbol.name}_by_{divisor}")
            if not difference.substitute({symbol: fresh.dim * divisor}).terms:
                return symbol, divisor
        divisor *= 2
    return None


def _solve_atom(difference: Dim) -> tuple[Atom, Dim] | None:
    """A division, remainder, minimum or maximum, and the polynomial that it must equal."""
    candidates = {a for m, _ in difference.terms if len(m) == 1 for a in m if isinstance(a, FloorDiv | Mod | Min | Max)}
    for atom in sorted(candidates, key=lambda a: (len(a.text), a.text), reverse=True):
        # Not an atom that also occurs in products: it would not equal a polynomial.
        slope = difference.coefficient(atom)
        if slope is None or slope.constant not in (1, -1):
            continue
        rest = difference.without(atom)
        if any(isinstance(other, Axis) for other in atoms_of(rest)):
            continue
        return atom, rest * -int(slope)
    return None

"""Integers: polynomials the same in every lane, or as vectors; which lanes exist; the check of run-time indices.

Divisions get names, as far out of the loops as their operands allow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from opweld.codegen.c.dependence import Dependence
from opweld.codegen.c.scope import Scopes
from opweld.codegen.c.vector import Assign, Convert, Expression, If, Infix, Name, Prefix, Return, call, chain, integer
from opweld.tensor.dim import (
    ONE,
    ZERO,
    Atom,
    Axis,
    Dim,
    FloorDiv,
    Max,
    Min,
    Mod,
    Monomial,
    Symbol,
    Value,
    as_dim,
    nonnegative,
)
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, cast

_INT64_MIN = -(1 << 63)


class Integers:
    """Writes polynomials in the scopes of one function. `run_time` names a checked run-time index, `reads`
    tells what the run-time indices of a polynomial load."""

    def __init__(
        self, scopes: Scopes, run_time: Callable[[Value], Name], reads: Callable[[Dim], frozenset[str]]
    ) -> None:
        self._scopes = scopes
        self._reads = reads
        self._run_time = run_time

    def value(self, dim: Dim) -> Expression:
        """The polynomial, the factors of its atoms made of sizes."""
        groups: dict[tuple[Atom, ...], Dim] = {}
        for monomial, coefficient in dim.terms:
            sizes = tuple(atom for atom in monomial if isinstance(atom, Symbol))
            rest = tuple(atom for atom in monomial if not isinstance(atom, Symbol))
            factor = as_dim(coefficient)
            for atom in sizes:
                factor = factor * atom.dim
            groups[rest] = groups.get(rest, as_dim(0)) + factor
        terms: list[tuple[bool, Expression]] = []
        for rest, factor in sorted(groups.items(), key=lambda item: len(item[0]) == 0):
            names: list[Expression] = [self.atom(atom) for atom in rest]
            constant = factor.constant
            negative = bool(terms) and constant is not None and constant < 0 and constant != _INT64_MIN
            shown = -factor if negative else factor
            if shown.constant != 1 or not names:
                names.append(self._size(shown))
            terms.append((negative, chain("*", *names)))
        return _sum(terms)

    def depth(self, dim: Dim) -> int:
        """The outermost block (index in the stack) where the polynomial can be computed."""
        return max((self.depth_of(monomial) for monomial, _ in dim.terms), default=0)

    def depth_of(self, monomial: Monomial) -> int:
        """`depth` of a term, whatever its coefficient."""
        return max(map(self._depth_of, monomial), default=0)

    def atom(self, atom: Atom) -> Name:
        """The name of an atom, defined now if it has none."""
        found = self._scopes.name_of(atom)
        if found is not None:
            return found
        if isinstance(atom, Value):
            return self._run_time(atom)
        if isinstance(atom, Symbol | Axis):
            raise KeyError(f"{atom} is not defined in this block")
        assert isinstance(atom, FloorDiv | Mod | Min | Max)
        reads = self._reads(atom.dim)
        found = self._scopes.find(atom)
        if found is not None:
            return found
        depth = self._depth_of(atom)
        value = self._pair(atom)
        name = self._scopes.define(atom, "const int64_t", self._scopes.numbered("i"), value, reads, depth)
        if not reads:
            self._scopes.stack[depth].atoms[atom] = name
        return name

    def positive(self, dim: Dim) -> Expression:
        """A comparison: the polynomial is >= 0, its constant on the right."""
        constant = dict(dim.terms).get((), 0)
        rest = dim - constant
        if constant and all(c < 0 for _, c in rest.terms):
            return Infix("<=", self.value(-rest), integer(constant))
        return Infix(">=", self.value(rest), integer(-constant))

    def all_positive(self, dims: Iterable[Dim]) -> Expression:
        """Whether no polynomial is negative."""
        return chain("&&", *map(self.positive, dims))

    def _size(self, factor: Dim) -> Expression:
        """A coefficient made of sizes: products and sums of them are named once, at the top."""
        if factor.constant is not None:
            return integer(factor.constant)
        if factor.atom is not None:
            return self.atom(factor.atom)
        key = ("size", factor)
        found = self._scopes.find(key)
        if found is not None:
            return found
        terms: list[tuple[bool, Expression]] = []
        for monomial, coefficient in factor.terms:
            names: list[Expression] = [self.atom(atom) for atom in monomial]
            if abs(coefficient) != 1 or not names:
                names.append(integer(abs(coefficient)))
            terms.append((coefficient < 0, chain("*", *names)))
        return self._scopes.define(key, "const int64_t", self._scopes.numbered("size"), _sum(terms), depth=0)

    def _depth_of(self, atom: Atom) -> int:
        if self._scopes.name_of(atom) is not None:
            return self._scopes.depth_of(atom)
        if isinstance(atom, Value):
            return self._scopes.current.depth
        if isinstance(atom, Symbol | Axis):
            raise KeyError(f"{atom} is not defined in this block")
        assert isinstance(atom, FloorDiv | Mod | Min | Max)
        if isinstance(atom, FloorDiv | Mod) and not nonnegative(atom.right - 1):
            return self._scopes.current.depth  # the divisor may be zero where this block is not entered
        return max(self.depth(atom.left), self.depth(atom.right))

    def _pair(self, atom: FloorDiv | Mod | Min | Max) -> Expression:
        left, right = self.value(atom.left), self.value(atom.right)
        if isinstance(atom, Min | Max):
            return call("opw_min" if isinstance(atom, Min) else "opw_max", left, right)
        if nonnegative(atom.left):
            return Infix("/" if isinstance(atom, FloorDiv) else "%", left, right)
        return call("opw_floordiv" if isinstance(atom, FloorDiv) else "opw_mod", left, right)


def _sum(terms: list[tuple[bool, Expression]]) -> Expression:
    """Terms added, or subtracted where they say so."""
    total: Expression | None = None
    for negative, term in terms:
        if total is None:
            total = Prefix("-", term) if negative else term
        else:
            total = Infix("-" if negative else "+", total, term)
    return integer(0) if total is None else total


@dataclass(frozen=True)
class Active:
    """Which lanes of a vector exist: all, the first `count`, or those of a mask."""

    count: Expression | None = None
    mask: Name | None = None


ALL = Active()

Evaluate = Callable[[Expr, Active], Expression]
"""Writes an expression of a tile program as a vector."""


class Indices:
    """Writes the indices of one function. `vector` and `scalar` write the values that run-time indices are made of."""

    def __init__(
        self, scopes: Scopes, dependence: Dependence, vector: Evaluate, scalar: Callable[[Expr], Expression]
    ) -> None:
        self.integers = Integers(scopes, self.run_time, dependence.dim_reads)
        self._scopes = scopes
        self._dependence = dependence
        self._vector = vector
        self._scalar = scalar

    def run_time(self, atom: Value) -> Name:
        """A run-time index that is the same in every lane, checked."""
        key = ("index", atom)
        found = self._scopes.find(key)
        if found is not None:
            return found
        value = self._scalar(cast(atom.expr, DType.I64))
        name = self._scopes.numbered("j")
        index = self._scopes.define(key, "const int64_t", name, value, self._dependence.reads(atom.expr))
        extent = self.integers.value(atom.extent)
        outside = Infix(">=", Convert("uint64_t", index), Convert("uint64_t", extent))
        self._fail_if(outside, "OPW_BAD_INDEX")
        return index

    def vector(self, dim: Dim, active: Active) -> Expression:
        """A polynomial as a vector of int64; run-time indices in it are checked."""
        if not self._dependence.dim_varies(dim) and (active.mask is None or not self._dependence.dim_reads(dim)):
            return call("opw_splat_i64", self.integers.value(dim))
        key = ("vector", dim, active)
        found = self._scopes.find(key)
        if found is not None:
            return found
        uniform, parts = ZERO, list[Expression]()
        for monomial, coefficient in dim.terms:
            factor = as_dim(coefficient)
            vectors: list[Expression] = []
            for atom in monomial:
                checked = active.mask is not None and self._dependence.dim_reads(atom.dim)
                if checked or self._dependence.dim_varies(atom.dim):
                    vectors.append(self._atom_vector(atom, active))
                else:
                    factor = factor * atom.dim
            if not vectors:
                uniform = uniform + factor
            else:
                scale = [] if factor is ONE else [self.integers.value(factor)]
                parts.append(chain("*", *vectors, *scale))
        if uniform is not ZERO:
            parts.append(self.integers.value(uniform))
        if len(parts) == 1 and isinstance(parts[0], Name):
            return parts[0]
        name = self._scopes.numbered("o")
        return self._scopes.define(key, "const vi64", name, chain("+", *parts), self._dependence.dim_reads(dim))

    def _atom_vector(self, atom: Atom, active: Active) -> Expression:
        if atom is self._dependence.lane:
            return call("opw_lane_i64")
        key = ("atom", atom, active)
        found = self._scopes.find(key)
        if found is not None:
            return found
        reads = self._dependence.dim_reads(atom.dim)
        name = self._scopes.numbered("o")
        if isinstance(atom, Value):
            value = self._vector(cast(atom.expr, DType.I64), active)
            index = self._scopes.define(key, "const vi64", name, value, reads)
            outside = call("opw_outside", index, self.integers.value(atom.extent))
            self.fail_where(outside, active, "OPW_BAD_INDEX")
            return index
        assert isinstance(atom, FloorDiv | Mod | Min | Max)
        left, right = self.vector(atom.left, active), self.vector(atom.right, active)
        if isinstance(atom, FloorDiv | Mod) and nonnegative(atom.left):
            pair: Expression = Infix("/" if isinstance(atom, FloorDiv) else "%", left, right)
        else:
            function = {FloorDiv: "floordiv", Mod: "mod", Min: "min", Max: "max"}[type(atom)]
            pair = call(f"opw_index_{function}", left, right)
        return self._scopes.define(key, "const vi64", name, pair, reads)

    # ---- which lanes -------------------------------------------------------------------------------------------------

    def lanes_mask(self, active: Active) -> Name | None:
        """The mask of the lanes that exist; None for all."""
        if active.mask is not None or active.count is None:
            return active.mask
        key = ("first", active.count)
        found = self._scopes.find(key)
        if found is not None:
            return found
        first = call("opw_first_lanes", active.count)
        return self._scopes.define(key, "const vi32", self._scopes.numbered("m"), first)

    def divided(self, guards: Sequence[Dim], active: Active) -> tuple[tuple[Dim, ...], tuple[Dim, ...]]:
        """(guards to test once for all lanes, those to test for each). What reads memory is tested for each that
        exists, where some may not: for none of them there need be anything to read."""
        masked = active.mask is not None
        about = self._dependence
        each = tuple(g for g in guards if about.dim_varies(g) or (masked and about.dim_reads(g)))
        return tuple(g for g in guards if g not in each), each

    def restrict(self, active: Active, guards: tuple[Dim, ...]) -> Active:
        """The lanes for which, in addition, no guard is negative."""
        if not guards:
            return active
        masks: list[Expression] = [call("opw_inside", self.vector(guard, active)) for guard in guards]
        lanes = self.lanes_mask(active)
        return Active(mask=self.mask(chain("&", *masks, *(() if lanes is None else (lanes,)))))

    def mask(self, value: Expression) -> Name:
        """A name for a mask."""
        if isinstance(value, Name):
            return value
        key = ("mask", value)
        found = self._scopes.find(key)
        return found or self._scopes.define(key, "const vi32", self._scopes.numbered("m"), value)

    def fail_where(self, mask: Expression, active: Active, code: str) -> None:
        """Ends the kernel with an error when the mask is set for a lane that exists."""
        lanes = self.lanes_mask(active)
        self._fail_if(call("opw_any", mask if lanes is None else Infix("&", mask, lanes)), code)

    def _fail_if(self, condition: Expression, code: str) -> None:
        self._scopes.add(If(condition, (Assign(Prefix("*", Name("error")), Name(code)), Return())))

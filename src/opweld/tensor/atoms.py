"""The variables of polynomials: sizes, loop indices, checked run-time integers, and a base class for divisions.

Properties of an atom, such as its bounds, are methods, so that polynomials and proofs need not know the kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar, TypeVar
from zlib import crc32

from opweld.tensor.intern import current
from opweld.tensor.polynomial import SAMPLES, ZERO, Dim, DimLike, Monomial, Sampled, TooLargeError, as_dim, make

if TYPE_CHECKING:
    from opweld.tensor.expr import Expr

Made = TypeVar("Made", bound="Atom")

MAX_TEXT = 4000
"""The most characters of a printed division, remainder, minimum or maximum, which bounds its expression tree."""


class Atom:
    """An indivisible integer. Interned: equality is identity.

    `key` is its position in the order of atoms, by kind (`rank`) first; `text` is its printed form."""

    __slots__ = ("_dim", "key", "samples", "text")
    rank: ClassVar[int] = 0
    is_remainder: ClassVar[bool] = False
    key: tuple[int, str, int]
    text: str
    samples: Sampled | None
    """Cached result of `sampled`, None before the first call."""
    _dim: Dim | None

    def __new__(cls: type[Made], *_: object) -> Made:
        """An atom whose fields are still to be set."""
        made = object.__new__(cls)
        made._dim = made.samples = None
        return made

    def __repr__(self) -> str:
        return self.text

    @property
    def dim(self) -> Dim:
        """The polynomial that is just this atom."""
        found = self._dim
        if found is None:
            found = self._dim = make({(self,): 1})
        return found

    def inside(self) -> frozenset[Atom]:
        """The atom and all atoms inside it; for a run-time value, those of its index expressions too."""
        return frozenset((self,))

    def substituted(self, mapping: Mapping[Atom, Dim], on_value: Callable[[Expr], Expr] | None) -> Dim:
        """See `Dim.substitute`."""
        found = mapping.get(self)
        return self.dim if found is None else found

    def evaluated(self, values: Mapping[Atom, int], on_value: Callable[[Value], int] | None) -> int:
        """See `Dim.evaluate`."""
        if self not in values:
            raise KeyError(f"no value for {self}")
        return values[self]

    def sampled(self) -> Sampled:
        """Its values at a few points, each of which sizes and indices may have at the same time; None where it has none
        there. The first point has the least sizes, the others large ones; indices are first, last and first."""
        found = self.samples
        if found is None:
            found = self.samples = self._sampled()
        return found

    def _sampled(self) -> Sampled:
        return (None,) * SAMPLES

    def lower_bounds(self) -> list[Dim]:
        """Lower bounds of the atom, each valid alone."""
        return []

    def upper_bounds(self) -> list[Dim]:
        """Upper bounds of the atom, each valid alone."""
        return []

    def alternatives(self) -> list[Dim]:
        """Values one of which the atom always has; none when nothing is known."""
        return []

    def lower_bounds_beside(self, slope: Dim, rest: Dim) -> list[Dim]:
        """Lower bounds of `slope * atom` for slope <= 0 in terms of other atoms of the rest."""
        return []

    def joined(self, total: Mapping[Monomial, int]) -> Dim | None:
        """Of a remainder: the polynomial with remainders combined with their divisions, None when there is nothing to
        combine."""
        return None


class Symbol(Atom):
    """A size known when a shape is bound, or the value of a small integer input. At least `least`."""

    __slots__ = ("least", "name")
    rank = 0
    name: str
    least: int | None

    def __new__(cls, name: str, least: int | None = 1) -> Symbol:
        """The symbol with this name and bound."""
        atoms = current.get().atoms
        found = atoms.get((cls, name, least))
        if found is None:
            made = super().__new__(cls)
            made.name, made.least, made.text = name, least, name
            made.key = (cls.rank, name, 0)
            found = atoms.setdefault((cls, name, least), made)
        assert isinstance(found, Symbol)
        return found

    def _sampled(self) -> Sampled:
        # Of two sizes each is the larger one at some point.
        least, own = self.least or 0, crc32(self.name.encode()) % 1000
        return least, least + 1000 + own, least + 3000 - own


def _first_and_last(extent: Dim) -> Sampled:
    """Indices below an extent at the sample points."""
    least, large, other = ((size if size is not None and size > 0 else None) for size in extent.sampled())
    return least and 0, large and large - 1, other and 0


class Axis(Atom):
    """An index that runs over [0, extent). Every call makes a new axis."""

    __slots__ = ("extent", "name", "number")
    rank = 1
    name: str
    extent: Dim
    number: int

    def __new__(cls, name: str, extent: DimLike) -> Axis:
        """A new axis, unlike every other."""
        axis = super().__new__(cls)
        axis.name, axis.extent, axis.number = name, as_dim(extent), next(current.get().count)
        axis.text, axis.key = name, (cls.rank, name, axis.number)
        return axis

    def _sampled(self) -> Sampled:
        return _first_and_last(self.extent)

    def lower_bounds(self) -> list[Dim]:
        """Zero."""
        return [ZERO]

    def upper_bounds(self) -> list[Dim]:
        """The last index."""
        return [self.extent - 1]


class Value(Atom):
    """An integer computed at run time and used as an index into [0, extent). Compiled code checks it before use."""

    __slots__ = ("_inside", "expr", "extent")
    rank = 6
    expr: Expr
    extent: Dim
    _inside: frozenset[Atom] | None

    def __new__(cls, expr: Expr, extent: DimLike) -> Value:
        """The atom of this integer expression and this bound."""
        tables = current.get()
        limit = as_dim(extent)
        found = tables.atoms.get((cls, expr, limit))
        if found is None:
            made = super().__new__(cls)
            made.expr, made.extent, made._inside = expr, limit, None
            made.text, made.key = f"[{expr!r}]", (cls.rank, "", next(tables.count))
            found = tables.atoms.setdefault((cls, expr, limit), made)
        assert isinstance(found, Value)
        return found

    def inside(self) -> frozenset[Atom]:
        """The value, and what its index expression and extent depend on."""
        found = self._inside
        if found is None:
            found = self._inside = frozenset((self,)) | self.expr.atoms | self.extent.atoms
        return found

    def substituted(self, mapping: Mapping[Atom, Dim], on_value: Callable[[Expr], Expr] | None) -> Dim:
        """The value of the rewritten expression."""
        if self in mapping:
            return mapping[self]
        extent = self.extent.substitute(mapping, on_value)
        expr = on_value(self.expr) if on_value is not None else self.expr
        return self.dim if expr is self.expr and extent is self.extent else Value(expr, extent).dim

    def evaluated(self, values: Mapping[Atom, int], on_value: Callable[[Value], int] | None) -> int:
        """The number in `values`, else that of the callback."""
        if self in values or on_value is None:
            return super().evaluated(values, on_value)
        return on_value(self)

    def _sampled(self) -> Sampled:
        return _first_and_last(self.extent)

    def lower_bounds(self) -> list[Dim]:
        """Zero."""
        return [ZERO]

    def upper_bounds(self) -> list[Dim]:
        """The last index."""
        return [self.extent - 1]


class Pair(Atom):
    """An atom of two polynomials."""

    __slots__ = ("_inside", "left", "right")
    template: ClassVar[str]
    divides: ClassVar[bool] = False
    """Whether it is there for a positive second polynomial only."""
    left: Dim
    right: Dim
    _inside: frozenset[Atom] | None

    def __new__(cls, left: Dim, right: Dim) -> Pair:
        """The atom of these two polynomials, not simplified."""
        tables = current.get()
        found = tables.atoms.get((cls, left, right))
        if found is None:
            made = super().__new__(cls)
            made.left, made.right, made._inside = left, right, None
            made.text = cls.template.format(_operand(left), _operand(right))
            if len(made.text) > MAX_TEXT:
                raise TooLargeError(f"divisions of sizes or indices are nested too deeply: {made.text[:80]} ...")
            made.key = (cls.rank, made.text, next(tables.count))
            found = tables.atoms.setdefault((cls, left, right), made)
        assert isinstance(found, Pair)
        return found

    def inside(self) -> frozenset[Atom]:
        """The atom, and what both polynomials depend on."""
        found = self._inside
        if found is None:
            found = self._inside = frozenset((self,)) | self.left.atoms | self.right.atoms
        return found

    def substituted(self, mapping: Mapping[Atom, Dim], on_value: Callable[[Expr], Expr] | None) -> Dim:
        """The same operation on the rewritten polynomials."""
        if self in mapping:
            return mapping[self]
        left, right = self.left.substitute(mapping, on_value), self.right.substitute(mapping, on_value)
        return self.dim if left is self.left and right is self.right else self.made(left, right)

    def evaluated(self, values: Mapping[Atom, int], on_value: Callable[[Value], int] | None) -> int:
        """The operation on integers, unless a value is given."""
        if self in values:
            return values[self]
        return self.number(self.left.evaluate(values, on_value), self.right.evaluate(values, on_value))

    def _sampled(self) -> Sampled:
        return tuple(
            None if left is None or right is None or (self.divides and right <= 0) else self.number(left, right)
            for left, right in zip(self.left.sampled(), self.right.sampled(), strict=True)
        )

    @staticmethod
    def made(left: Dim, right: Dim) -> Dim:
        """The operation on polynomials, simplified."""
        raise NotImplementedError

    @staticmethod
    def number(left: int, right: int) -> int:
        """The operation on integers."""
        raise NotImplementedError


def _operand(dim: Dim) -> str:
    return f"({dim})" if len(dim.terms) > 1 else repr(dim)


def symbols_of(dim: Dim) -> frozenset[Symbol]:
    """The dynamic sizes that occur in the polynomial."""
    return frozenset(atom for atom in dim.atoms if isinstance(atom, Symbol))


def axes_of(dim: Dim) -> frozenset[Axis]:
    """The loop indices that occur in the polynomial."""
    return frozenset(atom for atom in dim.atoms if isinstance(atom, Axis))

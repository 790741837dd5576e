"""Polynomials with integer coefficients over atoms: canonical and interned, so that equal ones are the same object."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import gcd
from types import EllipsisType
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from opweld.errors import UnsupportedError
from opweld.tensor.intern import current, everywhere

if TYPE_CHECKING:
    from opweld.tensor.atoms import Atom, Value
    from opweld.tensor.expr import Expr

DimLike: TypeAlias = "Dim | int"
Monomial: TypeAlias = "tuple[Atom, ...]"
Sampled: TypeAlias = "tuple[int | None, ...]"
"""Integers at `SAMPLES` points, see `Atom.sampled`."""

SAMPLES = 3

MAX_TERMS = 512
"""The most terms of a polynomial. Sizes and indices of real models have a few dozen at most."""

MAX_DEGREE = 64
"""The most factors of a term."""


class TooLargeError(UnsupportedError):
    """A size or an index exceeds the limits. Optional simplifications are skipped then; else the error names the
    node."""

    def __init__(self, what: str) -> None:
        remedy = "Fix some dims (dims={NAME: N}, --dim NAME=N), or compute less with sizes in the model."
        super().__init__(f"{what}. {remedy}")


class Dim:
    """A canonical integer polynomial. Build with `as_dim`, operators, `floordiv`, `mod`, `minimum`, `maximum`."""

    __slots__ = ("known_atoms", "known_least", "known_nonnegative", "terms")
    terms: tuple[tuple[Monomial, int], ...]
    known_atoms: frozenset[Atom] | None
    """Cached result of `atoms`, None before the first call."""
    known_nonnegative: bool | None
    """Cached result of `bounds.nonnegative`, None before the first call."""
    known_least: int | EllipsisType | None
    """Cached result of `bounds.lower_constant`, `...` before the first call."""

    divide: ClassVar[Callable[[Dim, Dim], Dim]]
    """Set to `division.floordiv`, which cannot be imported here: it needs proofs, which need polynomials."""
    remainder: ClassVar[Callable[[Dim, Dim], Dim]]
    """`division.mod`."""

    def __repr__(self) -> str:
        if not self.terms:
            return "0"
        text = ""
        for monomial, coefficient in self.terms:
            factors = [atom.text for atom in monomial]
            if abs(coefficient) != 1 or not factors:
                factors.insert(0, str(abs(coefficient)))
            sign = (" - " if coefficient < 0 else " + ") if text else ("-" if coefficient < 0 else "")
            text += sign + "*".join(factors)
        return text

    @property
    def constant(self) -> int | None:
        """The value when no atom occurs, else None."""
        if not self.terms:
            return 0
        if len(self.terms) == 1 and not self.terms[0][0]:
            return self.terms[0][1]
        return None

    def __int__(self) -> int:
        value = self.constant
        if value is None:
            raise ValueError(f"{self} is not a known integer")
        return value

    @property
    def atom(self) -> Atom | None:
        """The atom when this is exactly one atom, else None."""
        if len(self.terms) == 1 and self.terms[0][1] == 1 and len(self.terms[0][0]) == 1:
            return self.terms[0][0][0]
        return None

    @property
    def atoms(self) -> frozenset[Atom]:
        """Every atom that occurs, at any depth: in divisions and in run-time values too."""
        found = self.known_atoms
        if found is None:
            found = frozenset(inner for monomial, _ in self.terms for atom in monomial for inner in atom.inside())
            self.known_atoms = found
        return found

    def __add__(self, other: DimLike) -> Dim:
        other = as_dim(other)
        if not other.terms:
            return self
        if not self.terms:
            return other
        total = dict(self.terms)
        for monomial, coefficient in other.terms:
            total[monomial] = total.get(monomial, 0) + coefficient
        return make(total)

    def __neg__(self) -> Dim:
        return self._times(-1)

    def _times(self, number: int) -> Dim:
        """The product with an integer: the same terms in the same order, with nothing new to join."""
        if not number:
            return ZERO
        return _interned(tuple((monomial, number * coefficient) for monomial, coefficient in self.terms))

    def __sub__(self, other: DimLike) -> Dim:
        other = as_dim(other)
        if not other.terms:
            return self
        if not self.terms:
            return -other
        total = dict(self.terms)
        for monomial, coefficient in other.terms:
            total[monomial] = total.get(monomial, 0) - coefficient
        return make(total)

    def __mul__(self, other: DimLike) -> Dim:
        if not isinstance(other, Dim):
            return self if other == 1 else self._times(int(other))
        for one, two in ((other, self), (self, other)):
            number = one.constant
            if number is not None:
                return two if number == 1 else two._times(number)
        # terms are in order of their degrees
        degree = len(self.terms[0][0]) + len(other.terms[0][0])
        if degree > MAX_DEGREE or len(self.terms) * len(other.terms) > 8 * MAX_TERMS:
            raise TooLargeError(
                f"the product of two sizes of {len(self.terms)} and {len(other.terms)} terms has degree {degree}, "
                f"which is more than opweld computes with ({8 * MAX_TERMS} terms, degree {MAX_DEGREE})"
            )
        total: dict[Monomial, int] = {}
        for left, a in self.terms:
            for right, b in other.terms:
                monomial = tuple(sorted(left + right, key=atom_key)) if left and right else left or right
                total[monomial] = total.get(monomial, 0) + a * b
        return make(total)

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: DimLike) -> Dim:
        return as_dim(other) - self

    def __floordiv__(self, other: DimLike) -> Dim:
        return Dim.divide(self, as_dim(other))

    def __mod__(self, other: DimLike) -> Dim:
        return Dim.remainder(self, as_dim(other))

    def coefficient(self, atom: Atom) -> Dim | None:
        """c of `c * atom + rest` where neither c nor rest depends on the atom; None when not affine in it."""
        if atom not in self.atoms:
            return ZERO
        total: dict[Monomial, int] = {}
        for monomial, coefficient in self.terms:
            rest = monomial
            if atom in monomial:
                place = monomial.index(atom)
                rest = monomial[:place] + monomial[place + 1 :]
                total[rest] = total.get(rest, 0) + coefficient
            for other in rest:  # a second factor is inside itself
                if atom in other.inside():
                    return None
        return make(total)

    def without(self, atom: Atom) -> Dim:
        """The terms in which the atom is not a factor: `rest` of `c * atom + rest`."""
        return _interned(tuple(term for term in self.terms if atom not in term[0]))

    def only(self, wanted: Callable[[Monomial], bool]) -> Dim:
        """The terms whose monomials are wanted."""
        return _interned(tuple(term for term in self.terms if wanted(term[0])))

    def depends_on(self, atom: Atom) -> bool:
        """Whether the atom occurs anywhere, divisions and run-time values included."""
        return atom in self.atoms

    def substitute(self, mapping: Mapping[Atom, Dim], on_value: Callable[[Expr], Expr] | None = None) -> Dim:
        """Replaces atoms everywhere, run-time index expressions included when `on_value` rewrites those."""
        if not mapping and on_value is None:
            return self
        if on_value is None and self.atoms.isdisjoint(mapping):
            return self
        total: dict[Monomial, int] = {}
        for monomial, coefficient in self.terms:
            new = [atom.substituted(mapping, on_value) for atom in monomial]
            if all(made is atom.dim for made, atom in zip(new, monomial, strict=True)):
                total[monomial] = total.get(monomial, 0) + coefficient
                continue
            for made, factor in product(new).terms:
                total[made] = total.get(made, 0) + factor * coefficient
        return make(total)

    def evaluate(self, values: Mapping[Atom, int], on_value: Callable[[Value], int] | None = None) -> int:
        """The integer for given atom values; KeyError names a missing atom."""
        total = 0
        for monomial, coefficient in self.terms:
            for atom in monomial:
                coefficient *= atom.evaluated(values, on_value)
            total += coefficient
        return total

    def sampled(self) -> Sampled:
        """The integers at the sample points, see `Atom.sampled`; None where an atom has no value at a point."""
        return tuple(map(self.at_sample, range(SAMPLES)))

    def at_sample(self, point: int) -> int | None:
        """The integer at one sample point."""
        total = 0
        for monomial, coefficient in self.terms:
            for atom in monomial:
                value = (atom.samples or atom.sampled())[point]
                if value is None:
                    return None
                coefficient *= value
            total += coefficient
        return total


def as_dim(value: DimLike) -> Dim:
    """The polynomial of an integer, or the polynomial itself."""
    if isinstance(value, Dim):
        return value
    integers = current.get().integers
    found = integers.get(value)
    if found is None:
        found = integers.setdefault(value, make({(): int(value)}))
    return found


def atom_key(atom: Atom) -> tuple[int, str, int]:
    """The position of an atom in the order of all atoms."""
    return atom.key


def _monomial_key(item: tuple[Monomial, int]) -> tuple[int, tuple[tuple[int, str, int], ...]]:
    return (-len(item[0]), tuple(atom.key for atom in item[0]))


def make(total: dict[Monomial, int]) -> Dim:
    """The polynomial with these coefficients by monomial, whose atoms are in order; divisions are joined with their
    remainders. Sums are made again and again: what terms in this order are is remembered."""
    dims, terms = current.get().dims, tuple(total.items())
    return dims.get(terms) or dims.setdefault(terms, _made(total))


def _made(total: dict[Monomial, int]) -> Dim:
    if 0 in total.values():
        total = {monomial: c for monomial, c in total.items() if c}
    remainder = _remainder_in(total)
    if remainder is not None:
        joined = remainder.joined(total)
        if joined is not None:
            return joined
    if len(total) > MAX_TERMS:
        raise TooLargeError(f"a size or an index has {len(total)} terms; opweld computes with up to {MAX_TERMS}")
    return _interned(tuple(total.items() if len(total) < 2 else sorted(total.items(), key=_monomial_key)))


def _interned(terms: tuple[tuple[Monomial, int], ...]) -> Dim:
    """The polynomial of sorted, non-zero terms that cannot be combined."""
    dims = current.get().dims
    found = dims.get(terms)
    if found is None:
        made = object.__new__(Dim)
        made.terms = terms
        made.known_atoms, made.known_nonnegative, made.known_least = None, None, ...
        found = dims.setdefault(terms, made)
    return found


def _remainder_in(total: dict[Monomial, int]) -> Atom | None:
    for monomial in total:
        for atom in monomial:
            if atom.is_remainder:
                return atom
    return None


ZERO = everywhere(0, make({}))
ONE = everywhere(1, as_dim(1))


def product(dims: Iterable[DimLike]) -> Dim:
    """The product of all dims; one for none."""
    factors = iter(dims)
    total = as_dim(next(factors, ONE))
    for dim in factors:
        total = total * dim
    return total


def exact_quotient(a: Dim, b: Dim) -> Dim | None:
    """q with a == q * b, by polynomial long division; None when there is none."""
    if not b.terms:
        return None
    lead_monomial, lead_coefficient = b.terms[0]
    quotient, remainder = ZERO, a
    for _ in range(len(a.terms) * 4 + 4):
        if not remainder.terms:
            return quotient
        monomial, coefficient = remainder.terms[0]
        factor = monomial_quotient(monomial, lead_monomial)
        if factor is None or coefficient % lead_coefficient:
            return None
        step = make({factor: coefficient // lead_coefficient})
        quotient, remainder = quotient + step, remainder - step * b
    return None


def monomial_quotient(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    """The monomial without the atoms of the divisor; None when they are not all in it."""
    rest = list(monomial)
    for atom in divisor:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def common_factor(a: Dim, b: Dim) -> int:
    """The greatest integer that divides all coefficients of both."""
    content = 0
    for _, coefficient in (*a.terms, *b.terms):
        content = gcd(content, coefficient)
    return content


def divided(a: Dim, divisor: int) -> Dim:
    """The polynomial divided by an integer that divides all of its coefficients."""
    return make({monomial: c // divisor for monomial, c in a.terms})

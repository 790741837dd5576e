"""Proofs about polynomials for all sizes and all indices within their extents: signs, lower and upper bounds."""

from __future__ import annotations

from types import EllipsisType

from opweld.tensor.atoms import Atom, Axis, Symbol
from opweld.tensor.polynomial import SAMPLES, Dim, TooLargeError, atom_key, make

_DEPTH = 12
"""The most atoms that a proof replaces, one after the other, by a bound of their range."""

_STEPS = 1000
"""The most claims that one proof may depend on. Those of real models depend on a few dozen."""


def nonnegative(dim: Dim) -> bool:
    """Whether the polynomial is provably >= 0 for all sizes >= 1 and all axes within their extents."""
    found = dim.known_nonnegative
    if found is None:
        found = dim.known_nonnegative = _Proof().succeeds(dim, _DEPTH)
    return found


class _Proof:
    """An attempt to prove one claim; a claim that takes more than `_STEPS` steps counts as not provable."""

    def __init__(self) -> None:
        self._steps = _STEPS

    def succeeds(self, dim: Dim, depth: int) -> bool:
        """`holds`; a proof that needs a polynomial that is too large fails."""
        try:
            return self.holds(dim, depth)
        except TooLargeError:
            return False

    def holds(self, dim: Dim, depth: int) -> bool:
        """Whether the polynomial is provably >= 0, when at most `depth` atoms are replaced."""
        value = dim.constant
        if value is not None:
            return value >= 0
        if depth == 0 or self._steps == 0 or _refuted(dim):
            return False
        self._steps -= 1
        bounded = max(
            (a for monomial, _ in dim.terms for a in monomial if not isinstance(a, Symbol)), key=atom_key, default=None
        )
        if bounded is not None:
            return self._bounded(dim, bounded, depth)
        # Only symbols remain: with s = t + least, t >= 0, non-negative coefficients prove the claim.
        symbols = [atom for monomial, _ in dim.terms for atom in monomial if isinstance(atom, Symbol)]
        if any(symbol.least is None for symbol in symbols):
            return False
        shift: dict[Atom, Dim] = {symbol: symbol.dim + symbol.least for symbol in symbols if symbol.least is not None}
        return all(coefficient >= 0 for _, coefficient in dim.substitute(shift).terms)

    def _bounded(self, dim: Dim, atom: Atom, depth: int) -> bool:
        """Replaces a bounded atom by the bound that minimises the polynomial, or by each alternative."""
        if any(monomial.count(atom) > 1 for monomial, _ in dim.terms):
            return False
        slope = make({tuple(x for x in m if x is not atom): c for m, c in dim.terms if atom in m})
        rest = dim.without(atom)
        lowest: list[Dim] = []
        if self.holds(slope, depth - 1):
            lowest = [slope * low for low in atom.lower_bounds()]
        elif self.holds(-slope, depth - 1):
            lowest = [*atom.lower_bounds_beside(slope, rest), *(slope * high for high in atom.upper_bounds())]
        if any(self.holds(low + rest, depth - 1) for low in lowest):
            return True
        cases = atom.alternatives()
        return bool(cases) and all(self.holds(slope * case + rest, depth - 1) for case in cases)


def _refuted(dim: Dim) -> bool:
    """Whether the polynomial is negative at a sample point. Most claims that cannot be proved are, and this takes a
    tenth of the time in which all ways to prove them fail."""
    for point in range(SAMPLES):
        value = dim.at_sample(point)
        if value is not None and value < 0:
            return True
    return False


def largest(dim: Dim) -> Dim | None:
    """An upper bound free of axes, when every axis enters with a slope of known sign; else None."""
    for axis in sorted((atom for atom in dim.atoms if isinstance(atom, Axis)), key=atom_key):
        slope = dim.coefficient(axis)
        if slope is None:
            return None
        if nonnegative(slope):
            dim = slope * (axis.extent - 1) + dim.without(axis)
        elif nonnegative(-slope):
            dim = dim.without(axis)
        else:
            return None
    return dim


def smallest(dim: Dim) -> Dim | None:
    """A lower bound free of axes, reached when axes are independent; None when a slope's sign is unknown."""
    top = largest(-dim)
    return None if top is None else -top


def lower_constant(dim: Dim) -> int | None:
    """The largest of a few constants k such that dim >= k is provable; None when even the smallest fails."""
    found = dim.known_least
    if isinstance(found, EllipsisType):
        found = dim.known_least = _lower_constant(dim)
    return found


def _lower_constant(dim: Dim) -> int | None:
    value = dim.constant
    if value is not None:
        return value
    loose = dict(dim.terms).get((), 0)
    for k in sorted({loose, loose + 1, 0, 1, -1, loose - 1}, reverse=True):
        if _Proof().succeeds(dim - k, 8):
            return k
    return None


def upper_constant(dim: Dim) -> int | None:
    """A constant that the polynomial provably never exceeds; None when none is found."""
    top = largest(dim)
    return None if top is None else top.constant

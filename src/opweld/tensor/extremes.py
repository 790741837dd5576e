"""Minima and maxima of polynomials, simplified on construction if one side is provably not larger."""

from __future__ import annotations

from opweld.tensor.atoms import Axis, Pair, Value
from opweld.tensor.bounds import nonnegative
from opweld.tensor.polynomial import ZERO, Dim, DimLike, as_dim, make


class Min(Pair):
    """The smaller of two. Constructed by `minimum`."""

    __slots__ = ()
    rank, template = 4, "min({}, {})"

    @staticmethod
    def made(left: Dim, right: Dim) -> Dim:
        """The minimum, resolved when it can be."""
        return minimum(left, right)

    @staticmethod
    def number(left: int, right: int) -> int:
        """The smaller one."""
        return min(left, right)

    def alternatives(self) -> list[Dim]:
        """Both."""
        return [self.left, self.right]

    def lower_bounds(self) -> list[Dim]:
        """Zero, when neither is less."""
        return [ZERO] if nonnegative(self.left) and nonnegative(self.right) else []

    def upper_bounds(self) -> list[Dim]:
        """Both."""
        return [self.left, self.right]


class Max(Pair):
    """The larger of two. Constructed by `maximum`."""

    __slots__ = ()
    rank, template = 5, "max({}, {})"

    @staticmethod
    def made(left: Dim, right: Dim) -> Dim:
        """The maximum, resolved when it can be."""
        return maximum(left, right)

    @staticmethod
    def number(left: int, right: int) -> int:
        """The larger one."""
        return max(left, right)

    def alternatives(self) -> list[Dim]:
        """Both."""
        return [self.left, self.right]

    def lower_bounds(self) -> list[Dim]:
        """Both."""
        return [self.left, self.right]


def minimum(a: DimLike, b: DimLike) -> Dim:
    """min(a, b), resolved when one is provably not larger."""
    a, b = as_dim(a), as_dim(b)
    if nonnegative(b - a):
        return a
    if nonnegative(a - b):
        return b
    return _moved(Min, a, b)


def maximum(a: DimLike, b: DimLike) -> Dim:
    """max(a, b), resolved when one is provably not smaller."""
    a, b = as_dim(a), as_dim(b)
    if nonnegative(a - b):
        return a
    if nonnegative(b - a):
        return b
    return _moved(Max, a, b)


def _moved(kind: type[Min] | type[Max], a: Dim, b: Dim) -> Dim:
    """The extreme of the operands without the smaller multiple of each term that they have in common, plus that: so
    that max(a - b, 0) is max(a, b) - b. For sizes only; extremes of indices are not changed."""
    terms, others = dict(a.terms), dict(b.terms)
    sizes = not any(isinstance(atom, Axis | Value) for atom in a.atoms | b.atoms)
    keys = terms.keys() | others.keys() if sizes else ()
    common = make({key: min(terms.get(key, 0), others.get(key, 0)) for key in keys})
    left, right = sorted((a - common, b - common), key=repr)
    return kind(left, right).dim + common

"""Minima and maxima of polynomials, resolved as they are made where one side is provably not larger."""

from __future__ import annotations

from opweld.tensor.atoms import Pair
from opweld.tensor.bounds import nonnegative
from opweld.tensor.polynomial import ZERO, Dim, DimLike, as_dim


class Min(Pair):
    """The smaller of two. Made by `minimum`."""

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

    def lower_ends(self) -> list[Dim]:
        """Zero, when neither is less."""
        return [ZERO] if nonnegative(self.left) and nonnegative(self.right) else []

    def upper_ends(self) -> list[Dim]:
        """Both."""
        return [self.left, self.right]


class Max(Pair):
    """The larger of two. Made by `maximum`."""

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

    def lower_ends(self) -> list[Dim]:
        """Both."""
        return [self.left, self.right]


def minimum(a: DimLike, b: DimLike) -> Dim:
    """min(a, b), resolved when one is provably not larger."""
    a, b = as_dim(a), as_dim(b)
    if nonnegative(b - a):
        return a
    if nonnegative(a - b):
        return b
    left, right = sorted((a, b), key=repr)
    return Min(left, right).dim


def maximum(a: DimLike, b: DimLike) -> Dim:
    """max(a, b), resolved when one is provably not smaller."""
    a, b = as_dim(a), as_dim(b)
    if nonnegative(a - b):
        return a
    if nonnegative(b - a):
        return b
    left, right = sorted((a, b), key=repr)
    return Max(left, right).dim

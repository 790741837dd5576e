"""Float intermediates of shape arithmetic: a size times two, a size by three, before it is rounded again."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from opweld.tensor.dim import Dim, as_dim, ceildiv, floordiv

_SMALL = 1 << 10


@dataclass(frozen=True)
class Ratio:
    """The float value numerator / denominator of a size, before the model rounds it to an integer again.

    Only values are represented that floats hold exactly for all sizes below 2**13: small dyadic factors, and one
    division by an integer (correctly rounded, so that its floor and ceiling are those of the true quotient).
    """

    numerator: Dim
    denominator: int = 1

    @property
    def exact(self) -> bool:
        """Whether the denominator is a power of two, so that sums and products stay exact."""
        return self.denominator & (self.denominator - 1) == 0

    def floor(self) -> Dim:
        """The largest integer that is not larger."""
        return floordiv(self.numerator, self.denominator)

    def ceil(self) -> Dim:
        """The smallest integer that is not smaller."""
        return ceildiv(self.numerator, self.denominator)


def as_ratio(value: object) -> Ratio | None:
    """A float or a `Ratio` as a ratio; None for floats that are not small dyadic numbers."""
    if isinstance(value, Ratio):
        return value
    if not isinstance(value, float) or value != value or abs(value) > _SMALL * _SMALL:
        return None
    exact = Fraction(value)
    if exact.denominator > _SMALL:
        return None
    return Ratio(as_dim(exact.numerator), exact.denominator)


def add(a: Ratio, b: Ratio) -> Ratio | None:
    """a + b, or None when floats might round it."""
    if not (a.exact and b.exact):
        return None
    denominator = max(a.denominator, b.denominator)
    return Ratio(
        a.numerator * (denominator // a.denominator) + b.numerator * (denominator // b.denominator), denominator
    )


def multiply(a: Ratio, b: Ratio) -> Ratio | None:
    """a * b, or None when floats might round it."""
    if not (a.exact and b.exact) or a.denominator * b.denominator > _SMALL:
        return None
    numerator, denominator = a.numerator * b.numerator, a.denominator * b.denominator
    if all(c % denominator == 0 for _, c in numerator.terms):
        return Ratio(floordiv(numerator, denominator))
    return Ratio(numerator, denominator)


def divide(a: Ratio, b: Ratio) -> Ratio | None:
    """a / b for a known b, or None when floats might round more than once."""
    divisor = b.numerator.constant
    if divisor is None or divisor <= 0 or divisor > _SMALL:
        return None
    if divisor & (divisor - 1) == 0:
        return multiply(a, Ratio(as_dim(b.denominator), divisor))
    if a.denominator != 1 or b.denominator != 1:
        return None
    return Ratio(a.numerator, divisor)

"""What an element of 8 bits stands for, and which sums of products of such ones integers of 32 bits hold."""

from __future__ import annotations

from dataclasses import dataclass, replace

from opweld.tensor.algebra import simplify
from opweld.tensor.expr import Expr, Load, binary

LARGEST = 2**31 - 1
"""A sum of products, of elements minus their zero points, that an int32 holds; what is on the way to it may wrap."""
LONGEST = LARGEST // 255**2
"""Products of bytes whose sum an int32 holds."""


@dataclass(frozen=True)
class Quantized:
    """(integer - zero) * scale, where the integer is an element of 8 bits.

    `zero` is an int32, `scale` a float; None where they are 0 and 1. `range`: the least and the greatest zero."""

    element: Load
    zero: Expr | None = None
    scale: Expr | None = None
    range: tuple[int, int] = (0, 0)

    def shifted(self, zero: Expr, low: int, high: int) -> Quantized:
        """With another zero point, of a range, added to its own."""
        added = zero if self.zero is None else simplify(binary("add", self.zero, zero))
        return replace(self, zero=added, range=(self.range[0] + low, self.range[1] + high))

    @property
    def reach(self) -> int:
        """The largest magnitude of the integer minus its zero."""
        low, high = self.element.dtype.limits
        return max(int(high) - self.range[0], self.range[1] - int(low))

    @property
    def largest(self) -> int:
        """The largest magnitude of the integer, of its zero, and of their difference."""
        return max(*(abs(int(x)) for x in (*self.element.dtype.limits, *self.range)), self.reach)

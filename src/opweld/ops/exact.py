"""Bounds on sums of products of 8-bit integers, and the float dtype that holds each of them exactly.

Partial sums are no larger than the sum of all magnitudes, so that the order of summation does not matter. Stored
weights are read, since they are rarely as large as their type allows, and fp64 takes twice the time and memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opweld import ir
from opweld.ops.fact import Fact
from opweld.ops.registry import Lowering
from opweld.tensor.dim import product
from opweld.tensor.dtype import DType

EXACT = 1 << 24
"""The largest integer up to which fp32 sums integers exactly, in any order."""


@dataclass(frozen=True)
class Operand:
    """A factor and its zero point; a zero point of rank 1 is indexed by `axis`."""

    fact: Fact
    zero: Fact | None
    axis: int

    @staticmethod
    def of(scope: Lowering, value: ir.Value, zero: ir.Value | None, axis: int) -> Operand:
        """The operand for values of the graph."""
        return Operand(scope.fact(value), None if zero is None else scope.fact(zero), axis)

    def largest(self) -> int:
        """The largest possible magnitude of an element minus its zero point."""
        least, greatest = self.fact.dtype.limits
        zero = self._zero()
        if zero is None:
            return greatest - least
        return max(greatest - int(zero.min(initial=greatest)), int(zero.max(initial=least)) - least)

    def total(self, summed: Sequence[int]) -> int | None:
        """The largest sum of magnitudes along the given axes; None where the elements are not known."""
        if self.fact.constant is None:
            return None
        values, zero = self.fact.constant().astype(np.int64), self._zero()
        if zero is None:  # the worst case
            least, greatest = self.fact.dtype.limits
            centred = np.maximum(values - least, greatest - values)
        else:
            along = [1] * values.ndim
            along[self.axis] = -1
            centred = values - zero.reshape(along if zero.size > 1 else [1] * values.ndim)
        return int(np.abs(centred).sum(tuple(summed)).max(initial=0))

    def _zero(self) -> NDArray[np.int64] | None:
        """The zero points; None where they are computed at run time."""
        if self.zero is None:
            return np.zeros(1, np.int64)
        return None if self.zero.constant is None else self.zero.constant().astype(np.int64).reshape(-1)


def sum_dtype(data: Operand, weights: Operand, summed: Sequence[int]) -> DType:
    """The float dtype that holds every sum of products of two operands exactly. `summed` are the axes of the weights
    that are summed over. Factors of 8-bit float types are bounded as 8-bit integers are."""
    length = product(weights.fact.shape[axis] for axis in summed).constant
    if length is None:
        return DType.F64
    if not (data.fact.dtype.is_integer and weights.fact.dtype.is_integer):
        return DType.F32 if 255 * 255 * length <= EXACT else DType.F64
    most = data.largest()
    if most * weights.largest() * length <= EXACT:
        return DType.F32
    total = weights.total(summed)
    return DType.F32 if total is not None and most * total <= EXACT else DType.F64

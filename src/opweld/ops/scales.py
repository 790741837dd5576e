"""Scales that are stored are looked at: one that is no number, or divides by zero, makes no code of anything."""

from __future__ import annotations

import warnings

import numpy as np

from opweld import ir
from opweld.errors import ModelError
from opweld.ops.operands import describe, given
from opweld.ops.registry import Inference, Lowering


def check_scale(scope: Inference | Lowering, node: ir.Node, position: int, *, divides: bool = False) -> None:
    """Looks at the scale that is an input of a node, if it is there and known when compiling.

    Raises ModelError for NaN and infinity, by which all becomes NaN, and for 0 where values are divided by it. What is
    multiplied by 0 is 0: a RuntimeWarning says how much of it is, as a calibration without data leaves it; but for
    scales of blocks, which quantisers write for blocks of zeros."""
    value = given(node, position)
    constant = None if value is None else scope.fact(value).constant
    if constant is None:
        return
    numbers = np.asarray(constant()).astype(np.float64)
    where = f"{describe(node)}: scale {value.name!r}" if value is not None else describe(node)
    bad = numbers[~np.isfinite(numbers)]
    if bad.size:
        raise ModelError(f"{where} holds {bad[0]}: quantise the model again, with data in which all is finite")
    zeros = int(np.count_nonzero(numbers == 0))
    if zeros and divides:
        raise ModelError(f"{where} holds 0, by which values are divided: quantise the model again, with other data")
    if zeros and numbers.ndim < 2:
        told = "is 0" if numbers.size == 1 else f"is 0 in {zeros} of {numbers.size} places"
        warnings.warn(f"{where} {told}: what it scales is 0", RuntimeWarning, stacklevel=2)

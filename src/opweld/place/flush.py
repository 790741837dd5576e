"""Weights that are next to nothing, stored as 0.

Training lets channels die: weight decay leaves weights of 1e-40 there. Products with them are denormal numbers, for
which Intel's processors leave the pipeline, some hundred cycles for each vector; where a sum has no others it stays
denormal to its end, and what is added to it may be as small. OpenVINO computes with 0 in place of all denormal numbers;
here only constants become 0 that are small beside 1 and beside the largest of their tensor, so that no unit of
measurement of a model is taken for nothing, and none that a comparison, a divisor or a logarithm in the same kernel
tells from 0. What differs: elements of more than 1e30 times a weight of 1e-37, and an infinity, of which 0 makes NaN.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from opweld.ledger import Alternative, Ledger
from opweld.tensor.dtype import DType
from opweld.tensor.program import Constant, Tensor

SMALL = np.float32(2.0**-120)
"""Weights below make denormal numbers of elements that are below 2^-6."""
BESIDE = np.float32(2.0**-60)
"""What is smaller by so much than the largest of a tensor is no weight on the scale of that tensor."""
AT_A_TIME = 1 << 16
"""Elements that are looked at together: they stay in the cache."""


def flushed(tensor: Tensor, constant: Constant, ledger: Ledger) -> Constant:
    """The constant as a sum of products uses it: with 0 for what is next to nothing, if the ledger says so."""
    if constant.dtype is not DType.F32 or not ledger.allows("place.flush"):
        return constant
    count = tiny(constant.read())
    if not count:
        return constant
    choice = ledger.decide(
        rule="place.flush",
        site=tensor.origin,
        subject=(tensor.name, constant.name),
        alternatives=(Alternative("kept"), Alternative("zero")),
        prefer="zero",
        reason=f"{count:,} elements are next to nothing: products of them take some processors a hundred times as long",
    )
    return constant if choice == "kept" else replace(constant, read=lambda: without_tiny(constant.read()))


def tiny(array: np.ndarray[Any, Any]) -> int:
    """How many elements of a float32 array are next to nothing, but not 0."""
    bits = _bits(array)
    limit = _limit(bits)
    return sum(int(np.count_nonzero(_below(part, limit))) for part in _pieces(bits))


def without_tiny(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A copy of a float32 array with 0 in place of what is next to nothing."""
    made = np.array(array, order="C")
    bits = _bits(made)
    limit = _limit(bits)
    for part in _pieces(bits):
        part[_below(part, limit)] = 0
    return made


def _bits(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The elements as integers: without their sign, these are in the order of their magnitudes."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint32)


def _pieces(bits: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    return [bits[at : at + AT_A_TIME] for at in range(0, bits.size, AT_A_TIME)]


_MAGNITUDE = np.uint32(0x7FFFFFFF)


def _limit(bits: np.ndarray[Any, Any]) -> np.uint32:
    largest = max((int((part & _MAGNITUDE).max()) for part in _pieces(bits)), default=0)
    beside = np.uint32(largest).view(np.float32) * BESIDE
    # Beside infinities and NaN nothing is small.
    return np.fmin(SMALL, beside).view(np.uint32) if np.isfinite(beside) else np.uint32(0)


def _below(part: np.ndarray[Any, Any], limit: np.uint32) -> np.ndarray[Any, Any]:
    # Of 0, one less is the largest of all.
    return (part & _MAGNITUDE) - np.uint32(1) < np.maximum(limit, np.uint32(1)) - np.uint32(1)

"""Matrices of all experts of a layer, one behind the other, as `ops/decoder/experts.py` reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opweld.llm.weights import Blocked, Weight
from opweld.tensor.experts import GROUP, packed

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Stack:
    """Matrices of equal shapes.

    Attributes:
        parts: codes [experts, out, in], and of integers scales and perhaps minimums [experts, out, in / block].
        rows: of each matrix. bits: 4 where two codes are in a byte, else 8.
    """

    parts: Mapping[str, Array]
    rows: int
    bits: int


def stack(matrices: Sequence[Weight]) -> Stack:
    """Matrices as they are where all are integers of one form, whose blocks have whole vectors; else their values."""
    blocked = [matrix for matrix in matrices if isinstance(matrix, Blocked)]
    rows, columns = matrices[0].shape
    forms = {(one.codes.dtype, one.bits == 4, one.block, one.minimums is None) for one in blocked}
    whole = len(blocked) == len(matrices) and len(forms) == 1
    if not whole or columns % GROUP or blocked[0].block % (GROUP // 2):
        values = [one.values() if isinstance(one, Blocked) else np.asarray(one, np.float32) for one in matrices]
        return Stack({"values": np.stack(values)}, rows, 8)
    codes, scales = np.stack([one.codes for one in blocked]), np.stack([one.scales for one in blocked])
    least = [one.minimums for one in blocked if one.minimums is not None]
    numbers = {"scales": scales} | ({"minimums": np.stack(least)} if least else {})
    halves = {name: narrow(array) for name, array in numbers.items()}
    if all(array.dtype == np.float16 for array in halves.values()):
        numbers = halves
    small = blocked[0].bits == 4 and codes.dtype == np.uint8
    return Stack({"codes": packed(codes) if small else codes, **numbers}, rows, 4 if small else 8)


def narrow(array: Array) -> Array:
    """An array as float16, where that is the same."""
    with np.errstate(over="ignore"):
        half = array.astype(np.float16)
    return half if (half.astype(np.float32) == array).all() else array

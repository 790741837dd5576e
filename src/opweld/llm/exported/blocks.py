"""Weights of MatMulNBits, and of GatherBlockQuantized: numbers of 2, 4 or 8 bits with a scale for each block of a row,
and perhaps the number that means zero."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opweld.llm.weights import Blocked

BITS = (2, 4, 8)


def unpacked(packed: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Numbers of so many bits, the lowest bits of a byte first: [rows, bytes] -> [rows, bytes * 8 / bits]."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return ((packed[:, :, None] >> shifts) & np.uint8(2**bits - 1)).reshape(len(packed), -1)


def blocked(
    packed: NDArray[np.uint8],
    scales: NDArray[Any],
    zeros: NDArray[Any] | None,
    *,
    shape: tuple[int, int],
    bits: int,
    block: int,
) -> Blocked:
    """The matrix of (number - zero) * scale.

    Args:
        packed: uint8 [rows * blocks * block * bits / 8], whole blocks: the last one of a row may reach beyond it.
        scales: a float for each block. zeros: numbers as `packed` has them, rows padded to bytes, or floats; the middle
            of the range where None.
        shape: (rows, columns). block: elements of a row that share a scale.
    """
    rows, columns = shape
    count = -(-columns // block)
    codes = unpacked(packed.reshape(rows, -1), bits)[:, :columns]
    spread = scales.reshape(rows, count).astype(np.float32)
    if zeros is None:
        middles = np.full((rows, count), 1 << (bits - 1), np.float32)
    elif zeros.dtype == np.uint8:
        middles = unpacked(zeros.reshape(rows, -1), bits)[:, :count].astype(np.float32)
    else:
        middles = zeros.reshape(rows, count).astype(np.float32)
    if columns % block:  # smaller blocks, of which rows have whole ones
        shared = math.gcd(columns, block)
        spread, middles = (
            np.repeat(each, block // shared, axis=1)[:, : columns // shared] for each in (spread, middles)
        )
        block = shared
    if bits == 8 and (middles == 128).all():
        return Blocked((codes ^ np.uint8(128)).view(np.int8), spread, None, bits, block)
    return Blocked(codes, spread, -middles * spread, max(bits, 4), block)

"""MatMulNBits: weights of 2, 4 or 8 bits with a scale for each block."""

from __future__ import annotations

from typing import Any

import numpy as np

from opweld.frontend.reference.standard import MICROSOFT, Array
from opweld.ops.registry import computes


def unpacked(packed: Array, bits: int) -> Array:
    """Unpacks the last axis to numbers of the given bits, lowest bits of a byte first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    numbers = (packed[..., None] >> shifts) & ((1 << bits) - 1)
    return numbers.reshape(*packed.shape[:-1], -1)


@computes("MatMulNBits", domain=MICROSOFT)
def matmul_n_bits(
    x: Array,
    weights: Array,
    scales: Array,
    zeros: Array | None = None,
    groups: Array | None = None,
    bias: Array | None = None,
    *,
    K: int,
    N: int,
    block_size: int,
    bits: int = 4,
    **_: Any,
) -> Array:
    """sum over k of x[..., k] * (q[n, k] - zero[n, group]) * scale[n, group]; the group of k is its block, or given."""
    blocks = -(-K // block_size)
    numbers = unpacked(weights.reshape(N, -1), bits)[:, :K].astype(np.int64)
    group = np.arange(K) // block_size if groups is None else groups[:K].astype(np.int64)
    if zeros is None:
        points = np.full((N, blocks), 1 << (bits - 1), np.int64)
    elif zeros.dtype == np.uint8:
        points = unpacked(zeros.reshape(N, -1), bits)[:, :blocks].astype(np.int64)
    else:
        points = zeros.reshape(N, blocks)
    rows = (numbers - points[:, group]).astype(scales.dtype) * scales.reshape(N, blocks)[:, group]
    value = x @ rows.T
    return value if bias is None else value + bias

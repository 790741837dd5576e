"""Dot products of bytes against NumPy, their extremes among them: nothing saturates, sums wrap."""

from __future__ import annotations

import numpy as np

from tests.unit.runtime_math.conftest import Kernels


def test_dot_products_of_bytes(kernels: Kernels) -> None:
    generator = np.random.default_rng(3)
    unsigned = generator.integers(0, 256, (1024, 4)).astype(np.uint8)
    signed = generator.integers(-128, 128, (1024, 4)).astype(np.int8)
    unsigned[:3], signed[0], signed[1], signed[2] = 255, 127, -128, (127, -128, 127, -128)
    start = generator.integers(-(2**31), 2**31, 1024).astype(np.int32)
    wanted = start.astype(np.int64) + (unsigned.astype(np.int64) * signed.astype(np.int64)).sum(-1)
    found = start.copy()
    kernels.call("dot4_add", found, unsigned, signed, found.size)
    np.testing.assert_array_equal(found, wanted.astype(np.int32))

"""Blocks of a multiprocessor, by hand from the documented limits."""

from __future__ import annotations

import pytest

from opweld.codegen.triton.occupancy import Occupancy, occupancy


@pytest.mark.parametrize(
    ("arch", "warps", "registers", "shared", "expected"),
    [
        # 64 warps of 32 registers a thread fill 64 K registers exactly.
        (80, 8, 32, 0, Occupancy(8, 64, 1.0, "registers")),
        (90, 8, 24, 0, Occupancy(8, 64, 1.0, "warps")),
        # 33 registers are given out as 40: 12 warps in each of four partitions of 16 K.
        (80, 8, 33, 0, Occupancy(6, 48, 0.75, "registers")),
        # 206 as 208: two warps a partition.
        (90, 4, 206, 0, Occupancy(2, 8, 0.125, "registers")),
        (80, 8, 255, 0, Occupancy(1, 8, 0.125, "registers")),
        (90, 16, 168, 0, Occupancy(0, 0, 0.0, "registers")),
        # 1 KiB of each block is the system's: 164 KiB have two blocks of 81 KiB, and one of 82.
        (80, 4, 64, 81 << 10, Occupancy(2, 8, 0.125, "shared memory")),
        (80, 4, 64, (81 << 10) + 1, Occupancy(1, 4, 0.0625, "shared memory")),
        (90, 4, 64, 96 << 10, Occupancy(2, 8, 0.125, "shared memory")),
        (80, 4, 64, 163 << 10, Occupancy(1, 4, 0.0625, "shared memory")),
        (80, 4, 64, (163 << 10) + 1, Occupancy(0, 0, 0.0, "shared memory")),
        (90, 4, 64, 227 << 10, Occupancy(1, 4, 0.0625, "shared memory")),
        (90, 1, 16, 0, Occupancy(32, 32, 0.5, "blocks")),
    ],
)
def test_blocks_of_a_multiprocessor(arch: int, warps: int, registers: int, shared: int, expected: Occupancy) -> None:
    assert occupancy(arch, warps=warps, registers=registers, shared=shared) == expected

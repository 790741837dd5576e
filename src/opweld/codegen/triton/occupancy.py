"""How many blocks of a kernel a multiprocessor runs at a time, and what limits them.

The limits are those of the CUDA C++ Programming Guide, "Technical Specifications per Compute Capability", and the units
in which a multiprocessor gives out registers and shared memory those of NVIDIA's occupancy calculator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from opweld.codegen.triton.binary import Binary

Limit = Literal["registers", "shared memory", "warps", "blocks"]

WARP: Final = 32
"""Threads of a warp."""


@dataclass(frozen=True)
class Multiprocessor:
    """What the blocks on a multiprocessor share.

    Attributes:
        warps, blocks: at most so many at a time.
        registers: of 32 bits; each of its four partitions has a quarter. register_unit: how many a warp gets at a time.
        shared: bytes of shared memory. shared_per_block: at most so many of them for one block. reserved: bytes that
            the system takes of each block besides. shared_unit: bytes that a block gets at a time.
    """

    warps: int
    blocks: int
    registers: int
    shared: int
    shared_per_block: int
    partitions: int = 4
    register_unit: int = 256
    shared_unit: int = 128
    reserved: int = 1 << 10


MULTIPROCESSORS: Final = {
    80: Multiprocessor(warps=64, blocks=32, registers=1 << 16, shared=164 << 10, shared_per_block=163 << 10),
    90: Multiprocessor(warps=64, blocks=32, registers=1 << 16, shared=228 << 10, shared_per_block=227 << 10),
}
"""By architecture."""


@dataclass(frozen=True)
class Occupancy:
    """What a multiprocessor runs of a kernel at a time.

    Attributes:
        blocks: how many; 0 of a kernel that cannot be launched.
        warps: of them together.
        fraction: of the warps that the multiprocessor can have.
        limit: what allows no more blocks.
    """

    blocks: int
    warps: int
    fraction: float
    limit: Limit


def occupancy(arch: int, *, warps: int, registers: int, shared: int) -> Occupancy:
    """The occupancy of blocks of so many warps, with these registers a thread and bytes of shared memory a block."""
    has = MULTIPROCESSORS[arch]
    per_warp = _rounded_up(max(registers, 1) * WARP, has.register_unit)
    resident = has.registers // has.partitions // per_warp * has.partitions
    per_block = _rounded_up(shared + has.reserved, has.shared_unit)
    allowed: dict[Limit, int] = {
        "registers": resident // warps,
        "shared memory": has.shared // per_block if shared <= has.shared_per_block else 0,
        "warps": has.warps // warps,
        "blocks": has.blocks,
    }
    limit = min(allowed, key=lambda name: allowed[name])
    blocks = allowed[limit]
    return Occupancy(blocks, blocks * warps, blocks * warps / has.warps, limit)


def occupancy_of(binary: Binary) -> Occupancy:
    """The occupancy of a compiled kernel."""
    return occupancy(binary.arch, warps=binary.warps, registers=binary.registers, shared=binary.shared)


def _rounded_up(size: int, unit: int) -> int:
    return -(-size // unit) * unit

"""What a product takes on a GPU, by the blocks of results that its programs compute.

A program walks along what is summed, step by step, and loads of the next steps are on their way meanwhile. A step takes
as long as loads need to arrive, or as the multiplications of the programs beside it. So a product takes

    start + rounds * (steps + 2) * step     programs of a multiprocessor beside each other are a round, the last a part
    or as long as its bytes from the second-level cache or from memory, if that is longer
    + what storing results takes

`STEPS` are measured on an H100 (SXM, 2026-11-26) by `python -m benchmarks.gpu contractions`: 33 products of bfloat16 of
the models of `benchmarks.gpu_models`, 437 times in all, of which predictions are 12% off (root mean square of
logarithms). What was predicted to be the fastest took 1.1% longer than the fastest on average, 12% at most."""

from __future__ import annotations

from dataclasses import dataclass

from opweld.target import KIB, Gpu


@dataclass(frozen=True)
class Blocks:
    """Blocks of [rows, columns] results, `depth` of what is summed in a step, by programs of some warps, with so many
    steps under way."""

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int

    def __str__(self) -> str:
        return f"{self.rows}x{self.columns}x{self.depth} warps {self.warps} stages {self.stages}"


START = 3.0e-6
"""Seconds from the begin of a kernel to the first step, and from the last one to the end of the kernel."""
CACHE, MEMORY = 9.0e12, 2.7e12
"""Bytes a second from the second-level cache to all multiprocessors, and from memory."""
STORED = 64e-12
"""Seconds to store a result, of a multiprocessor."""

STEPS = {
    Blocks(16, 32, 256, 4, 3): 0.423e-6,
    Blocks(16, 64, 128, 4, 4): 0.256e-6,
    Blocks(32, 32, 128, 4, 4): 0.277e-6,
    Blocks(32, 64, 128, 4, 4): 0.419e-6,
    Blocks(64, 32, 128, 4, 4): 0.183e-6,
    Blocks(64, 64, 64, 4, 4): 0.133e-6,
    Blocks(64, 64, 128, 4, 3): 0.244e-6,
    Blocks(64, 128, 64, 4, 4): 0.189e-6,
    Blocks(128, 64, 64, 4, 4): 0.218e-6,
    Blocks(128, 128, 32, 4, 5): 0.195e-6,
    Blocks(128, 128, 64, 4, 4): 0.320e-6,
    Blocks(128, 128, 64, 8, 3): 0.311e-6,
    Blocks(128, 256, 64, 8, 3): 0.561e-6,
    Blocks(256, 128, 64, 8, 3): 0.681e-6,
}
"""Seconds of a step."""

_REGISTERS, _THREADS = 1 << 16, 2048
"""Of a multiprocessor."""
_OTHERS = 90
"""Registers of a thread beside its sums."""


def product_seconds(sizes: tuple[int, int, int, int], blocks: Blocks, target: Gpu) -> float:
    """Seconds of a product of 16-bit floats of sizes (batch, M, N, K)."""
    batch, m, n, k = sizes
    programs = batch * -(-m // blocks.rows) * -(-n // blocks.columns)
    steps = -(-k // blocks.depth)
    each = -(-programs // target.processors)
    walking = max(1.0, each / resident(blocks, target)) * (steps + 2) * STEPS[blocks]
    fetched = programs * steps * blocks.depth * (blocks.rows + blocks.columns) * 2 / CACHE
    moved = batch * (m * k + n * k + m * n) * 2 / MEMORY
    return START + max(walking, fetched, moved) + each * blocks.rows * blocks.columns * STORED


def resident(blocks: Blocks, target: Gpu) -> int:
    """How many programs a multiprocessor has beside each other."""
    shared = (blocks.rows + blocks.columns) * blocks.depth * 2 * blocks.stages
    threads = 32 * blocks.warps
    registers = min(255, blocks.rows * blocks.columns // threads + _OTHERS)
    return max(1, min(target.shared_bytes // (shared + KIB), _REGISTERS // (registers * threads), _THREADS // threads))

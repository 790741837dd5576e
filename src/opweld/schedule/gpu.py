"""What a product takes on a GPU, by the blocks of results that its programs compute.

A program walks along what is summed, step by step, and a step takes about the same time whatever else is there: loads
of the next ones are on their way. So a product takes

    start + rounds * (steps + 2) * step                     programs of a multiprocessor beside each other are a round
    or as long as its multiplications, or its bytes from the second-level cache or from memory, if that is longer
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


START = 3.1e-6
"""Seconds from the begin of a kernel to the first step, and from the last one to the end of the kernel."""
CACHE, MEMORY = 9.0e12, 2.7e12
"""Bytes a second from the second-level cache to all multiprocessors, and from memory."""
RATE = 6.55e12
"""Multiplications and additions a second of a multiprocessor, of 16-bit floats."""
STORED = 65e-12
"""Seconds to store a result, of a multiprocessor."""

STEPS = {
    Blocks(16, 32, 256, 4, 3): 0.419e-6,
    Blocks(16, 64, 128, 4, 4): 0.251e-6,
    Blocks(32, 32, 128, 4, 4): 0.273e-6,
    Blocks(32, 64, 128, 4, 4): 0.414e-6,
    Blocks(64, 32, 128, 4, 4): 0.177e-6,
    Blocks(64, 64, 64, 4, 4): 0.130e-6,
    Blocks(64, 64, 128, 4, 3): 0.237e-6,
    Blocks(64, 128, 64, 4, 4): 0.185e-6,
    Blocks(128, 64, 64, 4, 4): 0.213e-6,
    Blocks(128, 128, 32, 4, 5): 0.0,
    Blocks(128, 128, 64, 4, 4): 0.0,
    Blocks(128, 128, 64, 8, 3): 0.0,
    Blocks(128, 256, 64, 8, 3): 0.548e-6,
    Blocks(256, 128, 64, 8, 3): 0.676e-6,
}
"""Seconds of a step. Of blocks of 128 x 128, what they multiply takes longer."""

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
    rounds = -(-programs // (target.processors * resident(blocks, target)))
    waiting = rounds * (steps + 2) * STEPS[blocks]
    multiplying = each * steps * blocks.depth * blocks.rows * blocks.columns * 2 / RATE
    fetched = programs * steps * blocks.depth * (blocks.rows + blocks.columns) * 2 / CACHE
    moved = batch * (m * k + n * k + m * n) * 2 / MEMORY
    return START + max(waiting, multiplying, fetched, moved) + each * blocks.rows * blocks.columns * STORED


def resident(blocks: Blocks, target: Gpu) -> int:
    """How many programs a multiprocessor has beside each other."""
    shared = (blocks.rows + blocks.columns) * blocks.depth * 2 * blocks.stages
    threads = 32 * blocks.warps
    registers = min(255, blocks.rows * blocks.columns // threads + _OTHERS)
    return max(1, min(target.shared_bytes // (shared + KIB), _REGISTERS // (registers * threads), _THREADS // threads))

"""What a token costs behind a long context: `python -m benchmarks.language context`.

The cache of a tiny decoder of one layer is filled with random keys and values, in blocks that lie in no order, so that
a million tokens need no model that computes them. Attention reads each of them once: seconds should be a line.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

import opweld
from opweld.llm.compiled import CompiledRunner
from opweld.llm.config import Config, Rope
from opweld.llm.load import BLOCK, HINTS
from opweld.llm.source import STATES, DecoderSource
from opweld.llm.step import Span
from opweld.llm.weights import Weight, Weights
from opweld.tensor.dtype import DType

LONGEST = 1 << 20
ROPE = Rope(1e6 ** -np.linspace(0, 1, 16))
CONFIG = Config("llama", 64, 64, 1, 2, 1, 32, 64, LONGEST, 1e-5, (ROPE,), (None,), 32**-0.5)
FAR = 1 << 16
"""Tokens whose keys and values no core's own cache holds: from here on all of them come from memory."""
SPREAD = 3.0
"""Of keys and queries: scores differ so much that a few hundred keys have most of the weight, wherever they lie."""


def weights() -> Weights:
    """Random ones."""
    rng = np.random.default_rng(1)
    hidden, own, shared = CONFIG.hidden, CONFIG.heads * CONFIG.head_size, CONFIG.kv_heads * CONFIG.head_size
    shapes = {"query": (own, hidden), "key": (shared, hidden), "value": (shared, hidden), "output": (hidden, own)}
    shapes |= {"gate": (CONFIG.inner, hidden), "up": (CONFIG.inner, hidden), "down": (hidden, CONFIG.inner)}
    found = {f"layers.0.{name}": shape for name, shape in shapes.items()}
    found |= dict.fromkeys(("embedding", "head"), (CONFIG.vocabulary, hidden))
    made = {name: rng.standard_normal(shape) / shape[1] ** 0.5 for name, shape in found.items()}
    made["layers.0.query"] *= SPREAD
    made |= {name: np.ones(hidden) for name in ("norm", "layers.0.attention_norm", "layers.0.feed_norm")}
    return {name: partial(_as_float32, array) for name, array in made.items()}


def _as_float32(array: NDArray[np.float64]) -> Weight:
    return array.astype(np.float32)


def filled(tokens: int, threads: int) -> tuple[CompiledRunner, list[int]]:
    """The decoder with a cache of float16 that holds so many random tokens, and the block table of their sequence."""
    source = DecoderSource(CONFIG, weights(), BLOCK, lambda _: f"long context {SPREAD}", DType.F16)
    model = opweld.compile(source, states=STATES, dim_hints=HINTS, threads=threads)
    blocks = -(-tokens // BLOCK)
    runner, rng = CompiledRunner(model, CONFIG, BLOCK, blocks, CONFIG.context), np.random.default_rng(2)
    for pool in runner.memory().values():
        for block in pool:
            block[...] = rng.standard_normal(block.shape, np.float32)
    return runner, rng.permutation(blocks).tolist()


def context(lengths: Sequence[int], threads: int, repeats: int = 15) -> None:
    """Prints seconds of a token behind each length, and the line that fits them best."""
    runner, table = filled(max(lengths), threads)
    found: dict[int, float] = {}
    for length in lengths:
        span = Span((1,), length - 1, table[: -(-length // BLOCK)], 1)
        runner.run([span])
        taken: list[float] = []
        for _ in range(repeats):
            begin = time.perf_counter()
            runner.run([span])
            taken.append(time.perf_counter() - begin)
        found[length] = statistics.median(taken)
    far = [length for length in lengths if length >= FAR]
    y = np.array([found[length] for length in far])
    slope, start = np.polyfit(far, y, 1, w=1 / y)  # errors count by their part of the time
    print(f"{threads} threads, a layer of {CONFIG.heads} heads of {CONFIG.head_size}, keys and values in float16")
    print(f"{'tokens':>10} {'ms':>9} {'ns a token of context':>22} {'of the line':>12}")
    for length, seconds in found.items():
        part = f"{seconds / (start + slope * length):12.2f}" if length in far else ""
        print(f"{length:10,} {seconds * 1e3:9.3f} {seconds / length * 1e9:22.1f} {part}")
    print(f"the line from {FAR:,} tokens on: {start * 1e3:.3f} ms, and {slope * 1e9:.1f} ns for each token of context")

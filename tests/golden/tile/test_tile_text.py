"""The kernels of small programs as tile programs: what fusion, placement and the schedules make of them for AVX2."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from opweld.tile.text import print_kernel
from tests.unit.tile import programs
from tests.unit.tile.pipeline import compile_text

PROGRAMS = {
    "dense": programs.dense(64, 96, 80),
    "dense_of_any_batch": programs.dense("batch", 96, 80, programs.symbols(batch="0 of x")),
    "convolution": programs.convolution(16, 32, 28, 28),
    "separable": programs.separable(16, 64, 14, 14),
    "grouped": programs.grouped(4, 16, 16, 14, 14),
    "softmax": programs.softmax(100, 1000),
    "layer_norm": programs.layer_norm("rows", 384, programs.symbols(rows="0 of x")),
    "global_pool": programs.global_pool(64, 14, 14),
    "concatenation": programs.concatenation(16, 32, 14, 14),
    "upsampling": programs.upsampling(16, 24, 10, 20),
    "lstm": programs.lstm(10, 1, 64, 128),
    "attention": programs.attention("batch", "length", 4, 32, programs.symbols(batch="0 of q", length="1 of q")),
    "long_attention": programs.attention(1, 4000, 2, 32),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels(name: str, golden: Callable[[str, str], None]) -> None:
    blocks: list[str] = []
    for item in compile_text(PROGRAMS[name]).kernels:
        origin = ", ".join(item.kernel.origin)
        blocks.append(f"# {item.kernel.name}: {origin}\n{print_kernel(item.kernel)}")
    golden(f"{name}.txt", "\n".join(blocks))

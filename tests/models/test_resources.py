"""What kernels take of a core: nothing is spilled that counts, where nobody asked for another schedule than the
compiler's own."""

from __future__ import annotations

import platform
from pathlib import Path

import onnx
import pytest

from benchmarks.kernels import SHAPES
from benchmarks.zoo import fetch
from opweld.analysis.resources import kernel_resources
from opweld.cached import compile_model
from opweld.options import Options

TARGETS = ("x86-64-v4", "x86-64-v3", "aarch64")

SPARED = 4
"""Moves in a kernel that computes functions: a few of their constants. Fewer vectors, and no spill, measured the same
within 2%: 16 registers hold the constants of no exp beside four vectors."""

REAL = ("convnext-tiny", "magika", "minilm", "mobilenetv2", "ppocrv4-det", "ppocrv6-rec-small", "resnet50", "vit-base")
"""Of the zoo: one of each kind. All of it was looked at when `KNOWN` was written."""

WINDOWS = ("x86-64-v3", "window")
"""16 registers and overlapping windows of four rows: narrower tiles were slower, but for one vector more."""

KNOWN = {
    ("aarch64", "map", "exp, erf 128 x 3072"): 46,  # constants of erf, beside whatever number of vectors
    # Overlapping windows of four rows, of elements two apart, which are two vectors each. Lanes along channels spilled
    # nothing, and loaded every element by itself.
    ("aarch64", "window", "pool 3x3 s2 64, 112"): 11,
    ("x86-64-v4", "window", "depthwise 3x3 s2 144, 56"): 14,  # of all taps in a row, which take 11% less time with them
    # Of all taps in a row: LLVM's scheduler loads ahead of what is needed, and without it (-enable-misched=false) none
    # spills. A loop in their place reads and writes memory 180 times for a tile of 5x5 where they do 146 times, and 315
    # times for one of 7x7 where they do 391 times, in as many instructions (935 and 903).
    ("aarch64", "window", "depthwise 3x3 s2 144, 56"): 9,
    ("aarch64", "window", "depthwise 5x5 96, 40"): 61,
    ("aarch64", "window", "depthwise 7x7 96, 56"): 194,
    ("x86-64-v4", "window", "ppocrv6-rec-small"): 6,  # depthwise, then SiLU: constants leave its tile no room
    ("x86-64-v4", "window", "ppocrv4-det"): 12,
    # Sums that pass through the stack between groups of bodies: 15% of these kernels' time, measured, which two bodies
    # in a row would not lose.
    ("x86-64-v4", "contraction", "convnext-tiny"): 50,
    ("x86-64-v4", "contraction", "convnext-tiny-raw"): 50,
    # Epilogues with functions over a tile that fills the registers, once a tile, and loops of a few trips.
    ("x86-64-v4", "contraction", "magika"): 148,
    ("x86-64-v4", "contraction", "ddddocr"): 100,
    ("x86-64-v4", "contraction", "silero-vad"): 78,
    ("x86-64-v4", "contraction", "silero-vad-ifless"): 78,
    ("x86-64-v4", "contraction", "ppocrv6-det-small"): 34,
    ("x86-64-v4", "contraction", "ppocrv4-cls"): 6,
    ("x86-64-v4", "contraction", "ppocrv4-det"): 2,
    ("x86-64-v4", "contraction", "layout-cdla"): 2,
    ("x86-64-v4", "contraction", "mobilenetv2"): 2,
}
"""What does spill: the target, the kind of the kernel, the shape or model, and how many moves its worst kernel makes.
A debt: what is fixed is taken off, and nothing is added without a reason that was measured."""


def compiled(model: Path, target: str) -> Path:
    """The artifact of a model for a target, whether it runs here or not."""
    return compile_model(model, Options(target=target))


def spilling(folder: Path, name: str, target: str) -> dict[str, int]:
    """How many moves each kernel makes that spills more than it may."""
    found = kernel_resources(folder)
    assert found
    assert all(one.registers <= 32 for one in found.values())
    made: dict[str, int] = {}
    for kernel, one in found.items():
        kind = kernel.rpartition("_")[2]
        usual = 0 if kind in ("contraction", "winograd") else SPARED
        if len(one.spills) > KNOWN.get((target, kind, name), usual) and (target, kind) != WINDOWS:
            made[kernel] = len(one.spills)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", SHAPES)
def test_no_kernel_of_the_table_spills(shape: str, target: str, tmp_path: Path) -> None:
    onnx.save(SHAPES[shape](), tmp_path / "kernel.onnx")
    assert spilling(compiled(tmp_path / "kernel.onnx", target), shape, target) == {}


@pytest.mark.models
@pytest.mark.skipif(platform.machine() != "x86_64", reason="what is known was seen on x86-64")
@pytest.mark.parametrize("name", REAL)
def test_no_kernel_of_a_real_model_spills(name: str) -> None:
    assert spilling(compiled(fetch.path(name), "x86-64-v4"), name, "x86-64-v4") == {}

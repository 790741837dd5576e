"""What fake_model.c is: its manifest, its weights, what it computes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from opweld.build.artifact import Manifest
from opweld.interface import ModelMetadata, TensorInfo

WEIGHTS = b"\0" * 64 + struct.pack("f", 3.0)
SOURCE = Path(__file__).with_suffix(".c")

MANIFEST = Manifest(
    opweld="0",
    target="native",
    level="all",
    threads=2,
    inputs=(
        TensorInfo("x", "float32", ("N", 4)),
        TensorInfo("y", "float32", ("N", 4)),
        TensorInfo("index", "int64", ("K",)),
        TensorInfo("start", "int64", ()),
    ),
    outputs=(
        TensorInfo("total", "float32", ("N", 4)),
        TensorInfo("picked", "float32", ("K",)),
        TensorInfo("ranges", "int64", ("N",)),
    ),
    metadata=ModelMetadata(producer="hand", graph="fake", version=3, custom={"author": "nobody"}),
)

Build = Callable[..., Path]


def feeds_of(n: int, k: int = 3, start: int = 0, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "x": rng.standard_normal((n, 4), np.float32),
        "y": rng.standard_normal((n, 4), np.float32),
        "index": rng.integers(0, max(1, (n - start) * 4), k),
        "start": np.array(start),
    }


def expected_of(feeds: dict[str, Any]) -> tuple[Any, Any]:
    total = (feeds["x"] + feeds["y"]) * np.float32(3) + feeds["x"]
    return total, total.reshape(-1)[4 * int(feeds["start"]) :][feeds["index"]]


def check(outputs: list[Any], feeds: dict[str, Any]) -> None:
    total, picked = expected_of(feeds)
    # The compiler may contract neither: additions and multiplications lie in different kernels.
    np.testing.assert_array_equal(outputs[0], total)
    np.testing.assert_array_equal(outputs[1], picked)

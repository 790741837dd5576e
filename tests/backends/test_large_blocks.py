"""Blocks that no card has, for the interpreter: the same templates and answers, and nothing of them afterwards."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import opweld
from benchmarks.gpu_large_blocks import large_blocks
from tests.backends.test_cuda import check, parsed, text_of, weights
from tests.unit.frontend.models import model_of, node

NODES = (
    node("Conv", ["x", "v"], "c", pads=[1, 1, 1, 1]),
    node("Relu", ["c"], "r"),
    node("MatMul", ["r", "w"], "m"),
    node("Softmax", ["m"], "y"),
)


def test_templates_of_large_blocks_are_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPWELD_CACHE", str(tmp_path))
    model = model_of(NODES, {"x": (1, 3, 40, 33)}, ("y",), weights(v=(5, 3, 3, 3), w=(33, 300)))
    feeds = {"x": np.random.default_rng(0).standard_normal((1, 3, 40, 33), np.float32)}
    with large_blocks():
        text = text_of(check(model, feeds))
    assert "blocks of [256, 256], 64 of the sum at a time" in text
    monkeypatch.setenv("OPWELD_CACHE", str(tmp_path / "other"))
    assert "blocks of [256, 256]" not in text_of(opweld.compile(model, target="sm_90"))


def test_elements_of_large_blocks_end_where_the_values_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPWELD_CACHE", str(tmp_path))
    with large_blocks():
        compiled = check(parsed("g (float[n] x) => (float[n] y) { y = Mul (x, x) }"), {"x": np.ones(70001, np.float32)})
    assert np.array_equal(compiled.run({"x": np.ones(1, np.float32)})["y"], [1])

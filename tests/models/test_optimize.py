"""Real models rewritten: fewer nodes, in no larger a file, that give the same in ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from benchmarks.zoo import fetch, inputs
from opweld.account.regions import KERNELS, OUTCOME, Form
from opweld.accounts import left_without_compiler
from opweld.compile import keep_regions_of
from opweld.options import Options
from opweld.rewrite.optimize import optimize_model
from opweld.rewrite.write import save

pytestmark = pytest.mark.models

MOST_NODES = {
    "ppocrv4-det": 221,
    "ppocrv4-cls": 143,
    "layout-cdla": 333,
    "minilm": 140,
    "resnet50-raw": 122,
    "mobilenetv2-raw": 100,
    "silero-vad-fixed": 31,
    "ddddocr": 63,
}
"""Nodes that are left; fewer is better."""

TOLERANCE = 1e-4
"""Of the largest output. Weights are rounded once more; det's own error in ONNX Runtime is 1.3e-5."""


@pytest.mark.parametrize("name", MOST_NODES)
def test_the_zoo(name: str, tmp_path: Path) -> None:
    source, made = fetch.path(name), tmp_path / "made.onnx"
    done = optimize_model(source)
    save(done, made)
    assert sum(done.after.values()) <= MOST_NODES[name]
    assert made.stat().st_size <= source.stat().st_size
    before, after = (_session(path) for path in (source, made))
    assert [value.name for value in before.get_inputs()] == [value.name for value in after.get_inputs()]
    feeds = dict(inputs.example(name))
    for wanted, found in zip(before.run(None, feeds), after.run(None, feeds), strict=True):
        scale = float(np.max(np.abs(wanted), initial=0))
        np.testing.assert_allclose(found, wanted, rtol=0, atol=TOLERANCE * scale)


@pytest.mark.parametrize("form", ["metadata", "functions"])
def test_regions_of_a_transformer(form: Form, tmp_path: Path) -> None:
    source, plain, made = fetch.path("minilm"), tmp_path / "plain.onnx", tmp_path / "made.onnx"
    save(optimize_model(source), plain)
    done = optimize_model(source)
    kept = keep_regions_of(done, form)
    save(done, made)
    model = onnx.load(made)
    onnx.checker.check_model(model, full_check=True)
    feeds = dict(inputs.example("minilm"))
    for wanted, found in zip(_session(plain).run(None, feeds), _session(made).run(None, feeds), strict=True):
        np.testing.assert_array_equal(found, wanted, strict=True)
    inside = [node for function in model.functions for node in function.node]
    nodes = [node for node in (*model.graph.node, *inside) if node.domain != KERNELS]
    marks = [{entry.key: entry.value for entry in node.metadata_props} for node in nodes if node.op_type != "Constant"]
    assert len(marks) == sum(done.after.values())
    named = [mark[KERNELS].split(", ") if KERNELS in mark else [] for mark in marks]
    assert all(own for own, mark in zip(named, marks, strict=True) if mark[OUTCOME] in ("fused", "alone"))
    kernels = {kernel.name for kernel in left_without_compiler(plain, Options())[0].kernels if kernel.nodes}
    assert {name for own in named for name in own} == set(kept.kernels) == kernels
    several = sum(count > 1 for count in kept.kernels.values())
    assert len(model.functions) == len(kept.functions) >= (several // 2 if form == "functions" else 0)


def _session(path: Path) -> Any:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

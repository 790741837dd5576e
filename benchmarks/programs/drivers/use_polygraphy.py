"""Runs a model, and the same with all its values as outputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from polygraphy.backend.onnx import BytesFromOnnx, ModifyOutputs, OnnxFromPath
from polygraphy.backend.onnxrt import OnnxrtRunner, SessionFromOnnx
from polygraphy.constants import MARK_ALL


def prepare(folder: Path) -> Callable[[], Any]:
    source = OnnxFromPath(str(folder / "ppocrv4-cls.onnx"))
    everything = ModifyOutputs(source, outputs=MARK_ALL)
    runners = [OnnxrtRunner(SessionFromOnnx(BytesFromOnnx(model))) for model in (source, everything)]
    for runner in runners:
        runner.activate()
    picture = np.random.default_rng(0).random((2, 3, 48, 192), np.float32)

    def call() -> Any:
        return [dict(runner.infer({"x": picture})) for runner in runners]

    return call

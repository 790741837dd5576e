"""Simplifies a model, and has a runtime check that its answers stay."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxslim
from onnxslim.utils import onnxruntime_inference


def prepare(folder: Path) -> Callable[[], Any]:
    source = folder / "ppocrv4-cls.onnx"

    def call() -> Any:
        slimmed = onnxslim.slim(str(source), model_check=True, input_shapes=["x:1,3,48,192"])
        picture = np.random.default_rng(0).random((1, 3, 48, 192), np.float32)
        answers = [onnxruntime_inference(model, {"x": picture})[0] for model in (onnx.load(source), slimmed)]
        return {"nodes": len(slimmed.graph.node), "answers": answers}

    return call

"""Backgrounds removed by a small net made here."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from PIL import Image
from rembg import new_session, remove

from benchmarks.programs import material


def segmenter(path: Path) -> None:
    """Down twice, up twice, with shortcuts: [1, 3, 320, 320] -> [1, 1, 320, 320]."""
    random = np.random.default_rng(0)
    nodes: list[onnx.NodeProto] = []
    stored: list[onnx.TensorProto] = [numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "scales")]

    def convolve(x: str, name: str, inputs: int, outputs: int, stride: int = 1) -> str:
        weights = random.standard_normal((outputs, inputs, 3, 3)) / np.sqrt(9 * inputs)
        stored.append(numpy_helper.from_array(weights.astype(np.float32), f"{name}.weight"))
        nodes.append(
            helper.make_node("Conv", [x, f"{name}.weight"], [name], strides=[stride] * 2, pads=[1] * 4, name=name)
        )
        nodes.append(helper.make_node("Relu", [name], [f"{name}.relu"]))
        return f"{name}.relu"

    def enlarge(x: str) -> str:
        nodes.append(helper.make_node("Resize", [x, "", "scales"], [f"{x}.large"], mode="linear"))
        return f"{x}.large"

    first = convolve("input", "first", 3, 8)
    half = convolve(first, "half", 8, 16, 2)
    quarter = convolve(half, "quarter", 16, 32, 2)
    back = convolve(enlarge(quarter), "back", 32, 16)
    nodes.append(helper.make_node("Add", [back, half], ["joined"]))
    whole = convolve(enlarge("joined"), "whole", 16, 8)
    nodes.append(helper.make_node("Concat", [whole, first], ["both"], axis=1))
    stored.append(numpy_helper.from_array(random.standard_normal((1, 16, 1, 1)).astype(np.float32) / 4, "last.weight"))
    nodes.append(helper.make_node("Conv", ["both", "last.weight"], ["last"]))
    nodes.append(helper.make_node("Sigmoid", ["last"], ["mask"]))
    inputs = [helper.make_tensor_value_info("input", TensorProto.FLOAT, [1, 3, 320, 320])]
    outputs = [helper.make_tensor_value_info("mask", TensorProto.FLOAT, [1, 1, 320, 320])]
    graph = helper.make_graph(nodes, "segmenter", inputs, outputs, stored)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def prepare(folder: Path) -> Callable[[], Any]:
    model = folder / "segmenter.onnx"
    segmenter(model)
    os.environ["U2NET_HOME"] = str(folder)  # models may lie there only
    session = new_session("u2net_custom", model_path=str(model))
    picture = Image.fromarray(material.photograph())

    def call() -> Any:
        mask = np.asarray(remove(picture, session=session, only_mask=True), np.float32)
        raw = session.inner_session.run(None, session.normalize(picture, (0.5,) * 3, (0.2,) * 3, (320, 320)))
        return {"mask": mask.mean(), "raw": raw[0]}

    return call

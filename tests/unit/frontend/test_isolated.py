from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from opweld.errors import ToolchainError, UnsupportedError
from opweld.frontend import isolated
from opweld.frontend.onnx import load
from tests.unit.frontend.models import model_of, node


def aborting() -> onnx.ModelProto:
    """onnx takes a negative dim for a size, and an assertion of the C++ library ends the process."""
    weights = {"start": np.array([0]), "end": np.array([1])}
    return model_of([node("Slice", ["x", "start", "end"], "y")], {"x": [-1]}, ["y"], weights, opset=17)


def test_the_answer_is_that_of_onnx() -> None:
    model = model_of([node("Softmax", ["x"], "y", axis=1)], {"x": [2, 3, 4]}, ["y"], opset=11, ir_version=6)
    assert isolated.convert_version(model, 13) == onnx.version_converter.convert_version(model, 13)
    assert isolated.infer_shapes(model) == onnx.shape_inference.infer_shapes(model)


def test_what_onnx_says_is_told() -> None:
    model = model_of([node("Frobnicate", ["x"], "y")], {"x": [2, 3]}, ["y"])
    model.graph.node[0].domain = "elsewhere"
    model.graph.node.append(node("Cast", ["y"], "z", to=1))
    with pytest.raises(isolated.LibraryError, match="make_y"):
        isolated.convert_version(model, 28)
    with pytest.raises(UnsupportedError, match=r"opset 23 to 28.*make_y"):
        load(model)


def test_an_abort_is_an_error() -> None:
    with pytest.raises(isolated.LibraryError, match="SIGABRT"):
        isolated.convert_version(aborting(), 18)


def test_time_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("mine", 1)]
    functions: list[onnx.FunctionProto] = []
    for number in range(40):
        body = [helper.make_node(f"F{number + 1}", [a], [b], domain="mine") for a, b in (("a", "t"), ("t", "b"))]
        functions.append(helper.make_function("mine", f"F{number}", ["a"], ["b"], body, imports))
    functions.append(
        helper.make_function("mine", "F40", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])], imports)
    )
    call = helper.make_node("F0", ["x"], ["y"], domain="mine")
    model = model_of([call], {"x": [3]}, ["y"], opset=18, functions=functions)
    monkeypatch.setattr(isolated, "MAX_SECONDS", 1)
    with pytest.raises(isolated.LibraryError, match="within 1 s"):
        isolated.inline_local_functions(model, True)


def test_memory_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    model = model_of([node("Relu", ["x"], "y")], {"x": [2]}, ["y"])
    monkeypatch.setattr(isolated, "MAX_BYTES", 1 << 20)
    with pytest.raises(isolated.LibraryError):
        isolated.convert_version(model, 24)


def test_a_python_that_does_not_start_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("multiprocessing.spawn.get_executable", lambda: os.fspath(tmp_path / "absent"))
    with pytest.raises(ToolchainError, match="absent"):
        isolated.infer_shapes(aborting())


def test_definitions_are_those_of_onnx() -> None:
    """Of an operator whose meaning depends on which inputs and outputs the node has."""
    floats = helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [3, 5])
    labels = helper.make_tensor_type_proto(onnx.TensorProto.INT64, [3])
    schema: Any = onnx.defs.get_schema("SoftmaxCrossEntropyLoss", 13, "")
    requests: list[isolated.Definition] = []
    wanted: list[onnx.FunctionProto] = []
    for outputs in (["y"], ["y", "log"]):
        one = helper.make_node(schema.name, ["x", "t"], outputs)
        given = [floats.SerializeToString(), labels.SerializeToString()]
        body = schema.get_context_dependent_function(one.SerializeToString(), given)
        wanted.append(onnx.FunctionProto.FromString(body))
        requests.append(isolated.Definition(0, schema.name, 13, "", one, [floats, labels]))
    assert isolated.definitions(requests) == wanted and wanted[0] != wanted[1]
    assert isolated.definitions([]) == []

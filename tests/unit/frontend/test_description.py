from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from opweld.frontend.description import describe
from opweld.frontend.explore import segments
from opweld.frontend.graph import graph_of
from opweld.frontend.onnx import Loaded, load_file
from opweld.frontend.program import Description
from opweld.interface import TensorInfo
from tests.unit.frontend.models import model_of, node


def description(loaded: Loaded, dims: dict[str, int] | None = None) -> Description:
    found = segments(graph_of(loaded.model), dims)
    return describe(found, dims or {}, loaded.metadata, loaded.structure, loaded.library)


@pytest.mark.parametrize(
    "declared", [onnx.TensorProto.INT64, onnx.TensorProto.UNDEFINED, onnx.TensorProto.STRING, None]
)
def test_outputs_have_the_element_type_that_is_computed(declared: int | None) -> None:
    model = model_of([node("Shape", ["x"], "y")], {"x": ["n", 3]}, ["y"])
    model.graph.output[0].ClearField("type")
    if declared is not None:
        model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", declared, [2]))
    loaded = load_file(model)
    found = description(loaded)
    assert found.inputs == (TensorInfo("x", "float32", ("n", 3)),)
    assert found.outputs == (TensorInfo("y", "int64", (2,)),)


def test_outputs_of_bodies_and_inputs_passed_through_are_described() -> None:
    def body(op: str) -> onnx.GraphProto:
        out = helper.make_tensor_value_info("b", onnx.TensorProto.FLOAT, None)
        return helper.make_graph([helper.make_node(op, ["x"], ["b"])], op, [], [out])

    branch = helper.make_node("If", ["c"], ["y"], then_branch=body("Relu"), else_branch=body("Neg"))
    model = model_of([branch], {"x": ["n"]}, ["y", "x"], {"c": np.array(True)})
    loaded = load_file(model)
    found = description(loaded)
    assert [info.dtype for info in found.outputs] == ["float32", "float32"]
    assert found.nodes == 3


def test_a_name_holds_where_every_end_of_the_model_has_it() -> None:
    """What differs by the branch that is taken has no name, what does not has."""

    def body(made: onnx.NodeProto) -> onnx.GraphProto:
        out = helper.make_tensor_value_info("b", onnx.TensorProto.FLOAT, None)
        return helper.make_graph([made], made.op_type, [], [out])

    same = body(helper.make_node("Relu", ["x"], ["b"]))
    twice = body(helper.make_node("Concat", ["x", "x"], ["b"], axis=0))
    branch = helper.make_node("If", ["c"], ["y"], then_branch=same, else_branch=twice)
    model = model_of([branch], {"x": ["n", "m"]}, ["y"])
    model.graph.input.append(helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, []))
    loaded = load_file(model)
    assert description(loaded).outputs[0].shape == ("", "m")
    fixed = load_file(model)
    assert description(fixed, {"m": 4}).outputs[0].shape == ("", 4)

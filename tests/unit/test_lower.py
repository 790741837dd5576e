from __future__ import annotations

import itertools

import numpy as np
from onnx import TensorProto, helper

from opweld.tensor.program import Tensor
from tests.unit.frontend.models import model_of, node
from tests.unit.ops.one_node import normal, programs_of, run


def test_an_output_may_be_an_input_a_weight_or_an_intermediate_value() -> None:
    nodes = [
        node("Identity", ["x"], "copy"),
        node("Relu", ["x"], "mid"),
        node("Neg", ["mid"], "y"),
        node("Identity", ["w"], "v"),
    ]
    model = model_of(nodes, {"x": ["n"]}, ["copy", "mid", "y", "v"], {"w": normal(5)})
    (program,) = programs_of(model)
    assert dict(program.outputs)["copy"] == "x"
    x = normal(3)
    results = run([program], {"x": x})
    assert (results["copy"] == x).all() and (results["mid"] == np.maximum(x, 0)).all()
    assert (results["v"] == normal(5)).all() and (results["y"] == -results["mid"]).all()


def test_one_value_may_be_two_outputs() -> None:
    nodes = [node("Relu", ["x"], "a"), node("Identity", ["a"], "b")]
    (program,) = programs_of(model_of(nodes, {"x": [3]}, ["a", "b"]))
    assert len(program.items) == 1 and len(program.outputs) == 2


def test_only_what_outputs_need_is_lowered() -> None:
    nodes = [node("Relu", ["x"], "y"), node("Exp", ["x"], "dead"), node("Frobnicate", ["x"], "odd")]
    nodes[2].domain = "nowhere"
    model = model_of(nodes[:2], {"x": [3], "unused": ["m"]}, ["y"])
    (program,) = programs_of(model)
    assert [item.origin for item in program.items if isinstance(item, Tensor)] == [("make_y",)]
    assert [value.name for value in program.inputs] == ["x", "unused"]
    assert [source.input for source in program.symbols] == ["unused"]


def test_shape_arithmetic_disappears() -> None:
    nodes = [
        node("Shape", ["x"], "shape"),
        node("Gather", ["shape", "zero"], "n"),
        node("Concat", ["n", "rest"], "target", axis=0),
        node("Reshape", ["x", "target"], "y"),
    ]
    weights = {"zero": np.array([0]), "rest": np.array([2, -1])}
    (program,) = programs_of(model_of(nodes, {"x": ["n", 6]}, ["y"], weights))
    assert len(program.items) == 1 and not program.constants


def test_known_elements_are_made_on_demand() -> None:
    nodes = [
        node("Shape", ["x"], "shape"),
        node("Mul", ["shape", "two"], "y"),
        node("Size", ["x"], "size"),
        node("Cast", ["size"], "z", to=TensorProto.FLOAT),
    ]
    (program,) = programs_of(
        model_of(nodes, {"x": ["n", 6]}, ["y", "z"], {"two": np.array([2])}, kinds={"y": TensorProto.INT64})
    )
    results = run([program], {"x": normal(4, 6)})
    assert results["y"].tolist() == [8, 12] and results["y"].dtype == np.int64
    assert results["z"].item() == 24.0 and results["z"].dtype == np.float32


def test_names_of_the_model_do_not_become_names_of_tensors() -> None:
    wild = ['a"b', "c\nd", "*/ e", "ü::f", "g" * 100_000, "t0_relu"]
    names = ["x", *wild]
    nodes = [helper.make_node("Relu", [a], [b], name=b) for a, b in itertools.pairwise(names)]
    (program,) = programs_of(model_of(nodes, {"x": [2]}, [wild[-1]]))
    inner = [item.name for item in program.items if isinstance(item, Tensor)]
    assert len(set(inner)) == len(wild)
    assert all(name.isascii() and name.isidentifier() and len(name) < 60 for name in inner)
    assert program.outputs[0][0] == wild[-1]


def test_a_generated_name_never_takes_the_name_of_an_input() -> None:
    (program,) = programs_of(model_of([node("Relu", ["t0_relu"], "y")], {"t0_relu": [2]}, ["y"]))
    assert program.items[0] not in ("t0_relu",) and program.outputs[0][1] != "t0_relu"

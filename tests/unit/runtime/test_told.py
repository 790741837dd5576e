"""What get_inputs and get_outputs tell of a model: the same as onnxruntime's, whatever is inferred beyond it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import opweld
from opweld.errors import UnspecifiedError
from opweld.onnxruntime import SessionOptions

FLOAT = TensorProto.FLOAT

Case = tuple[list[onnx.NodeProto], onnx.ValueInfoProto, onnx.ValueInfoProto]
"""Nodes, input, output."""


def model(nodes: list[onnx.NodeProto], given: onnx.ValueInfoProto, made: onnx.ValueInfoProto) -> bytes:
    """One input, one output; weights w of shape [8, 4] s, which is [-1, 4], zero and one."""
    weights = {"w": np.ones((8, 4), np.float32), "s": np.array([-1, 4]), "zero": np.array([0]), "one": np.array([1])}
    stored = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "g", [given], [made], stored)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return proto.SerializeToString()


def x(*shape: int | str | None, kind: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info("x", kind, shape)


def y(*shape: int | str | None, kind: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info("y", kind, shape)


NO_SHAPE = helper.make_tensor_value_info("y", FLOAT, None)
IDENTITY = [helper.make_node("Identity", ["x"], ["y"])]
RELU = [helper.make_node("Relu", ["x"], ["y"])]
MATMUL = [helper.make_node("MatMul", ["x", "w"], ["y"])]
NONZERO = [helper.make_node("NonZero", ["x"], ["y"])]
TWICE = [helper.make_node("Concat", ["x", "x"], ["y"], axis=0)]
# Computed as it runs, for who does not follow the values of shapes.
SAME_SHAPE = [helper.make_node("Shape", ["x"], ["shape"]), helper.make_node("Reshape", ["x", "shape"], ["y"])]
SLICED = [
    SAME_SHAPE[0],
    helper.make_node("Gather", ["shape", "one"], ["two"]),
    helper.make_node("Add", ["two", "one"], ["three"]),
    helper.make_node("Slice", ["shape", "zero", "three"], ["kept"]),
    helper.make_node("Reshape", ["x", "kept"], ["y"]),
]
SPLIT = [helper.make_node("SplitToSequence", ["x"], ["y"], axis=1)]
HAS = [helper.make_node("OptionalHasElement", ["x"], ["y"])]
OPTIONAL = helper.make_optional_type_proto(helper.make_tensor_type_proto(FLOAT, ["n"]))

CASES: dict[str, Case] = {
    "sizes that all can infer, for names": (MATMUL, x("n", 8), y("a", "b")),
    "sizes that all can infer, for dims without a name": (MATMUL, x("n", 8), y(None, None)),
    "nothing declared": (MATMUL, x("n", 8), NO_SHAPE),
    "a size for a name": (RELU, x("n", 8), y(3, 8)),
    "another name": (RELU, x("n", 8), y("m", 8)),
    "dims without names": (RELU, x(None, 8), y(None, 8)),
    "negative dims": (RELU, x(-1, 8), y(-1, 8)),
    "a size of zero": (RELU, x(0, 8), y(0, 8)),
    "a scalar": (RELU, x(), y()),
    "sizes that depend on data": (NONZERO, x("n", 8), y("r", "c", kind=TensorProto.INT64)),
    "sizes without names that depend on data": (NONZERO, x("n", 8), y(None, None, kind=TensorProto.INT64)),
    "a size that is twice another": (TWICE, x("n", 8), y("twice", 8)),
    "a size that is twice another, undeclared": (TWICE, x("n", 8), NO_SHAPE),
    "a stored shape": ([helper.make_node("Reshape", ["x", "s"], ["y"])], x("n", 8), y("p", "q")),
    "sizes that only opweld infers": (SAME_SHAPE, x("n", 8), y("p", "q")),
    "sizes that only opweld infers, for dims without a name": (SAME_SHAPE, x("n", 8), y(None, None)),
    "another rank than declared": (SLICED, x("n", 2, 8), y(1, "seqlen")),
    "strings": (IDENTITY, x("n", kind=TensorProto.STRING), y("n", kind=TensorProto.STRING)),
    "no rank": (RELU, helper.make_tensor_value_info("x", FLOAT, None), NO_SHAPE),
    "a sequence": (SPLIT, x("n", 2), helper.make_tensor_sequence_value_info("y", FLOAT, ["n", 1])),
    "an optional": (HAS, helper.make_value_info("x", OPTIONAL), y(kind=TensorProto.BOOL)),
}


def told(session: Any) -> list[list[tuple[str, str, list[Any]]]]:
    return [[(v.name, v.type, v.shape) for v in found] for found in (session.get_inputs(), session.get_outputs())]


@pytest.mark.parametrize("case", CASES)
def test_the_interface_is_that_of_onnxruntime(case: str) -> None:
    data = model(*CASES[case])
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # it warns of a rank that is not as declared
    theirs = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    assert told(opweld.InferenceSession(data)) == told(theirs)


def test_what_is_told_is_no_promise_and_what_is_inferred_is_kept() -> None:
    data = model(*CASES["another rank than declared"])
    session = opweld.InferenceSession(data)
    assert session.get_outputs()[0].shape == [1, "seqlen"]
    assert session.run(None, {"x": np.ones((3, 2, 8), np.float32)})[0].shape == (3, 2, 8)
    assert opweld.compile(data).outputs[0].shape == ("n", 2, 8)


def test_sizes_that_are_fixed_are_told() -> None:
    data = model(*CASES["sizes that only opweld infers"])
    options = SessionOptions()
    options.add_free_dimension_override_by_name("n", 5)
    assert told(opweld.InferenceSession(data, options))[1] == [("y", "tensor(float)", [5, 8])]


def test_an_artifact_tells_the_same(tmp_path: Any) -> None:
    data = model(*CASES["another rank than declared"])
    folder = opweld.compile(data).save(tmp_path / "m.opweld")
    assert told(opweld.InferenceSession(folder)) == told(opweld.InferenceSession(data))


def test_models_that_must_be_fed_first_are_among_the_cases() -> None:
    with pytest.raises(UnspecifiedError):
        opweld.compile(model(*CASES["no rank"]))

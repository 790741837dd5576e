"""Models of opsets 1 to 6, whose operands are aligned to an axis, and which cast to types by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import opweld
from opweld.errors import ModelError, UnsupportedError
from tests.unit.ops.one_node import make_model, normal, programs_of, run

X = np.random.default_rng(0).standard_normal((2, 3, 4, 5)).astype(np.float32)


def _model(op_type: str, part: np.ndarray, opset: int, **attributes: Any) -> onnx.ModelProto:
    node = helper.make_node(op_type, ["x", "part"], ["y"], **attributes)
    graph = helper.make_graph(
        [node],
        op_type,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, X.shape)],
        initializer=[onnx.numpy_helper.from_array(part, "part")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=3)


def _run(model: onnx.ModelProto) -> np.ndarray:
    return opweld.compile(model).run({"x": X})["y"]


@pytest.mark.parametrize("opset", [1, 6])
@pytest.mark.parametrize(
    ("op_type", "meaning"),
    [("Add", np.add), ("Sub", np.subtract), ("Mul", np.multiply), ("Div", np.divide)],
)
def test_an_operand_begins_at_an_axis(opset: int, op_type: str, meaning: Any) -> None:
    channels = np.array([1.5, -2.0, 3.0], np.float32)
    rows = np.arange(1, 13, dtype=np.float32).reshape(3, 4)
    for part, aligned in ((channels, channels[:, None, None]), (rows, rows[:, :, None])):
        for axis in (1, -3):
            y = _run(_model(op_type, part, opset, broadcast=1, axis=axis))
            np.testing.assert_array_equal(y, meaning(X, aligned))


@pytest.mark.parametrize("opset", [1, 6])
def test_an_operand_without_an_axis_ends_with_the_other(opset: int) -> None:
    part = np.arange(5, dtype=np.float32)
    np.testing.assert_array_equal(_run(_model("Add", part, opset, broadcast=1)), X + part)


@pytest.mark.parametrize("count", [1, 3])
def test_slopes_are_those_of_channels(count: int) -> None:
    slopes = np.array([0.5, -1.0, 2.0], np.float32)[:count]
    y = _run(_model("PRelu", slopes, 6))
    np.testing.assert_array_equal(y, np.where(X < 0, X * slopes[:, None, None], X))


@pytest.mark.parametrize("opset", [1, 6])
@pytest.mark.parametrize(("op_type", "meaning"), [("Add", np.add), ("PRelu", lambda x, a: np.where(x < 0, x * a, x))])
def test_an_operand_begins_at_a_symbolic_axis(opset: int, op_type: str, meaning: Any) -> None:
    """onnx's converter asks for the sizes of what it drops `broadcast` of."""
    stated: dict[str, Any] = {"broadcast": 1, "axis": 1} if op_type == "Add" else {}
    channels = np.array([1.5, -2.0, 3.0], np.float32)
    stated |= {"consumed_inputs": [0, 0]} if opset == 1 else {}
    dims = {0: ["N", "C", "H", "W"]}
    model = make_model(op_type, [X, channels], opset=opset, dims=dims, constant=[1], **stated)
    for x in (X, X[:1, :, 2:]):
        found = run(programs_of(model), {"x0": x})["y0"]
        np.testing.assert_array_equal(found, meaning(x, channels[:, None, None]))


@pytest.mark.parametrize("opset", [1, 6])
@pytest.mark.parametrize("bias", [(4,), (1, 4), (1,)])
def test_a_product_of_a_symbolic_batch(opset: int, bias: tuple[int, ...]) -> None:
    arrays = [normal(5, 3), normal(3, 4, seed=1), normal(*bias, seed=2)]
    model = make_model("Gemm", arrays, opset=opset, dims={0: ["N", 3]}, constant=[1, 2], broadcast=1, alpha=0.5)
    for x in (arrays[0], arrays[0][:1]):
        found = run(programs_of(model), {"x0": x})["y0"]
        np.testing.assert_allclose(found, 0.5 * (x @ arrays[1]) + arrays[2], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "dtype"), [("FLOAT16", np.float16), ("INT64", np.int64), ("BOOL", np.bool_)])
def test_a_type_by_name(name: str, dtype: Any) -> None:
    found = run(programs_of(make_model("Cast", [X], opset=1, to=name)), {"x0": X})["y0"]
    np.testing.assert_array_equal(found, X.astype(dtype), strict=True)


@pytest.mark.parametrize(("op_type", "opset"), [("GRU", 1), ("GRU", 3), ("LSTM", 1), ("RNN", 6)])
def test_recurrences(op_type: str, opset: int) -> None:
    gates = {"GRU": 3, "LSTM": 4, "RNN": 1}[op_type]
    arrays = [normal(3, 2, 5), normal(1, gates * 4, 5, seed=1), normal(1, gates * 4, 4, seed=2)]
    model = make_model(op_type, arrays, 2, (1, 2), opset=opset, hidden_size=4, output_sequence=1)
    newer = make_model(op_type, arrays, 2, (1, 2), opset=14, hidden_size=4)
    found = run(programs_of(model), {"x0": arrays[0]})
    expected: Any = ReferenceEvaluator(newer).run(None, {"x0": arrays[0]})
    for name, wanted in zip(("y0", "y1"), expected, strict=True):
        np.testing.assert_allclose(found[name], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("opset", [1, 2])
def test_what_attributes_said(opset: int) -> None:
    pads: dict[str, Any] = {"paddings" if opset == 1 else "pads": [0, 0, 1, 0, 0, 0, 0, 2]}
    found = run(programs_of(make_model("Pad", [X], opset=opset, value=1.5, **pads)), {"x0": X})["y0"]
    np.testing.assert_array_equal(found, np.pad(X, ((0, 0), (0, 0), (1, 0), (0, 2)), constant_values=1.5))
    choices: list[dict[str, Any]] = [{"split": [1, 3]}, {}]
    for stated in choices:
        parts = run(programs_of(make_model("Split", [X], 2, opset=opset, axis=2, **stated)), {"x0": X})
        for name, wanted in zip(("y0", "y1"), np.split(X, [1 if stated else 2], axis=2), strict=True):
            np.testing.assert_array_equal(parts[name], wanted)


@pytest.mark.parametrize("dims", [{}, {0: ["N", 3, "H", 5]}])
def test_what_inputs_said_as_floats(dims: dict[int, Any]) -> None:
    """Sizes of Split, and the copies and the axis of Tile, are inputs of the data's type in opset 1."""
    sizes = np.array([1, 0, 2], np.float32)
    model = make_model("Split", [X, sizes], 3, opset=1, axis=1, constant=[1], dims=dims)
    parts = run(programs_of(model), {"x0": X})
    for name, wanted in zip(("y0", "y1", "y2"), np.split(X, [1, 1], axis=1), strict=True):
        np.testing.assert_array_equal(parts[name], wanted)
    for copies, axis, shape in ((3, 2, ()), (2, -1, (1,)), (1, 0, ())):
        numbers = [np.full(shape, number, np.float32) for number in (copies, axis)]
        model = make_model("Tile", [X, *numbers], opset=1, constant=[1, 2], dims=dims)
        found = run(programs_of(model), {"x0": X})["y0"]
        np.testing.assert_array_equal(found, np.concatenate([X] * copies, axis=axis))


def test_sizes_that_are_said_twice_are_refused() -> None:
    model = make_model("Split", [X, np.array([1, 2], np.float32)], 2, opset=1, axis=1, split=[2, 1], constant=[1])
    with pytest.raises(ModelError, match="its sizes are both an attribute and an input"):
        programs_of(model)


@pytest.mark.parametrize("opset", [1, 2])
def test_norms_of_a_window(opset: int) -> None:
    p: Any = 3.0 if opset == 1 else 3
    found = run(programs_of(make_model("GlobalLpPool", [X], opset=opset, p=p)), {"x0": X})["y0"]
    wanted = (np.abs(X) ** 3).sum(axis=(2, 3), keepdims=True) ** (1 / 3)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_a_type_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ModelError, match=r"the_Cast.*FLOATS"):
        programs_of(make_model("Cast", [X], opset=1, to="FLOATS"))


def test_a_rank_that_nobody_knows_is_refused() -> None:
    model = _model("Add", np.arange(3, dtype=np.float32), 6, broadcast=1, axis=1)
    unknown = helper.make_node("Unknown", ["x"], ["z"], domain="somewhere")
    model.graph.node.insert(0, unknown)
    model.graph.node[1].input[0] = "z"
    model.opset_import.append(helper.make_opsetid("somewhere", 1))
    with pytest.raises(UnsupportedError, match="aligned to axis 1, and its rank is unknown"):
        opweld.compile(model)


@pytest.mark.parametrize("axis", [-(2**31), -5, 5, 2**31])
def test_an_axis_that_does_not_exist_is_refused(axis: int) -> None:
    """Ones as many as the axis is far once filled the memory."""
    with pytest.raises(ModelError, match=f"its first operand has 4 axes, and none is axis {axis}"):
        opweld.compile(_model("Add", np.arange(3, dtype=np.float32), 6, broadcast=1, axis=axis))

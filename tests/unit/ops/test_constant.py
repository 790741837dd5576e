from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import opweld
from opweld.errors import AssumptionError, ModelError
from opweld.tensor.dim import as_dim
from opweld.tensor.flow import interpret_flow
from tests.unit.ops.one_node import check, feeds_of, flow_of, make_model, programs_of, run


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@pytest.mark.parametrize(
    "value", [np.array([1.5], np.float32), np.array([7], np.int64), np.array([True]), np.array([3], np.uint8)]
)
def test_constant_of_shape(value: np.ndarray) -> None:
    for shape in (ints(2, 3), ints(), ints(0, 4)):
        check("ConstantOfShape", [shape], constant=(0,), value=numpy_helper.from_array(value))
    check("ConstantOfShape", [ints(2, 3)], value=numpy_helper.from_array(value), more=[[ints(1, 7)]])


@pytest.mark.parametrize("k", [-9, -1, 0, 2])
def test_eye_like(k: int) -> None:
    for shape in ((3, 5), (4, 2), (1, 1), (0, 3)):
        check("EyeLike", [np.zeros(shape, np.float32)], k=k)
    check("EyeLike", [np.zeros((3, 4), np.int32)], k=k, dtype=TensorProto.DOUBLE)
    check("EyeLike", [np.zeros((3, 4), np.float32)], k=k, dtype=TensorProto.BOOL)
    check("EyeLike", [np.zeros((3, 4), np.float32)], k=k, dims={0: ("m", "n")}, more=[[np.zeros((1, 7), np.float32)]])


def test_nothing_is_allocated_for_a_declared_shape() -> None:
    (program,) = programs_of(make_model("ConstantOfShape", [ints(10**6, 10**6, 10**3)], constant=(0,)))
    assert program.shape_of(program.outputs[0][1]) == tuple(map(as_dim, (10**6, 10**6, 10**3)))
    with pytest.raises(ModelError, match="more elements than memory"):
        programs_of(make_model("ConstantOfShape", [ints(10**9, 10**9, 10**9)], constant=(0,)))


@pytest.mark.parametrize(("start", "limit", "step"), [(0, 5, 1), (2, 11, 3), (5, 0, -2), (3, 3, 1), (5, 2, 1)])
def test_range(start: int, limit: int, step: int) -> None:
    check("Range", [np.array(v, np.int64) for v in (start, limit, step)], constant=(0, 1, 2))
    check("Range", [np.array(v, np.int32) for v in (start, limit, step)], constant=(0, 1, 2))
    check("Range", [np.array(v, np.float32) for v in (start, limit, step)], constant=(0, 1, 2))


def test_range_to_a_fed_limit() -> None:
    operands = [np.array(v, np.int64) for v in (0, 5, 1)]
    check("Range", operands, constant=(0, 2), more=[[operands[0], np.array(9, np.int64), operands[2]]])


def test_range_without_end_is_refused() -> None:
    with pytest.raises(ModelError, match="the_Range"):
        programs_of(make_model("Range", [np.array(v, np.int64) for v in (0, 5, 0)], constant=(0, 1, 2)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.int32])
def test_a_range_that_data_tells(dtype: type) -> None:
    bounds = [(0, 5, 1), (2, -7, -2), (3, 3, 1), (4, 1, 2), (1, 10, 3)]
    every = [[np.array(value, dtype) for value in values] for values in bounds]
    check("Range", every[0], more=every[1:])


def _fed_range(*bounds: float, dtype: type = np.int64) -> tuple[opweld.Model, dict[str, np.ndarray]]:
    operands = [np.array(bound, dtype) for bound in bounds]
    return opweld.compile(make_model("Range", operands)), feeds_of(operands, ())


def test_a_range_between_any_two_integers_is_counted_exactly() -> None:
    top, bottom = 2**63 - 1, -(2**63)
    for bounds in ((top - 2, top, 1), (bottom + 5, bottom, -2), (bottom, top, 2**62), (top, bottom, bottom), (1, 0, 1)):
        model, feeds = _fed_range(*bounds)
        assert next(iter(model.run(feeds).values())).tolist() == list(range(*bounds))
        assert interpret_flow(flow_of(make_model("Range", list(feeds.values()))), feeds)["y0"].tolist() == list(
            range(*bounds)
        )


@pytest.mark.parametrize("bounds", [(-(2**62), 2**62, 1), (0, 5, 0), (5, 0, 0), (0, 0, 0), (0, 2**60, 3)])
@pytest.mark.parametrize("dtype", [np.int64, np.float32])
def test_a_range_without_end_is_no_empty_one(bounds: tuple[int, int, int], dtype: type) -> None:
    model, feeds = _fed_range(*bounds, dtype=dtype)
    with pytest.raises(AssumptionError, match=r"the_Range.*the range has an end"):
        model.run(feeds)


@pytest.mark.parametrize(
    "attributes", [{"value_int": 3}, {"value_ints": [1, 2]}, {"value_float": 0.5}, {"value_floats": [1.0, -2.0]}]
)
def test_a_constant_may_be_an_output(attributes: dict[str, Any]) -> None:
    node = helper.make_node("Constant", [], ["y0"], **attributes)
    graph = helper.make_graph([node], "g", [], [helper.make_tensor_value_info("y0", TensorProto.UNDEFINED, None)])
    graph.output[0].ClearField("type")
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)
    assert run(programs_of(model), {})["y0"].tolist() == pytest.approx(next(iter(attributes.values())))


def _by_reference(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> np.ndarray:
    outputs: Any = ReferenceEvaluator(model).run(None, feeds)
    return outputs[0]


def _range_of_sizes(*nodes: onnx.NodeProto, dtype: int = TensorProto.FLOAT) -> onnx.ModelProto:
    """x[N] -> a range whose bounds the nodes compute of N, which they read as `size`, and whose values are `y`."""
    head = [helper.make_node("Shape", ["x"], ["shape"]), helper.make_node("Squeeze", ["shape"], ["size"])]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [*head, *nodes],
        "g",
        [info("x", TensorProto.FLOAT, ["N"])],
        [info("y", dtype, ["M"])],
        [
            helper.make_tensor(name, TensorProto.FLOAT, [], [value])
            for name, value in {"none": 0.0, "one": 1.0, "half": 0.5, "eight": 8.0, "three": 3.0, "back": -2.0}.items()
        ],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


_AS_FLOAT = helper.make_node("Cast", ["size"], ["f"], to=TensorProto.FLOAT)


@pytest.mark.parametrize(
    "nodes",
    [
        [_AS_FLOAT, helper.make_node("Range", ["none", "f", "one"], ["y"])],
        [_AS_FLOAT, helper.make_node("Range", ["half", "f", "half"], ["y"])],
        [_AS_FLOAT, helper.make_node("Range", ["f", "none", "back"], ["y"])],
        [_AS_FLOAT, helper.make_node("Range", ["none", "f", "three"], ["y"])],
        [
            _AS_FLOAT,
            helper.make_node("Div", ["f", "eight"], ["d"]),
            helper.make_node("Ceil", ["d"], ["c"]),
            helper.make_node("Range", ["none", "c", "one"], ["y"]),
        ],
        [
            _AS_FLOAT,
            helper.make_node("Mul", ["f", "half"], ["d"]),
            helper.make_node("Range", ["none", "d", "one"], ["y"]),
        ],
    ],
)
def test_a_range_of_floats_over_sizes_is_a_size(nodes: list[onnx.NodeProto]) -> None:
    model = _range_of_sizes(*nodes)
    flow = flow_of(model)
    assert len(flow.segments) == 1
    for size in (1, 2, 7, 40, 129):
        feeds = {"x": np.zeros(size, np.float32)}
        expected = _by_reference(model, feeds)
        np.testing.assert_array_equal(interpret_flow(flow, feeds)["y"], expected, strict=True)
        np.testing.assert_array_equal(opweld.compile(model).run(feeds)["y"], expected, strict=True)


@pytest.mark.parametrize("bounds", [("size", "end", "size"), ("end", "size", "less"), ("size", "end", "twice")])
def test_a_range_by_a_step_that_is_a_size_is_one(bounds: tuple[str, str, str]) -> None:
    nodes = [
        helper.make_node("Constant", [], ["seven"], value_int=7),
        helper.make_node("Mul", ["size", "seven"], ["end"]),
        helper.make_node("Add", ["size", "size"], ["twice"]),
        helper.make_node("Neg", ["size"], ["less"]),
        helper.make_node("Range", list(bounds), ["y"]),
    ]
    model = _range_of_sizes(*nodes, dtype=TensorProto.INT64)
    flow = flow_of(model)
    assert len(flow.segments) == 1
    for size in (1, 5, 12):
        feeds = {"x": np.zeros(size, np.float32)}
        expected = _by_reference(model, feeds)
        np.testing.assert_array_equal(interpret_flow(flow, feeds)["y"], expected, strict=True)
        np.testing.assert_array_equal(opweld.compile(model).run(feeds)["y"], expected, strict=True)


def test_a_range_of_floats_that_may_be_rounded_is_counted_as_it_runs() -> None:
    third = helper.make_node("Div", ["f", "three"], ["d"])
    model = _range_of_sizes(_AS_FLOAT, third, helper.make_node("Range", ["none", "d", "half"], ["y"]))
    feeds = {"x": np.zeros(10, np.float32)}
    expected = _by_reference(model, feeds)
    np.testing.assert_array_equal(opweld.compile(model).run(feeds)["y"], expected, strict=True)

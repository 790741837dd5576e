from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from opweld.errors import ModelError, UnsupportedError
from opweld.tensor.flow import interpret_flow
from opweld.tensor.program import Scan, TensorProgram
from tests.unit.ops.one_node import flow_of, normal, programs_of, run

F = TensorProto.FLOAT
Node = onnx.NodeProto


def value(name: str, *dims: Any) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, F, list(dims))


def untyped(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, F, None)


def scan_model(
    nodes: Sequence[Node],
    states: dict[str, Sequence[Any]],
    scanned: dict[str, Sequence[Any]],
    results: Sequence[str],
    others: dict[str, Sequence[Any]] | None = None,
    **attributes: Any,
) -> onnx.ModelProto:
    """A model of one Scan. Body inputs are `NAME_in`; `results` are the body's outputs, which are `y0`, `y1`, ..."""
    inner = [untyped(f"{name}_in") for name in (*states, *scanned)]
    body = helper.make_graph(list(nodes), "body", inner, [untyped(name) for name in results])
    outs = [f"y{position}" for position in range(len(results))]
    node = helper.make_node(
        "Scan", [*states, *scanned], outs, name="the_Scan", body=body, num_scan_inputs=len(scanned), **attributes
    )
    fed = [value(name, *dims) for name, dims in (states | scanned | (others or {})).items()]
    graph = helper.make_graph([node], "one_scan", fed, [untyped(name) for name in outs])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)


def compare(model: onnx.ModelProto, *feeds: dict[str, Any]) -> list[TensorProgram]:
    programs = programs_of(model)
    for fed in feeds:
        expected: Any = ReferenceEvaluator(model).run(None, fed)
        found = run(programs, fed)
        for output, wanted in zip(model.graph.output, expected, strict=True):
            assert found[output.name].shape == np.shape(wanted)
            np.testing.assert_allclose(found[output.name], wanted, rtol=1e-5, atol=1e-6)
    return programs


def scans(program: TensorProgram) -> list[Scan]:
    return [item for item in program.items if isinstance(item, Scan)]


RUNNING = [
    helper.make_node("Mul", ["x_in", "w"], ["scaled"]),
    helper.make_node("Add", ["s_in", "scaled"], ["sum"]),
    helper.make_node("Tanh", ["sum"], ["after"]),
    helper.make_node("Neg", ["after"], ["out"]),
]


def running(steps: Any, **attributes: Any) -> onnx.ModelProto:
    """s' = tanh(s + x * w), out = -s', with w from outside of the body"""
    return scan_model(RUNNING, {"s": [3]}, {"x": [steps, 3]}, ["after", "out"], {"w": [3]}, **attributes)


def fed(steps: int) -> dict[str, Any]:
    return {"s": normal(3), "x": normal(steps, 3, seed=1), "w": normal(3, seed=2)}


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_a_state_and_a_stacked_output(steps: int) -> None:
    (program,) = compare(running(steps), fed(steps))
    assert len(scans(program)) == (steps > 1)


def test_any_number_of_steps() -> None:
    compare(running("T"), fed(1), fed(4), fed(9))


def test_what_needs_no_state_is_computed_before_the_recurrence() -> None:
    (program,) = compare(running(4), fed(4))
    (scan,) = scans(program)
    assert len(scan.steps) == 3


@pytest.mark.parametrize("backwards_in", [0, 1])
@pytest.mark.parametrize("backwards_out", [0, 1])
def test_directions(backwards_in: int, backwards_out: int) -> None:
    model = running(4, scan_input_directions=[backwards_in], scan_output_directions=[backwards_out])
    # The reference evaluator runs forwards only.
    feeds = fed(4)
    state, stacked = feeds["s"], []
    for x in feeds["x"][:: -1 if backwards_in else 1]:
        state = np.tanh(state + x * feeds["w"])
        stacked.append(-state)
    found = run(programs_of(model), feeds)
    np.testing.assert_allclose(found["y0"], state, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found["y1"], stacked[:: -1 if backwards_out else 1], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_axes(axis: int) -> None:
    """Time may be any axis of what is scanned and of what is stacked."""
    nodes = [
        helper.make_node("Add", ["s_in", "x_in"], ["after"]),
        helper.make_node("Identity", ["after"], ["out"]),
    ]
    shape = [2, 3]
    shape.insert(axis % 3, 4)
    model = scan_model(
        nodes, {"s": [2, 3]}, {"x": shape}, ["after", "out"], scan_input_axes=[axis], scan_output_axes=[axis]
    )
    # The reference evaluator takes axis 0 only.
    feeds = {"s": normal(2, 3), "x": normal(*shape, seed=1)}
    found = run(programs_of(model), feeds)
    sums = feeds["s"] + np.cumsum(np.moveaxis(feeds["x"], axis, 0), 0)
    np.testing.assert_allclose(found["y0"], sums[-1], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found["y1"], np.moveaxis(sums, 0, axis), rtol=1e-5, atol=1e-6)


def test_states_that_trade_places() -> None:
    """Both updates see the states before the step."""
    nodes = [
        helper.make_node("Identity", ["b_in"], ["c"]),
        helper.make_node("Add", ["a_in", "x_in"], ["d"]),
    ]
    model = scan_model(nodes, {"a": [2], "b": [2]}, {"x": [5, 2]}, ["c", "d", "a_in", "x_in"])
    compare(model, {"a": normal(2), "b": normal(2, seed=1), "x": normal(5, 2, seed=2)})


def test_one_tensor_for_two_states_and_an_output() -> None:
    nodes = [
        helper.make_node("Add", ["a_in", "b_in"], ["c"]),
        helper.make_node("Mul", ["c", "x_in"], ["d"]),
        helper.make_node("Neg", ["w"], ["e"]),
    ]
    model = scan_model(nodes, {"a": [2], "b": [2]}, {"x": [4, 2]}, ["d", "d", "d", "e", "c"], {"w": [2]})
    compare(model, {"a": normal(2), "b": normal(2, seed=1), "x": normal(4, 2, seed=2), "w": normal(2, seed=3)})


def test_no_states() -> None:
    nodes = [helper.make_node("MatMul", ["x_in", "w"], ["out"])]
    model = scan_model(nodes, {}, {"x": ["T", 2, 3]}, ["out"], {"w": [3, 4]})
    (program,) = compare(model, {"x": normal(5, 2, 3), "w": normal(3, 4)}, {"x": normal(1, 2, 3), "w": normal(3, 4)})
    assert not scans(program)


def test_a_body_with_sizes_and_constants() -> None:
    """Shape arithmetic inside of the body, a reduction, a constant, a choice by the size of a state."""
    nodes = [
        helper.make_node("Shape", ["x_in"], ["shape"]),
        helper.make_node("Constant", [], ["one"], value=numpy_helper.from_array(np.array([1], np.int64))),
        helper.make_node("Concat", ["shape", "one"], ["wide"], axis=0),
        helper.make_node("Reshape", ["x_in", "wide"], ["column"]),
        helper.make_node("ReduceSum", ["column"], ["total"], keepdims=0),
        helper.make_node("Add", ["s_in", "total"], ["after"]),
        helper.make_node("Add", ["x_in", "after"], ["out"]),
    ]
    model = scan_model(nodes, {"s": []}, {"x": ["T", "n"]}, ["after", "out"])
    compare(model, *({"s": np.float32(2), "x": normal(t, n)} for t, n in ((1, 1), (3, 4), (6, 1))))


def test_what_does_not_fit() -> None:
    grown = [helper.make_node("Concat", ["s_in", "x_in"], ["after"], axis=0)]
    with pytest.raises(ModelError, match="keeps its shape"):
        programs_of(scan_model(grown, {"s": [3]}, {"x": [4, 3]}, ["after"]))
    kept = [helper.make_node("Add", ["a_in", "b_in"], ["after"])]
    with pytest.raises(ModelError, match="one length"):
        programs_of(scan_model(kept, {}, {"a": [4, 3], "b": [5, 3]}, ["after"]))
    with pytest.raises(ModelError, match="scan_input_axes"):
        programs_of(running(4, scan_input_axes=[0, 0]))


def test_a_recurrence_that_needs_the_state_is_refused() -> None:
    inner = helper.make_graph(
        [helper.make_node("Add", ["p_in", "q_in"], ["p_out"])], "inner", [untyped("p_in"), untyped("q_in")],
        [untyped("p_out")],
    )  # fmt: skip
    nodes = [helper.make_node("Scan", ["s_in", "x_in"], ["after"], body=inner, num_scan_inputs=1)]
    with pytest.raises(UnsupportedError, match="recurrence inside"):
        programs_of(scan_model(nodes, {"s": [3]}, {"x": [4, 2, 3]}, ["after"]))


def test_a_recurrence_of_something_else_is_moved_out() -> None:
    inner = helper.make_graph(
        [helper.make_node("Add", ["p_in", "q_in"], ["p_out"])], "inner", [untyped("p_in"), untyped("q_in")],
        [untyped("p_out")],
    )  # fmt: skip
    nodes = [
        helper.make_node("Scan", ["w", "v"], ["sum"], body=inner, num_scan_inputs=1),
        helper.make_node("Add", ["sum", "x_in"], ["now"]),
        helper.make_node("Mul", ["s_in", "now"], ["after"]),
    ]
    model = scan_model(nodes, {"s": [3]}, {"x": [4, 3]}, ["after"], {"w": [3], "v": [2, 3]})
    compare(model, {"s": normal(3), "x": normal(4, 3), "w": normal(3, seed=1), "v": normal(2, 3, seed=2)})


def test_a_body_whose_sizes_data_decides_begins_a_segment() -> None:
    """How many ones the body sums up is computed from x; what needs it waits, and the scan with it."""
    body = [
        helper.make_node("ConstantOfShape", ["n"], ["ones"], value=numpy_helper.from_array(np.ones(1, np.float32))),
        helper.make_node("ReduceSum", ["ones"], ["count"], keepdims=0),
        helper.make_node("Add", ["s_in", "count"], ["sum"]),
        helper.make_node("Mul", ["sum", "x_in"], ["after"]),
    ]
    model = scan_model(body, {"s": [3]}, {"x": [4, 3]}, ["after"])
    before = [
        helper.make_node("ReduceMax", ["x"], ["peak"], keepdims=0),
        helper.make_node("Ceil", ["peak"], ["rounded"]),
        helper.make_node("Cast", ["rounded"], ["whole"], to=TensorProto.INT64),
        helper.make_node("Unsqueeze", ["whole", "axes"], ["n"]),
    ]
    the_scan = model.graph.node.pop()
    model.graph.node.extend([*before, the_scan])
    model.graph.initializer.append(numpy_helper.from_array(np.array([0], np.int64), "axes"))
    flow = flow_of(model)
    assert len(flow.segments) == 2
    for seed in range(3):
        feeds = {"s": normal(3), "x": normal(4, 3, seed=seed) + 2}
        expected: Any = ReferenceEvaluator(model).run(None, feeds)
        np.testing.assert_allclose(interpret_flow(flow, feeds)["y0"], expected[0], rtol=1e-5)


# Batches, which the Scan of opset 8 has


def batched_model(*inputs: str, **attributes: Any) -> onnx.ModelProto:
    """Running sums of `a`, and `b` plus them, in each batch."""
    nodes = [helper.make_node("Add", ["s_in", "a_in"], ["s_out"]), helper.make_node("Mul", ["s_out", "b_in"], ["z"])]
    body = helper.make_graph(
        nodes, "body", [value(f"{name}_in", 3) for name in "sab"], [value("s_out", 3), value("z", 3)]
    )
    node = helper.make_node(
        "Scan", [*inputs], ["last", "all"], name="the_Scan", body=body, num_scan_inputs=2, **attributes
    )
    fed = [value("s", "n", 3), value("a", "n", "t", 3), value("b", "n", "t", 3)]
    fed += [helper.make_tensor_value_info("lengths", TensorProto.INT64, ["n"])] if "lengths" in inputs else []
    graph = helper.make_graph([node], "batches", fed, [value("last", "n", 3), value("all", "n", "t", 3)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 8)], ir_version=4)


@pytest.mark.parametrize("directions", [[0, 0], [1, 0]])
def test_batches_are_scanned_one_by_one(directions: list[int]) -> None:
    model = batched_model("", "s", "a", "b", directions=directions)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    flow = flow_of(model)
    for batches, steps in ((1, 4), (3, 1), (2, 5)):
        feeds = {"s": normal(batches, 3), "a": normal(batches, steps, 3), "b": normal(batches, steps, 3, seed=1)}
        found = interpret_flow(flow, feeds)
        for name, wanted in zip(("last", "all"), session.run(None, feeds), strict=True):
            np.testing.assert_allclose(found[name], np.asarray(wanted), rtol=1e-5, atol=1e-6)


def test_batches_of_different_lengths_are_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"the_Scan.*different lengths"):
        flow_of(batched_model("lengths", "s", "a", "b"))
    model = batched_model("", "s", "a", "b")
    model.graph.node.append(helper.make_node("Upsample", ["a"], ["larger"], scales=[1.0, 2.0, 1.0]))
    with pytest.raises(UnsupportedError, match="Upsample"):
        flow_of(model)

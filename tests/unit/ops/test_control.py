from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from opweld.errors import AssumptionError, ModelError
from opweld.frontend.explore import segments, variants
from opweld.frontend.graph import graph_of
from opweld.frontend.onnx import load
from opweld.tensor.flow import interpret_flow
from opweld.tensor.program import TensorProgram
from tests.unit.ops.one_node import flow_of, normal, programs_of, run


def branch(op_type: str, *inputs: str, name: str) -> onnx.GraphProto:
    node = helper.make_node(op_type, list(inputs), [f"{name}_out"], name=f"{name}_{op_type}")
    result = helper.make_tensor_value_info(f"{name}_out", TensorProto.FLOAT, None)
    return helper.make_graph([node], name, [], [result])


def conditional(condition: list[onnx.NodeProto], inputs: dict[str, tuple[int, list[Any]]]) -> onnx.ModelProto:
    """if condition: y = x + x else: y = x * x"""
    choice = helper.make_node(
        "If",
        ["condition"],
        ["chosen"],
        name="the_If",
        then_branch=branch("Add", "x", "x", name="then"),
        else_branch=branch("Mul", "x", "x", name="else"),
    )
    last = helper.make_node("Neg", ["chosen"], ["y"])
    fed = [helper.make_tensor_value_info(name, kind, dims) for name, (kind, dims) in inputs.items()]
    graph = helper.make_graph(
        [*condition, choice, last],
        "conditional",
        fed,
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])],
        [numpy_helper.from_array(np.array(3, np.int64), "three")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)


BY_SIZE = [
    helper.make_node("Size", ["x"], ["size"]),
    helper.make_node("Equal", ["size", "three"], ["condition"]),
]
BY_VALUE = [helper.make_node("Less", ["k", "three"], ["condition"])]


def compare(model: onnx.ModelProto, programs: list[TensorProgram], feeds: dict[str, np.ndarray]) -> None:
    expected: Any = ReferenceEvaluator(model).run(None, feeds)
    np.testing.assert_allclose(run(programs, feeds)["y"], expected[0], rtol=1e-6)


def test_a_condition_on_a_size_makes_two_variants() -> None:
    model = conditional(BY_SIZE, {"x": (TensorProto.FLOAT, ["n"])})
    programs = programs_of(model)
    assert len(programs) == 2
    for count in (1, 3, 5):
        compare(model, programs, {"x": normal(count)})


def test_a_condition_on_a_fixed_size_is_decided() -> None:
    for count, op in ((3, "Add"), (4, "Mul")):
        (variant,) = variants(graph_of(load(conditional(BY_SIZE, {"x": (TensorProto.FLOAT, [count])}))))
        assert op in [node.op_type for node in variant.nodes]
        assert "If" not in [node.op_type for node in variant.nodes]
        assert not variant.guards


def test_a_condition_on_a_fed_number_makes_two_variants() -> None:
    inputs: dict[str, tuple[int, list[Any]]] = {"x": (TensorProto.FLOAT, ["n"]), "k": (TensorProto.INT64, [])}
    model = conditional(BY_VALUE, inputs)
    programs = programs_of(model)
    assert len(programs) == 2
    assert all(any(source.by_value for source in program.symbols) for program in programs)
    for k in (-5, 2, 3, 100):
        compare(model, programs, {"x": normal(4), "k": np.array(k, np.int64)})


def test_a_fed_number_that_decides_nothing_is_data() -> None:
    inputs: dict[str, tuple[int, list[Any]]] = {"x": (TensorProto.FLOAT, [3]), "k": (TensorProto.INT64, [])}
    (program,) = programs_of(conditional(BY_SIZE, inputs))
    assert program.symbols == ()


def test_a_condition_on_data_begins_a_segment() -> None:
    condition = [
        helper.make_node("ReduceMax", ["x"], ["peak"], keepdims=0),
        helper.make_node("Cast", ["peak"], ["condition"], to=TensorProto.BOOL),
    ]
    flow = flow_of(conditional(condition, {"x": (TensorProto.FLOAT, [3])}))
    assert [len(segment.programs) for segment in flow.segments] == [1, 2, 1]
    for x in (normal(3), np.zeros(3, np.float32)):
        evaluator = ReferenceEvaluator(conditional(condition, {"x": (TensorProto.FLOAT, [3])}))
        (expected,) = np.asarray(evaluator.run(None, {"x": x}))
        np.testing.assert_allclose(interpret_flow(flow, {"x": x})["y"], expected)


def test_an_answer_of_one_row_and_one_column_is_a_condition() -> None:
    score = [
        helper.make_node("Constant", [], ["row"], value_ints=[1, 1]),
        helper.make_node("Constant", [], ["half"], value_float=0.5),
        helper.make_node("ReduceMax", ["x"], ["most"], keepdims=0),
        helper.make_node("Reshape", ["most", "row"], ["score"]),
        helper.make_node("GreaterOrEqual", ["score", "half"], ["condition"]),
    ]
    model = conditional(score, {"x": (TensorProto.FLOAT, ["n"])})
    flow = flow_of(model)
    for value in (0.2, 0.7):
        x = np.full(4, value, np.float32)
        expected: Any = ReferenceEvaluator(model).run(None, {"x": x})
        np.testing.assert_allclose(interpret_flow(flow, {"x": x})["y"], expected[0], rtol=1e-6)


def test_an_outcome_that_contradicts_the_model_has_no_variant() -> None:
    model = conditional(BY_SIZE, {"x": (TensorProto.FLOAT, ["n"])})
    wrong = helper.make_node("MatMul", ["x", "matrix"], ["else_out"], name="wrong")
    body = next(a.g for a in model.graph.node[2].attribute if a.name == "else_branch")
    del body.node[:]
    body.node.append(wrong)
    model.graph.initializer.append(numpy_helper.from_array(normal(3, 2), "matrix"))
    (program,) = programs_of(model)
    with pytest.raises(AssumptionError):
        run([program], {"x": normal(4)})


def test_branches_with_other_outputs_are_refused() -> None:
    model = conditional(BY_SIZE, {"x": (TensorProto.FLOAT, [3])})
    body = next(a.g for a in model.graph.node[2].attribute if a.name == "then_branch")
    del body.output[:]
    with pytest.raises(ModelError, match="the_If"):
        programs_of(model)


def test_many_conditions_on_data_do_not_multiply() -> None:
    """Each If meets again what the one before left, however it was decided; sizes that differ are free."""
    nodes: list[onnx.NodeProto] = []
    last = "x"
    for i in range(8):
        kind = "Relu" if i % 2 else "Neg"
        longer = helper.make_node("Concat", [last, last], [f"long{i}"], axis=0)
        other = helper.make_node(kind, [last], [f"short{i}"])
        bodies: dict[str, Any] = {
            f"{name}_branch": helper.make_graph(
                [node], name, [], [helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None)]
            )
            for name, node in (("then", longer if i < 3 else other), ("else", other))
        }
        nodes.append(helper.make_node("ReduceSum", [last], [f"sum{i}"], keepdims=0))
        nodes.append(helper.make_node("Greater", [f"sum{i}", "limit"], [f"more{i}"]))
        nodes.append(helper.make_node("If", [f"more{i}"], [f"y{i}"], name=f"if{i}", **bodies))
        last = f"y{i}"
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array(0.1, np.float32), "limit")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    flow = flow_of(model)
    assert len(flow.segments) == 17
    for seed in range(4):
        x = normal(3, seed=seed)
        (expected,) = np.asarray(ReferenceEvaluator(model).run(None, {"x": x}))[None]
        np.testing.assert_allclose(interpret_flow(flow, {"x": x})[last], np.asarray(expected).reshape(-1), rtol=1e-6)


def test_a_condition_on_what_is_fed_is_a_variant_however_it_is_moved() -> None:
    """No segment, whose values are laid out as it runs: a rate that is fed is a number of each call."""
    text = """g (float[n] x, int64 rate) => (float[n] y) {
        one = Constant<value = int64[1] {1}>() zero = Constant<value = int64 {0}>() r = Reshape(rate, one)
        s = Gather(r, zero) w = Constant<value = int64 {16000}>() c = Equal(s, w)
        y = If(c) <then_branch = t () => (float[n] u) { u = Neg(x) }, else_branch = e () => (float[n] v) { v = Abs(x) }>
    }"""
    found = segments(graph_of(load(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}'))))
    assert [len(own) for own in found] == [2]

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from opweld.errors import AssumptionError, ModelError, OptionError, UnsupportedError
from opweld.frontend.explore import variants
from opweld.frontend.graph import graph_of
from opweld.frontend.onnx import load
from opweld.frontend.segment import Variant
from opweld.ops.registry import inference_of
from opweld.tensor.dim import as_dim
from opweld.tensor.flow import interpret_flow
from tests.unit.frontend.models import model_of, node
from tests.unit.ops.one_node import flow_of, normal, programs_of, run


def variants_of(model: Any, dims: dict[str, int] | None = None) -> list[Variant]:
    return variants(graph_of(load(model)), dims)


def shape_of(variant: Variant, name: str) -> str:
    for value, fact in variant.facts.items():
        if value.name == name:
            return str(list(fact.shape))
    raise KeyError(name)


# Dims of inputs


def test_dims_of_one_name_are_one_symbol_and_unnamed_ones_are_not() -> None:
    model = model_of(
        [node("Relu", ["a"], "x"), node("Relu", ["b"], "y")],
        {"a": ["n", "?", "", -1], "b": ["n", "?", -1, 0]},
        ["x", "y"],
    )
    (variant,) = variants_of(model)
    assert shape_of(variant, "x") == "[n, a_1, a_2, a_3]"
    assert shape_of(variant, "y") == "[n, b_1, b_2, 0]"
    assert [(source.input, source.position) for source in variant.symbols] == [
        ("a", 0), ("a", 1), ("a", 2), ("a", 3), ("b", 1), ("b", 2),
    ]  # fmt: skip


def test_names_of_dims_become_plain_and_stay_apart() -> None:
    names = ["p2o.Dim.0", "p2o Dim 0", "*/ exit(1); /*", "1st", "ü", "n" * 500]
    (variant,) = variants_of(model_of([node("Relu", ["x"], "y")], {"x": names}, ["y"]))
    printed = [source.symbol.name for source in variant.symbols]
    assert len(set(printed)) == len(names)
    assert all(name.isascii() and name.isidentifier() and len(name) < 60 for name in printed)


def test_dims_are_fixed_by_declared_or_printed_name() -> None:
    model = model_of([node("Relu", ["x"], "y")], {"x": ["batch.size", "?"]}, ["y"])
    (variant,) = variants_of(model, {"batch.size": 4, "x_1": 7})
    assert shape_of(variant, "y") == "[4, 7]"
    assert variant.symbols == ()
    (variant,) = variants_of(model, {"batch_size": 4})
    assert shape_of(variant, "y") == "[4, x_1]"
    with pytest.raises(OptionError, match="batch\\.size"):
        variants_of(model, {"btach": 4})
    with pytest.raises(OptionError, match="must not be negative"):
        variants_of(model, {"x_1": -1})


# Assumptions


def test_dims_that_meet_are_assumed_to_be_equal() -> None:
    model = model_of([node("Add", ["a", "b"], "y")], {"a": ["n", 3], "b": ["m", 3]}, ["y"])
    (variant,) = variants_of(model)
    assert [source.input for source in variant.symbols] == ["a"] or len(variant.symbols) == 1
    programs = programs_of(model)
    a = normal(4, 3)
    assert (run(programs, {"a": a, "b": a})["y"] == a + a).all()
    with pytest.raises(AssumptionError):
        run(programs, {"a": a, "b": normal(5, 3)})


def test_a_dim_that_meets_a_number_is_that_number() -> None:
    (variant,) = variants_of(model_of([node("Add", ["a", "b"], "y")], {"a": ["n"], "b": [3]}, ["y"]))
    assert shape_of(variant, "a") == "[3]"
    assert variant.symbols == ()


def test_numbers_that_differ_are_refused() -> None:
    with pytest.raises(ModelError, match="make_y"):
        variants_of(model_of([node("Add", ["a", "b"], "y")], {"a": [2], "b": [3]}, ["y"]))


NEAREST = {"mode": "nearest", "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}


def pyramid() -> Any:
    """Halve twice, double once, add: fits when the width is a multiple of 4, or rounds up to one."""
    nodes = [
        node("MaxPool", ["x"], "half", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("MaxPool", ["half"], "quarter", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Resize", ["quarter", "", "scales"], "doubled", **NEAREST),
        node("Add", ["half", "doubled"], "y"),
    ]
    return model_of(nodes, {"x": [1, 1, 4, "w"]}, ["y"], {"scales": np.array([1, 1, 2, 2], np.float32)})


def test_sizes_are_assumed_to_divide_and_another_variant_takes_the_rest() -> None:
    divides, rest = variants_of(pyramid())
    assert [(source.divisor, source.symbol.name) for source in divides.symbols] == [(4, "w_by_4")]
    assert "make_y" in divides.symbols[0].reason
    assert shape_of(divides, "y") == "[1, 1, 2, 2*w_by_4]" and divides.guards == ()
    assert [source.divisor for source in rest.symbols] == [1]
    assert [guard.kind for guard in rest.guards] == ["zero"]
    for width, fits in ((8, True), (7, True), (6, False), (5, False), (4, True)):
        assert rest.guards[0].holds({rest.symbols[0].symbol: width}) is fits
    programs = programs_of(pyramid())
    for width in (4, 7, 8):
        (y,) = run(programs, {"x": normal(1, 1, 4, width)}).values()
        assert y.shape == (1, 1, 2, (width + 1) // 2)
    with pytest.raises(AssumptionError):
        run(programs, {"x": normal(1, 1, 4, 6)})


def test_every_variant_of_the_first_segment_takes_all_inputs() -> None:
    model = pyramid()
    passed = onnx.helper.make_tensor_value_info("passed", onnx.TensorProto.FLOAT, [3])
    model.graph.input.append(passed)
    model.graph.output.append(passed)
    assert [len(variant.inputs) for variant in variants_of(model)] == [2, 2]
    programs = programs_of(model)
    for width in (7, 8):
        assert (run(programs, {"x": normal(1, 1, 4, width), "passed": normal(3)})["passed"] == normal(3)).all()


def test_an_assumption_simplifies_what_follows() -> None:
    nodes = [
        node("Slice", ["table", "zero", "length", "zero"], "part"),
        node("Add", ["x", "part"], "y"),
        node("Shape", ["x"], "length"),
    ]
    weights = {"table": normal(512), "zero": np.array([0])}
    (variant,) = variants_of(model_of(nodes, {"x": ["s"]}, ["y"], weights))
    assert shape_of(variant, "y") == "[s]"
    assert [(guard.kind, str(guard.dim)) for guard in variant.guards] == [("least", "-s + 512")]


# Small inputs whose values matter


def fed_number(nodes: list[Any], weights: dict[str, Any] | None = None) -> Any:
    return model_of(nodes, {"x": ["n"], "k": [1]}, ["y"], weights, kinds={"k": TensorProto.INT64})


def test_a_fed_number_becomes_a_symbol_only_where_a_shape_needs_it() -> None:
    for variant in variants_of(fed_number([node("Expand", ["x", "k"], "y")])):
        assert any(source.by_value for source in variant.symbols)
    data = [node("Cast", ["k"], "f", to=TensorProto.FLOAT), node("Mul", ["x", "f"], "y")]
    (variant,) = variants_of(fed_number(data))
    assert not any(source.by_value for source in variant.symbols)


def test_a_fed_number_that_an_assumption_fixes_is_guarded() -> None:
    nodes = [node("ConstantOfShape", ["k"], "zeros"), node("Concat", ["zeros", "zeros"], "two", axis=0)]
    nodes.append(node("Add", ["two", "four"], "y"))
    model = fed_number(nodes, {"four": normal(4)})
    programs = programs_of(model)
    x = normal(1)
    assert run(programs, {"x": x, "k": np.array([2])})["y"].shape == (4,)
    for k in (0, 1, 3):
        with pytest.raises(AssumptionError):
            run(programs, {"x": x, "k": np.array([k])})


def test_a_number_that_depends_on_data_begins_a_segment() -> None:
    nodes = [node("ReduceMax", ["x"], "peak", keepdims=1), node("Cast", ["peak"], "k64", to=TensorProto.INT64)]
    nodes.append(node("Expand", ["peak", "k64"], "y"))
    flow = flow_of(model_of(nodes, {"x": ["n"]}, ["y"]))
    assert len(flow.segments) == 2
    for peak in (1, 4):
        x = np.array([-2, peak, -1], np.float32)
        np.testing.assert_array_equal(interpret_flow(flow, {"x": x})["y"], np.full(peak, peak))


def test_numbers_that_are_too_many_to_look_at_are_refused() -> None:
    nodes = [node("Cast", ["x"], "long", to=TensorProto.INT64), node("Expand", ["x", "long"], "y")]
    with pytest.raises(UnsupportedError, match="make_y"):
        variants_of(model_of(nodes, {"x": [17]}, ["y"]))


def test_too_many_forks_are_refused() -> None:
    nodes = []
    for position in range(5):
        nodes.append(node("Squeeze", [f"x{position}"], f"y{position}"))
    inputs = {f"x{position}": [f"a{position}", 2] for position in range(5)}
    with pytest.raises(UnsupportedError, match="variants"):
        variants_of(model_of(nodes, inputs, [f"y{position}" for position in range(5)]))


# Shape arithmetic


def test_shape_arithmetic_through_floats_stays_exact() -> None:
    nodes = [
        node("Shape", ["x"], "shape"),
        node("Cast", ["shape"], "float", to=TensorProto.FLOAT),
        node("Mul", ["float", "factor"], "scaled"),
        node("Floor", ["scaled"], "rounded"),
        node("Cast", ["rounded"], "size", to=TensorProto.INT64),
        node("ConstantOfShape", ["size"], "y"),
    ]
    (variant,) = variants_of(model_of(nodes, {"x": ["h"]}, ["y"], {"factor": np.array([1.5], np.float32)}))
    assert shape_of(variant, "y") == "[(3*h // 2)]"
    # 0.7 is no short binary fraction: floats might round the product up to the next integer.
    with pytest.raises(UnsupportedError):
        variants_of(model_of(nodes, {"x": ["h"]}, ["y"], {"factor": np.array([0.7], np.float32)}))


def test_keep_this_dim_idiom() -> None:
    """Where(shape == -1, ones, shape), as exporters write Expand with -1."""
    nodes = [
        node("Shape", ["x"], "shape"),
        node("Shape", ["shape"], "rank"),
        node("Expand", ["one", "rank"], "ones"),
        node("Equal", ["shape", "minus"], "keep"),
        node("Where", ["keep", "ones", "shape"], "target"),
        node("Expand", ["x", "target"], "y"),
    ]
    weights = {"one": np.array([1]), "minus": np.array([-1])}
    (variant,) = variants_of(model_of(nodes, {"x": ["a", "b"]}, ["y"], weights))
    assert shape_of(variant, "y") == "[a, b]" and variant.guards == ()


# The passes of inference


def visited(monkeypatch: pytest.MonkeyPatch, model: Any) -> list[str]:
    """The names of the nodes that inference visited, one for each visit."""
    seen: list[str] = []

    def watched(found: Any) -> Any:
        seen.append(found.name)
        return inference_of(found)

    monkeypatch.setattr("opweld.frontend.infer.inference_of", watched)
    variants_of(model)
    return seen


def test_inference_goes_on_from_the_node_that_needs_an_assumption(monkeypatch: pytest.MonkeyPatch) -> None:
    count = 30
    inputs = {f"x{i}": [f"n{i}"] for i in range(count)}
    nodes = [node("Relu", ["x0"], "y0")]
    for i in range(1, count):
        nodes.append(node("Add", [f"y{i - 1}", f"x{i}"], f"z{i}"))
        nodes.append(node("Relu", [f"z{i}"], f"y{i}"))
    seen = visited(monkeypatch, model_of(nodes, inputs, [f"y{count - 1}"]))
    assert len(seen) == 2 * len(nodes) + count - 1


def test_a_model_without_assumptions_is_inferred_once(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [node("Relu", ["x"], "y0"), *(node("Relu", [f"y{i}"], f"y{i + 1}") for i in range(20))]
    assert len(visited(monkeypatch, model_of(nodes, {"x": ["n"]}, ["y20"]))) == len(nodes)


def test_what_an_assumption_makes_known_of_earlier_nodes_counts() -> None:
    """k // 2 says nothing while k may be negative; that k is a size turns out later, at the ConstantOfShape."""
    nodes = [
        node("Div", ["k", "two"], "half"),
        node("ConstantOfShape", ["k"], "long"),
        node("ConstantOfShape", ["half"], "short"),
        node("Add", ["long", "x"], "a"),
        node("Add", ["short", "y"], "b"),
    ]
    inputs = {"k": [1], "x": [1], "y": [1]}
    model = model_of(nodes, inputs, ["a", "b"], {"two": np.array([2])}, kinds={"k": TensorProto.INT64})
    (variant,) = variants_of(model)
    assert shape_of(variant, "short") == f"[({shape_of(variant, 'long')[1:-1]} // 2)]"


def test_too_many_assumptions_are_refused() -> None:
    count = 300
    inputs = {f"x{i}": [f"n{i}"] for i in range(count)}
    model = model_of([node("Sum", list(inputs), "y")], inputs, ["y"])
    with pytest.raises(UnsupportedError, match="more than 256 assumptions"):
        variants_of(model)


# Hostile sizes


def test_sizes_that_no_memory_holds_are_refused() -> None:
    with pytest.raises(ModelError, match="make_y"):
        variants_of(model_of([node("Expand", ["x", "s"], "y")], {"x": [1]}, ["y"], {"s": np.array([2**31] * 3)}))


def test_ranks_beyond_eight_are_refused() -> None:
    weights = {"s": np.ones(2000, np.int64)}
    with pytest.raises((ModelError, UnsupportedError), match="make_y"):
        variants_of(model_of([node("Expand", ["x", "s"], "y")], {"x": [1]}, ["y"], weights))


def test_a_small_constant_is_read_and_a_big_one_is_not() -> None:
    weights = {"w": np.arange(6, dtype=np.int64), "big": np.arange(10_000, dtype=np.int64)}
    model = model_of([node("Add", ["w", "w"], "y"), node("Neg", ["big"], "z")], {"x": [1]}, ["y", "z"], weights)
    (variant,) = variants_of(model)
    facts = {value.name: fact for value, fact in variant.facts.items()}
    elements = facts["y"].elements
    assert elements is not None and list(elements) == [as_dim(2 * i) for i in range(6)]
    assert facts["big"].elements is None and facts["big"].constant is not None


@pytest.mark.parametrize(
    ("op_type", "kinds"),
    [
        ("Add", (TensorProto.FLOAT, TensorProto.DOUBLE)),
        ("MatMul", (TensorProto.FLOAT, TensorProto.FLOAT16)),
        ("And", (TensorProto.FLOAT, TensorProto.FLOAT)),
        ("Gather", (TensorProto.FLOAT, TensorProto.FLOAT)),
        ("LayerNormalization", (TensorProto.FLOAT, TensorProto.DOUBLE)),
    ],
)
def test_element_types_that_an_operator_does_not_take_are_refused(op_type: str, kinds: tuple[int, int]) -> None:
    model = model_of(
        [node(op_type, ["a", "b"], "y")], {"a": [3, 3], "b": [3, 3]}, ["y"], kinds=dict(zip("ab", kinds, strict=True))
    )
    with pytest.raises(ModelError, match="make_y"):
        variants_of(model)

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from opweld.errors import ModelError, OpweldError, UnsupportedError
from opweld.frontend.graph import graph_of
from opweld.frontend.onnx import load, load_file
from opweld.ops.registry import OPSET
from tests.unit.frontend.models import model_of, node
from tests.unit.ops.one_node import normal, programs_of, run


def relu(**changes: object) -> onnx.ModelProto:
    model = model_of([node("Relu", ["x"], "y")], {"x": ["n", 3]}, ["y"])
    for name, value in changes.items():
        setattr(model, name, value)
    return model


# What is kept


def test_a_model_is_read_from_a_path_bytes_or_a_proto(tmp_path: Path) -> None:
    model = relu()
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    for source in (path, str(path), model.SerializeToString(), model):
        loaded = load(source)
        assert loaded.opset_imports[""] == OPSET
        assert [value.name for value in loaded.graph.inputs] == ["x"]


def test_what_a_model_says_about_itself_is_kept() -> None:
    model = relu(producer_name="me", producer_version="7", doc_string="a test", domain="d", model_version=5)
    model.opset_import[0].version = 13
    helper.set_model_props(model, {"author": "nobody"})
    model.graph.output[0].type.tensor_type.shape.dim.add(dim_param="rows")
    model.graph.output[0].type.tensor_type.shape.dim.add(dim_value=3)
    loaded = load(model)
    assert (loaded.producer_name, loaded.producer_version, loaded.doc_string) == ("me", "7", "a test")
    assert (loaded.domain, loaded.model_version, loaded.graph.name) == ("d", 5, "graph")
    assert dict(loaded.metadata_props) == {"author": "nobody"}
    assert load_file(model).opset == 13
    shape = loaded.graph.outputs[0].shape
    assert shape is not None and [str(dim) for dim in shape] == ["rows", "3"]


def test_the_callers_model_is_left_alone() -> None:
    model = model_of([node("Softmax", ["x"], "y")], {"x": [2, 3, 4]}, ["y"], opset=11)
    before = model.SerializeToString(deterministic=True)
    load(model)
    assert model.SerializeToString(deterministic=True) == before


def test_node_names_are_unique_and_short() -> None:
    names = ["same", "same", "", "x" * 10_000_000]
    nodes = [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"], name=name) for i, name in enumerate(names)]
    loaded = load(model_of(nodes, {"v0": [2]}, ["v4"]))
    found = [n.name for n in loaded.graph]
    assert len(set(found)) == 4 and all(name and len(name) < 300 for name in found)


# Opsets


@pytest.mark.parametrize("opset", range(7, 29))
def test_every_opset_means_what_it_meant(opset: int) -> None:
    x = normal(2, 3, 4)
    nodes = [node("Softmax", ["x"], "s", axis=1)]
    if opset < 13:
        nodes.append(node("Unsqueeze", ["s"], "u", axes=[0]))
        nodes.append(node("ReduceSum", ["u"], "y", axes=[2], keepdims=0))
        weights: dict[str, np.ndarray] = {}
    else:
        nodes.append(node("Unsqueeze", ["s", "zero"], "u"))
        nodes.append(node("ReduceSum", ["u", "two"], "y", keepdims=0))
        weights = {"zero": np.array([0]), "two": np.array([2])}
    model = model_of(nodes, {"x": ["n", 3, 4]}, ["y"], weights, opset=opset, ir_version=8)
    if opset < 13:  # softmax over the flattened axes from `axis` on
        flat = np.exp(x.reshape(2, 12))
        wanted = (flat / flat.sum(1, keepdims=True)).reshape(1, 2, 3, 4).sum(2)
    else:
        results: Any = ReferenceEvaluator(model).run(None, {"x": x})
        wanted = results[0]
    np.testing.assert_allclose(run(programs_of(model), {"x": x})["y"], wanted, rtol=1e-5)


def test_a_model_whose_operators_did_not_change_is_not_converted(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("converted")

    monkeypatch.setattr("opweld.frontend.isolated.convert_version", refuse)
    assert load(relu()).opset_imports[""] == OPSET
    with pytest.raises(AssertionError, match="converted"):
        load(model_of([node("Cast", ["x"], "y", to=1)], {"x": [3]}, ["y"], opset=13))


def test_weights_survive_conversion() -> None:
    weights = {"w": normal(40, 50), "b": normal(50)}
    constant = helper.make_node("Constant", [], ["c"], value=onnx.numpy_helper.from_array(normal(2, 50, seed=9)))
    nodes = [node("MatMul", ["x", "w"], "m"), node("Add", ["m", "b"], "a"), constant, node("Mul", ["a", "c"], "y")]
    model = model_of(nodes, {"x": [2, 40]}, ["y"], weights, opset=9, ir_version=6)
    loaded = load(model)
    assert not [n for n in loaded.graph if n.op_type == "Constant"]
    x = normal(2, 40)
    wanted = (x @ weights["w"] + weights["b"]) * normal(2, 50, seed=9)
    np.testing.assert_allclose(run(programs_of(model), {"x": x})["y"], wanted, rtol=1e-4, atol=1e-5)


def test_an_initializer_that_is_an_input_too_is_a_constant() -> None:
    model = model_of(
        [node("Add", ["x", "w"], "y")], {"x": [2], "w": [2]}, ["y"], {"w": normal(2)}, ir_version=3, opset=8
    )
    assert [value.name for value in load(model).graph.inputs] == ["x"]


def test_functions_are_inlined() -> None:
    body = [helper.make_node("Mul", ["a", "a"], ["s"]), helper.make_node("Add", ["s", "a"], ["r"])]
    function = helper.make_function("mine", "Polynomial", ["a"], ["r"], body, [helper.make_opsetid("", 18)])
    call = helper.make_node("Polynomial", ["x"], ["y"], domain="mine")
    model = model_of([call], {"x": [3]}, ["y"], opset=18, functions=[function])
    x = normal(3)
    np.testing.assert_allclose(run(programs_of(model), {"x": x})["y"], x * x + x, rtol=1e-6)


def test_nodes_may_come_in_any_order() -> None:
    nodes = [node("Neg", ["a"], "y"), node("Relu", ["x"], "a")]
    x = normal(5)
    assert (run(programs_of(model_of(nodes, {"x": [5]}, ["y"])), {"x": x})["y"] == -np.maximum(x, 0)).all()


# What is refused


@pytest.mark.parametrize("junk", [b"", b"\x00", b"hello world", bytes(range(256)) * 40, b"\x08" * 1000])
def test_junk_is_refused(junk: bytes) -> None:
    with pytest.raises(ModelError):
        load(junk)


def test_a_truncated_file_is_refused_or_complete() -> None:
    data = model_of([node("MatMul", ["x", "w"], "y")], {"x": [2, 8]}, ["y"], {"w": normal(8, 8)}).SerializeToString()
    for length in range(0, len(data), 7):
        with pytest.raises(OpweldError):
            programs_of_bytes(data[:length])


def programs_of_bytes(data: bytes) -> None:
    from opweld.frontend.explore import variants

    variants(graph_of(load(data)))


def test_flipped_bytes_never_crash() -> None:
    random = np.random.default_rng(0)
    good = model_of(
        [node("MatMul", ["x", "w"], "m"), node("Reshape", ["m", "shape"], "r"), node("Softmax", ["r"], "y", axis=-1)],
        {"x": ["n", 8]},
        ["y"],
        {"w": normal(8, 8), "shape": np.array([-1, 4], np.int64)},
        opset=17,
    ).SerializeToString()
    for _ in range(300):
        data = bytearray(good)
        for position in random.integers(0, len(data), 3):
            data[position] = random.integers(256)
        try:
            programs_of_bytes(bytes(data))
        except OpweldError:
            continue


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="No such file"):
        load(tmp_path / "absent.onnx")
    with pytest.raises(ModelError):
        load(tmp_path)


@pytest.mark.parametrize("version", [0, 2, 15, 10**6])
def test_an_unknown_ir_version_is_refused(version: int) -> None:
    with pytest.raises(ModelError, match="IR version"):
        load(relu(ir_version=version))


@pytest.mark.parametrize("opset", [0, -1, 29, 10**6])
def test_an_unknown_opset_is_refused(opset: int) -> None:
    model = relu()
    model.opset_import[0].version = opset
    with pytest.raises(ModelError, match="opset"):
        load(model)


def broken_text(good: str, **fields: str) -> bytes:
    """A model with a text in these fields that is not UTF-8."""
    model = relu(**fields)
    helper.set_model_props(model, {"author": good})
    model.graph.node[0].doc_string = good
    return model.SerializeToString().replace(good.encode(), b"\xff" * len(good))


@pytest.mark.parametrize("fields", [{}, {"producer_name": "BROKEN"}, {"doc_string": "BROKEN"}, {"domain": "BROKEN"}])
def test_text_that_is_not_utf8_is_refused(fields: dict[str, str]) -> None:
    with pytest.raises(ModelError, match="UTF-8"):
        load(broken_text("BROKEN", **fields))


def test_negative_dims_are_unknown_dims() -> None:
    nodes = [node("Slice", ["x", "start", "end"], "y")]
    weights = {"start": np.array([1]), "end": np.array([3])}
    model = model_of(nodes, {"x": [-1]}, ["y"], weights, opset=17)
    x = normal(5)
    assert (run(programs_of(model), {"x": x})["y"] == x[1:3]).all()


def test_an_opset_may_be_named_twice_but_not_differ() -> None:
    model = relu()
    model.opset_import.add(domain="ai.onnx", version=model.opset_import[0].version)
    assert load(model).opset_imports[""] == OPSET
    model.opset_import[1].version -= 1
    with pytest.raises(ModelError, match="two opsets"):
        load(model)


def malformed() -> dict[str, onnx.ModelProto]:
    x: dict[str, list[object]] = {"x": [2, 3]}
    lying = model_of([node("Add", ["x", "w"], "y")], x, ["y"], {"w": normal(3)})
    lying.graph.initializer[0].dims[0] = 10**15
    negative = model_of([node("Add", ["x", "w"], "y")], x, ["y"], {"w": normal(3)})
    negative.graph.initializer[0].dims[0] = -3
    deep = model_of([node("Add", ["x", "w"], "y")], x, ["y"], {"w": normal(3)})
    deep.graph.initializer[0].dims.extend([1] * 1000)
    strange = model_of([node("Add", ["x", "w"], "y")], x, ["y"], {"w": normal(3)})
    strange.graph.initializer[0].data_type = 999
    doubled = model_of([node("Softmax", ["x"], "y", axis=0)], x, ["y"])
    doubled.graph.node[0].attribute.append(helper.make_attribute("axis", 1))
    undefined = model_of([node("Relu", ["x"], "y")], x, ["y"])
    undefined.graph.output[0].type.tensor_type.elem_type = -1
    return {
        "an output of an undefined element type": undefined,
        "an attribute given twice": doubled,
        "a cycle": model_of([node("Add", ["x", "b"], "a"), node("Relu", ["a"], "b")], x, ["b"]),
        "a node that reads itself": model_of([node("Add", ["x", "a"], "a")], x, ["a"]),
        "an input that nothing defines": model_of([node("Add", ["x", "ghost"], "y")], x, ["y"]),
        "an output that nothing defines": model_of([node("Relu", ["x"], "y")], x, ["z"]),
        "a value defined twice": model_of([node("Relu", ["x"], "y"), node("Neg", ["x"], "y")], x, ["y"]),
        "a value that redefines an input": model_of([node("Relu", ["x"], "x")], x, ["x"]),
        "an unknown operator": model_of([node("Frobnicate", ["x"], "y")], x, ["y"]),
        "too many inputs": model_of([node("Relu", ["x", "x"], "y")], x, ["y"]),
        "too few inputs": model_of([node("Add", ["x"], "y")], x, ["y"]),
        "an empty required input": model_of([node("Add", ["x", ""], "y")], x, ["y"]),
        "an unknown attribute": model_of([node("Relu", ["x"], "y", speed=3)], x, ["y"]),
        "an attribute of the wrong type": model_of([node("Concat", ["x"], "y", axis="one")], x, ["y"]),
        "a missing attribute": model_of([node("Concat", ["x"], "y")], x, ["y"]),
        "no outputs": model_of([node("Relu", ["x"], "y")], x, []),
        "a rank bomb": model_of([node("Relu", ["x"], "y")], {"x": [1] * 5000}, ["y"]),
        "a tensor larger than its data": lying,
        "a negative dim": negative,
        "a tensor of rank 1001": deep,
        "an unknown element type": strange,
    }


@pytest.mark.parametrize("what", malformed())
def test_malformed_models_are_refused(what: str) -> None:
    with pytest.raises(ModelError) as raised:
        load(malformed()[what])
    assert len(str(raised.value)) < 2000


def test_functions_that_call_each_other_in_circles_are_refused() -> None:
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("mine", 1)]
    one = helper.make_function(
        "mine", "One", ["a"], ["b"], [helper.make_node("Two", ["a"], ["b"], domain="mine")], imports
    )
    two = helper.make_function(
        "mine", "Two", ["a"], ["b"], [helper.make_node("One", ["a"], ["b"], domain="mine")], imports
    )
    call = helper.make_node("One", ["x"], ["y"], domain="mine")
    with pytest.raises(ModelError, match="calls itself"):
        load(model_of([call], {"x": [3]}, ["y"], opset=18, functions=[one, two]))


def calling(count: int, calls: int) -> onnx.ModelProto:
    """So many functions, each of which calls the next one so many times, one call after the other."""
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("mine", 1)]
    functions: list[onnx.FunctionProto] = []
    for number in range(count):
        call = "Relu" if number == count - 1 else f"F{number + 1}"
        domain = "" if number == count - 1 else "mine"
        body = [helper.make_node(call, [f"v{i}"], [f"v{i + 1}"], domain=domain) for i in range(calls)]
        functions.append(helper.make_function("mine", f"F{number}", ["v0"], [f"v{calls}"], body, imports))
    call = helper.make_node("F0", ["x"], ["y"], domain="mine")
    return model_of([call], {"x": [3]}, ["y"], opset=18, functions=functions)


def test_functions_may_be_nested() -> None:
    (program,) = programs_of(calling(90, 1))
    x = normal(3)
    assert (run([program], {"x": x})["y"] == np.maximum(x, 0)).all()


@pytest.mark.parametrize("count, calls, why", [(2000, 1, "deep"), (40, 2, "nodes"), (7, 10, "nodes")])
def test_functions_that_stand_for_too_much_are_refused(count: int, calls: int, why: str) -> None:
    with pytest.raises(UnsupportedError, match=why):
        load(calling(count, calls))


@pytest.mark.parametrize("opset", [-1, 29, 2**31, -(2**63)])
def test_an_unknown_opset_of_a_function_is_refused(opset: int) -> None:
    model = calling(1, 1)
    model.functions[0].opset_import[0].version = opset
    with pytest.raises(ModelError, match=f"function 'F0': opset {opset} is not"):
        load(model)


def test_a_function_may_not_be_defined_twice() -> None:
    model = calling(2, 1)
    model.functions.append(model.functions[0])
    with pytest.raises(ModelError, match="twice"):
        load(model)


def test_sparse_weights_are_refused() -> None:
    model = relu()
    values = helper.make_tensor("w", TensorProto.FLOAT, [1], [1.0])
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, helper.make_tensor("i", 7, [1], [0]), [3]))
    with pytest.raises(UnsupportedError, match="sparse"):
        load(model)


def test_a_deep_model_is_no_problem() -> None:
    nodes = [node("Relu" if i % 2 else "Neg", [f"v{i}"], f"v{i + 1}") for i in range(5000)]
    (program,) = programs_of(model_of(nodes, {"v0": [2]}, ["v5000"]))
    assert len(program.items) == 5000


def test_a_constant_of_nothing_is_refused() -> None:
    model = relu()
    model.graph.node.insert(0, helper.make_node("Constant", [], ["c"]))
    with pytest.raises(ModelError, match="0 attributes define the constant"):
        load(model)

"""The fusions of a model as text, and what is noticed when one is lost."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from opweld.accounts import left_without_compiler
from opweld.errors import OptionError
from opweld.frontend.onnx import load
from opweld.ledger import Decision, Ledger
from opweld.options import Options
from opweld.rewrite.optimize import optimize_model
from opweld.rules import REWRITES
from opweld.verification.lock import Change, Fusion, changes, fusions_of, parse_lock, parse_nodes, print_lock
from opweld.verification.structure import renamed, structure_of


def save(path: Path, *more: onnx.NodeProto, outputs: tuple[str, ...] = ("y",)) -> Path:
    """softmax(relu(x @ w + b) @ v), and other nodes."""
    random = np.random.default_rng(0)
    shapes = {"w": (16, 24), "b": (24,), "v": (24, 8)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["t"], name="product"),
        helper.make_node("Add", ["t", "b"], ["u"], name="bias"),
        helper.make_node("Relu", ["u"], ["r"], name="relu"),
        helper.make_node("MatMul", ["r", "v"], ["s"], name="second"),
        helper.make_node("Softmax", ["s"], ["y"], name="softmax"),
    ]
    graph = helper.make_graph(
        [*nodes, *more],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 16])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(random.standard_normal(shape, np.float32), name) for name, shape in shapes.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


APART = ("fuse.block",)
"""Small products after one another would be one kernel."""


def locked(model: Path, disable: tuple[str, ...] = APART) -> tuple[list[Fusion], list[Decision]]:
    compiled = list(left_without_compiler(model, Options(disable=disable))[0].ledger)
    rewritten = optimize_model(model, lambda: Ledger(rules=REWRITES)).ledger
    return fusions_of(compiled, list(rewritten)), compiled


def against(before: Path, after: Path) -> list[Change]:
    """What a lock of one model says of another."""
    text = print_lock(locked(before)[0], structure_of(load(before)))
    found, compiled = locked(after)
    names = renamed(parse_nodes(text, "m.lock"), structure_of(load(after)))
    return changes(parse_lock(text, "m.lock"), found, compiled, names)


def called_otherwise(model: Path, path: Path) -> Path:
    """The model with other names of all nodes and values, those of inputs, outputs and weights included."""
    changed = onnx.load(model)
    names: dict[str, str] = {}

    def other(name: str) -> str:
        return names.setdefault(name, f"v{len(names)}") if name else name

    for node in changed.graph.node:
        node.name = f"n{len(names)}"
        node.input[:], node.output[:] = [*map(other, node.input)], [*map(other, node.output)]
    for value in (*changed.graph.input, *changed.graph.output, *changed.graph.initializer):
        value.name = other(value.name)
    onnx.save(changed, path)
    return path


def test_a_kernel_of_several_nodes_is_a_line_and_one_node_is_none(tmp_path: Path) -> None:
    model = save(tmp_path / "m.onnx")
    lines = print_lock(locked(model)[0]).splitlines()
    assert 'kernel "product" "bias" "relu"' in lines
    assert not any(line.endswith('kernel "softmax"') for line in lines)
    assert against(model, model) == []


def test_a_block_is_one_line_and_a_copy_for_its_lanes_none(tmp_path: Path) -> None:
    """Attention: two products and the softmax between them are one kernel, which reads a copy of the keys."""
    nodes = [
        helper.make_node("Exp", ["k"], ["e"], name="keys"),
        helper.make_node("Transpose", ["e"], ["t"], perm=[0, 1, 3, 2], name="turned"),
        helper.make_node("MatMul", ["q", "t"], ["s"], name="scores"),
        helper.make_node("Mul", ["s", "m"], ["r"], name="masked"),
        helper.make_node("Softmax", ["r"], ["p"], name="softmax"),
        helper.make_node("MatMul", ["p", "v"], ["y"], name="mix"),
    ]
    shapes = {"q": [2, 4, 64, 32], "k": [2, 4, 64, 32], "v": [2, 4, 64, 32], "m": [64, 64]}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    model = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), model)
    found, compiled = locked(model, ())
    assert any(d.rule == "place.pack" and d.taken == "copy" and "scores" in d.site for d in compiled)
    assert [set(fusion.nodes) for fusion in found if fusion.kind == "kernel"] == [
        {"scores", "masked", "softmax", "mix"}
    ]
    assert [fusion.nodes for fusion in found if fusion.kind == "view"] == [("turned",)]


def test_a_second_reader_loses_the_fusion_and_is_told(tmp_path: Path) -> None:
    """As when a model is exported anew with a debugging output, or a hook."""
    before = save(tmp_path / "before.onnx")
    reader = helper.make_node("ReduceMax", ["u"], ["m"], name="hook", keepdims=0)
    after = save(tmp_path / "after.onnx", reader, outputs=("y", "m"))
    lost = [change for change in against(before, after) if change.lost]
    (change,) = [change for change in lost if "relu" in change.fusion.nodes]
    assert change.fusion.nodes == ("product", "bias", "relu")
    assert any(note.startswith("now ") for note in change.notes)
    assert any(" fuse." in note for note in change.notes), "a decision says what kept them apart"


def test_an_unrelated_node_changes_no_line(tmp_path: Path) -> None:
    before = save(tmp_path / "before.onnx")
    apart = helper.make_node("Exp", ["x"], ["e"], name="unrelated")
    assert against(before, save(tmp_path / "after.onnx", apart, outputs=("y", "e"))) == []


def test_a_rewriting_is_a_line_too(tmp_path: Path) -> None:
    before = save(tmp_path / "before.onnx")
    found = [fusion for fusion in locked(before)[0] if not fusion.variant]
    assert [fusion.kind for fusion in found] == ["rewrite.gemm"] or found == []
    same = helper.make_node("Identity", ["y"], ["z"], name="same")
    twice = helper.make_node("Neg", ["z"], ["n"], name="negative")
    after = save(tmp_path / "after.onnx", same, twice, outputs=("n",))
    assert Fusion("", "rewrite.redundant", ("same",)) in locked(after)[0]


def test_other_names_of_all_nodes_and_values_lose_nothing(tmp_path: Path) -> None:
    before = save(tmp_path / "before.onnx")
    assert against(before, called_otherwise(before, tmp_path / "after.onnx")) == []


def test_of_a_model_of_other_names_only_what_is_lost_is_named(tmp_path: Path) -> None:
    """A second reader keeps the product and what follows apart; nothing else is said to be lost."""
    before = save(tmp_path / "before.onnx")
    reader = helper.make_node("ReduceMax", ["u"], ["m"], name="hook", keepdims=0)
    broken = save(tmp_path / "broken.onnx", reader, outputs=("y", "m"))
    plain = [change.fusion for change in against(before, broken) if change.lost]
    found = against(before, called_otherwise(broken, tmp_path / "after.onnx"))
    assert [change.fusion for change in found if change.lost] == plain and plain
    assert all(note for change in found if change.lost for note in change.notes)


def test_a_node_of_the_same_name_that_is_another_one_is_not_it() -> None:
    assert renamed({"a": "1", "b": "2"}, {"a": "2", "c": "1"}) == {"a": "c", "b": "a"}
    assert renamed({"a": "1", "b": "2"}, {"a": "9", "b": "2"}) == {"a": "a", "b": "b"}
    assert renamed({"a": "1", "b": "2"}, {"b": "1"}) == {"a": "b"}


def test_what_a_node_is_hangs_on_attributes_and_inputs_and_not_on_trained_numbers(tmp_path: Path) -> None:
    first = structure_of(load(save(tmp_path / "a.onnx")))
    trained = onnx.load(tmp_path / "a.onnx")
    weights = numpy_helper.to_array(trained.graph.initializer[0]) + 1
    trained.graph.initializer[0].CopyFrom(numpy_helper.from_array(weights, "w"))
    assert structure_of(load(trained)) == first
    trained.graph.node[-1].attribute.append(helper.make_attribute("axis", 0))
    changed = structure_of(load(trained))
    assert {name for name in first if first[name] != changed[name]} == {"softmax"}
    assert len(set(first.values())) == len(first)


names = st.text(min_size=1, max_size=6)
nodes = st.lists(names, min_size=1, max_size=4).map(tuple)
fused = st.lists(st.builds(Fusion, st.sampled_from(["main", 'a "b"\n']), st.sampled_from(["kernel", "view"]), nodes))
rewritings = st.lists(st.builds(Fusion, st.just(""), st.sampled_from(["rewrite.gelu", "rewrite.gemm"]), nodes))


@given(fused, rewritings)
def test_the_text_comes_back(compiled: list[Fusion], rewritten: list[Fusion]) -> None:
    fusions = [*sorted(compiled, key=lambda fusion: fusion.variant), *rewritten]
    assert parse_lock(print_lock(fusions), "m.lock") == fusions
    structure = {name: f"id of {name}" for fusion in fusions for name in fusion.nodes}
    text = print_lock(fusions, structure)
    assert (parse_lock(text, "m.lock"), parse_nodes(text, "m.lock")) == (fusions, structure)


@pytest.mark.parametrize(
    "line", ["kernel a b", 'kernel "a', "kernel 3", "nonsense", 'kernel "a"', 'variant "m"\nkernel']
)
def test_a_line_that_is_none_is_named(line: str) -> None:
    with pytest.raises(OptionError, match=r"m\.lock:[12]: "):
        parse_lock(line + "\n", "m.lock")

"""Nodes that become functions: what is given to them, what they give, and what cannot be one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import onnx_ir as ir

from opweld.rewrite.functions import SMALL, Group, make_functions
from tests.unit.rewrite.rewritten import Array, computed, model_of, normal

CHAIN = "g (float[n, 8] x) => (float[n, 8] y) { a = Exp(x) b = Neg(a) c = Add(a, b) d = Tanh(c) y = Mul(d, a) }"
FED = {"x": normal(3, 8)}


def grouped(model: onnx.ModelProto, *groups: str, feeds: dict[str, Array] = FED) -> tuple[onnx.ModelProto, list[str]]:
    """The model with functions of the nodes that give these values, which gives the same; and what was refused."""
    opened = ir.serde.deserialize_model(model)
    makers = {value.name: node for node in opened.graph.all_nodes() for value in node.outputs}
    asked = [Group(f"g{at}", [makers[name] for name in names.split()], "one", {}) for at, names in enumerate(groups)]
    refused = make_functions(opened, asked, "own")
    made = ir.serde.serialize_model(opened)
    onnx.checker.check_model(made, full_check=True)
    for wanted, found in zip(computed(model, feeds), computed(made, feeds), strict=True):
        np.testing.assert_array_equal(found, wanted, strict=True)
    return made, list(refused.values())


def operators(owner: onnx.GraphProto | onnx.FunctionProto) -> Sequence[str]:
    return [node.op_type for node in owner.node]


def test_nodes_become_a_function_and_a_call() -> None:
    made, refused = grouped(model_of(CHAIN), "b c d")
    assert not refused
    assert operators(made.graph) == ["Exp", "g0", "Mul"]
    (function,) = made.functions
    assert (function.domain, list(function.input), list(function.output)) == ("own", ["a"], ["d"])
    assert operators(function) == ["Neg", "Add", "Tanh"]
    assert function.doc_string == "one"


def test_what_is_read_outside_and_what_the_model_gives_are_outputs() -> None:
    made, _ = grouped(model_of(CHAIN), "a b", "d y")
    assert [list(function.output) for function in made.functions] == [["a", "b"], ["y"]]
    assert operators(made.graph) == ["g0", "Add", "g1"]
    assert [value.name for value in made.graph.output] == ["y"]


def test_a_group_that_waits_for_itself_is_refused() -> None:
    made, refused = grouped(model_of(CHAIN), "a b d", "c y")
    assert refused == ["a node outside of it reads one part of it and is read by another"] * 2
    assert operators(made.graph) == ["Exp", "Neg", "Add", "Tanh", "Mul"]


def test_of_groups_that_wait_for_each_other_the_smallest_is_refused() -> None:
    text = (
        "g (float[n, 8] x) => (float[n, 8] y) { a = Exp(x) b = Neg(a) c = Sin(x) d = Tanh(c) e = Neg(d) y = Add(b, e) }"
    )
    made, refused = grouped(model_of(text), "a d e", "c b")
    assert len(refused) == 1
    assert [operators(function) for function in made.functions] == [["Exp", "Tanh", "Neg"]]


def test_small_tensors_stand_inside_and_large_ones_are_given() -> None:
    text = "g (float[n, 30] x) => (float[m] y) { a = MatMul(x, w) b = Add(a, k) y = Reshape(b, s) c = Add(b, k) }"
    weights = {"w": normal(30, 8), "k": normal(8), "s": np.array([-1])}
    assert weights["w"].nbytes > SMALL
    made, _ = grouped(model_of(text, weights), "a b y", feeds={"x": normal(3, 30)})
    (function,) = made.functions
    assert list(function.input) == ["x", "w"]
    assert operators(function) == ["Constant", "Constant", "MatMul", "Add", "Reshape"]
    assert [tensor.name for tensor in made.graph.initializer] == ["w", "k"], "what nobody reads is gone"


CHOICE = """g (float[3, 8] x, bool p) => (float[3, 8] y) {{
    a = Exp(x)
    b = If(p) <then_branch = t () => (float[3, 8] u) {{ r = Neg(a) s = Exp(r) u = Mul(s, a) }},
               else_branch = e () => (float[3, 8] v) {{ v = Sin(a) }}>
    y = Tanh(b) }}"""


def test_bodies_have_functions_of_their_own() -> None:
    model = model_of(CHOICE.format())
    for p in (True, False):
        feeds = {**FED, "p": np.array(p)}
        made, refused = grouped(model, "r s u", feeds=feeds)
        assert not refused
        assert list(made.functions[0].input) == ["a"]
    _, refused = grouped(model, "a r", "a b", feeds={**FED, "p": np.array(True)})
    assert [reason.split(",")[0] for reason in refused] == [
        "its nodes are in several bodies",
        "it holds a node with bodies",
    ]
    made, refused = grouped(model, "a y", feeds={**FED, "p": np.array(True)})
    assert len(refused) == 1, "what the body reads is awaited too"

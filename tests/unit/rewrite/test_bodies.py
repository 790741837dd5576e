"""Bodies of If, Loop and Scan are rewritten as the graph around them is."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from opweld.rewrite.optimize import Optimized
from tests.unit.rewrite.rewritten import kinds, model_of, normal, rewritten

BRANCHES = """g (float[n, 8] x, bool c) => (float[n, 4] y) {
    y = If (c) <
        then_branch = a () => (float[n, 4] p) { i = Identity(x) t = MatMul(i, w) s = Add(t, b) p = Relu(s) },
        else_branch = d () => (float[n, 4] q) { t = MatMul(x, w) u = Transpose(t) v = Transpose(u) q = Neg(v) }
    > }"""
"""Both branches call a value t."""


def bodies(made: Optimized) -> dict[str, list[str]]:
    """The operators of each body, by its name."""
    return {str(graph.name): [node.op_type for node in graph] for graph in made.model.graph.subgraphs()}


def test_branches() -> None:
    weights = {"w": normal(8, 4), "b": normal(4)}
    model = model_of(BRANCHES, weights)
    for condition in (True, False):
        made = rewritten(model, {"x": normal(3, 8), "c": np.array(condition)})
    assert bodies(made) == {"a": ["Gemm", "Relu"], "d": ["MatMul", "Neg"]}


def test_what_is_known_around_a_body_is_known_in_it() -> None:
    text = """g (float[n, 8] x, bool c) => (float[n, 8] y) {
        k = Add(one, one)
        y = If (c) <
            then_branch = a () => (float[n, 8] p) { m = Mul(k, k) p = Mul(x, m) },
            else_branch = d () => (float[n, 8] q) { q = Mul(x, k) } > }"""
    made = rewritten(model_of(text, {"one": normal(8)}), {"x": normal(3, 8), "c": np.array(True)})
    assert kinds(made) == ["If"] and bodies(made) == {"a": ["Mul"], "d": ["Mul"]}


def test_a_loop() -> None:
    """What is known of the first iteration is not taken for what is known of all."""
    text = """g (float[2] x, int64 trips) => (float[2] last) {
        last = Loop (trips, yes, x) <
            body = r (int64 i, bool go, float[2] s) => (bool again, float[2] next) {
                again = Identity(go) f = Cast<to = 1>(i) t = Add(s, f) d = Identity(t) next = Mul(d, half) }
        > }"""
    weights = {"yes": np.array(True), "half": np.array([0.5, 0.25], np.float32)}
    made = rewritten(model_of(text, weights), {"x": normal(2), "trips": np.array(3)})
    assert bodies(made) == {"r": ["Identity", "Cast", "Add", "Mul"]}


def test_tensors_of_bodies_are_stored_once() -> None:
    text = """g (float[n, 8] x, bool c) => (float[n, 8] y) {
        y = If (c) <
            then_branch = a () => (float[n, 8] p) { k = Constant<value = float[1] {1.5}>() p = Mul(x, k) },
            else_branch = d () => (float[n, 8] q) { k = Constant<value = float[1] {1.5}>() q = Add(x, k) } > }"""
    for condition in (True, False):
        made = rewritten(model_of(text), {"x": normal(3, 8), "c": np.array(condition)})
    assert bodies(made) == {"a": ["Mul"], "d": ["Add"]}
    assert len(made.model.graph.initializers) == 1
    assert not any(graph.initializers for graph in made.model.graph.subgraphs())
    assert isinstance(made.model.graph[0], ir.Node)


def test_tensors_are_stored_where_they_are_read() -> None:
    text = """g (float[n, 8] x, bool c) => (float[n, 8] y, float[n, 8] z) {
        y = If (c) <
            then_branch = a () => (float[n, 8] p) {
                p = If (c) <
                    then_branch = b () => (float[n, 8] r) { r = Mul(x, own) },
                    else_branch = d () => (float[n, 8] s) { t = Add(x, both) s = Sub(t, half) } > },
            else_branch = e () => (float[n, 8] q) { q = Add(x, half) } >
        z = Add(x, both) }"""
    weights = {"own": normal(8), "both": normal(8, seed=1), "half": normal(8, seed=2)}
    for condition in (True, False):
        made = rewritten(model_of(text, weights), {"x": normal(3, 8), "c": np.array(condition)})
    assert set(made.model.graph.initializers) == {"both", "half"}
    assert {g.name: set(g.initializers) for g in made.model.graph.subgraphs() if g.initializers} == {"b": {"own"}}

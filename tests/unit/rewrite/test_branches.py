"""An If whose condition is known is the branch that it takes."""

from __future__ import annotations

import numpy as np
import pytest

from opweld.ledger import Ledger
from opweld.rewrite.optimize import optimize_model
from opweld.rules import REWRITES
from tests.unit.rewrite.rewritten import kinds, model_of, normal, rewritten

YES, NO = np.array(True), np.array(False)

BOTH = """g (float[n, 8] x) => (float[n, 8] y) {
    t = Relu(x)
    r = If (c) <
        then_branch = a () => (float[n, 8] p) { t1 = Sigmoid(t) p = Mul(t1, x) },
        else_branch = b () => (float[n, 8] q) { t1 = Tanh(x) t2 = Neg(t1) q = Add(t2, t1) } >
    y = Softplus(r) }"""
"""Both branches call a value t1, and read what is around them."""


def test_the_branch_that_is_taken() -> None:
    feeds = {"x": normal(3, 8)}
    assert kinds(rewritten(model_of(BOTH, {"c": YES}), feeds)) == ["Relu", "Sigmoid", "Mul", "Softplus"]
    assert kinds(rewritten(model_of(BOTH, {"c": NO}), feeds)) == ["Tanh", "Neg", "Add", "Softplus"]


def test_a_condition_that_is_folded() -> None:
    """It asks for the rank of something, as exporters of PyTorch's squeeze do."""
    text = BOTH.replace("t = Relu(x)", "t = Relu(x) s = Shape(x) k = Shape(s) l = Squeeze(k) c = Equal(l, two)")
    made = rewritten(model_of(text, {"two": np.array(2)}), {"x": normal(3, 8)})
    assert kinds(made) == ["Relu", "Sigmoid", "Mul", "Softplus"]


def test_ifs_in_branches() -> None:
    """One of them is known, one depends on what is fed; its branches are rewritten like any."""
    text = """g (float[n, 8] x, bool fed) => (float[n, 8] y, float[n, 8] z) {
        y, z = If (c) <
            then_branch = a () => (float[n, 8] p, float[n, 8] o) {
                u = Relu(x)
                o = If (d) <
                    then_branch = e () => (float[n, 8] h) { h = Neg(u) },
                    else_branch = f () => (float[n, 8] i) { u2 = Sigmoid(u) i = Add(u2, x) } >
                p = If (fed) <
                    then_branch = j () => (float[n, 8] k) { v = Identity(u) k = Tanh(v) },
                    else_branch = l () => (float[n, 8] m) { m = Neg(o) } > },
            else_branch = b () => (float[n, 8] q, float[n, 8] s) { q = Tanh(x) s = Relu(q) } > }"""
    for fed in (YES, NO):
        made = rewritten(model_of(text, {"c": YES, "d": NO}), {"x": normal(3, 8), "fed": fed})
        assert kinds(made) == ["Relu", "Sigmoid", "Add", "If"]
        assert [[node.op_type for node in body] for body in made.model.graph.subgraphs()] == [["Tanh"], ["Neg"]]


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ("p = Constant<value = float[2] {1.5, 2.5}>()", ["Constant", "Add"]),
        ("p = Identity(x)", ["Identity", "Add"]),
        ("p = Identity(k)", ["Identity", "Add"]),
        ("p = Neg(x)", ["Neg", "Add"]),
    ],
)
def test_what_a_branch_hands_on(body: str, left: list[str]) -> None:
    """An output of the model is the result of a node."""
    text = f"""g (float[2] x) => (float[2] y, float[2] z) {{
        y = If (c) <
            then_branch = a () => (float[2] p) {{ {body} }}, else_branch = b () => (float[2] q) {{ q = Abs(x) }} >
        z = Add(y, x) }}"""
    made = rewritten(model_of(text, {"c": YES, "k": normal(2)}), {"x": normal(2)})
    assert kinds(made) == left


def test_in_the_body_of_a_loop() -> None:
    text = """g (float[2] x, int64 trips) => (float[2] last) {
        last = Loop (trips, yes, x) <
            body = r (int64 i, bool go, float[2] s) => (bool again, float[2] next) {
                again = Identity(go)
                t = If (c) <
                    then_branch = a () => (float[2] p) { p = Mul(s, half) },
                    else_branch = b () => (float[2] q) { q = Neg(s) } >
                next = Add(t, x) } > }"""
    weights = {"yes": YES, "c": YES, "half": np.array([0.5, 0.25], np.float32)}
    made = rewritten(model_of(text, weights), {"x": normal(2), "trips": np.array(3)})
    (body,) = made.model.graph.subgraphs()
    assert [node.op_type for node in body] == ["Identity", "Mul", "Add"]


def test_what_stays() -> None:
    text = BOTH.replace("float[n, 8] x)", "float[n, 8] x, bool c)", 1)
    assert kinds(rewritten(model_of(text), {"x": normal(3, 8), "c": YES})) == ["Relu", "If", "Softplus"]
    model = model_of(BOTH, {"c": YES})
    made = optimize_model(model, lambda: Ledger(disable=("rewrite.branches",), rules=REWRITES))
    assert kinds(made) == ["Relu", "If", "Softplus"]
    assert "If" not in kinds(optimize_model(model, lambda: Ledger(level="basic", rules=REWRITES)))

"""What is selected of a result is selected before it is computed."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.unit.rewrite.rewritten import kinds, model_of, normal, refusals, rewritten

FIRST = {"first": np.array(0)}
SOME = {"first": np.array([3, 1])}


@pytest.mark.parametrize(("indices", "dims"), [(FIRST, "b, 8"), (SOME, "b, 2, 8")])
@pytest.mark.parametrize(
    "node",
    ["Relu(x)", "Clip(x, low, high)", "Softmax<axis = -1>(x)", "Softmax<axis = 2>(x)", "LayerNormalization(x, v)",
     "LayerNormalization<axis = 2>(x, v, v)", "Add(x, v)", "Mul(v, x)", "Mul(x, one)", "Where(m, x, one)",
     "MatMul(x, w)"],
)  # fmt: skip
def test_it_moves_over(node: str, indices: dict[str, np.ndarray], dims: str) -> None:
    text = f"g (float[b, 5, 8] x) => (float[{dims}] y) {{ t = {node} y = Gather<axis = 1>(t, first) }}"
    stored = {
        "low": np.float32(-1), "high": np.float32(1), "v": normal(8), "one": normal(1, 1, 8), "w": normal(8, 8),
        "m": normal(5, 1) > 0,
    }  # fmt: skip
    used = {name: np.asarray(array) for name, array in stored.items() if re.search(rf"\b{name}\b", node)}
    made = rewritten(model_of(text, used | indices), {"x": normal(2, 5, 8)})
    assert kinds(made) == ["Gather", node.partition("(")[0].partition("<")[0]]


def test_slices() -> None:
    text = "g (float[b, 5, 8] x) => (float[b, 2, 8] y) { t = Gelu(x) y = Slice(t, start, end, axis) }"
    bounds = {"start": np.array([1]), "end": np.array([3]), "axis": np.array([1])}
    assert kinds(rewritten(model_of(text, bounds), {"x": normal(2, 5, 8)})) == ["Slice", "Gelu"]


@pytest.mark.parametrize("other", ["m", "one"])
def test_nothing_of_a_single_element(other: str) -> None:
    """An empty selection along an axis of extent one leaves no operand as it is, stored ones neither."""
    text = f"""g (float[b, 1, 8] x, float[b, 1, 8] m) => (float[b, 0, 8] y) {{
        t = Add(x, {other}) y = Gather<axis = 1>(t, none) }}"""
    stored = {"none": np.zeros(0, np.int64)} | ({"one": normal(1, 1, 8)} if other == "one" else {})
    made = rewritten(model_of(text, stored), {"x": normal(2, 1, 8), "m": normal(2, 1, 8)})
    assert kinds(made)[-1] == "Add"


def test_the_only_element_of_a_stored_operand_is_a_scalar() -> None:
    text = "g (float[b] x) => (float y) { t = Sub(x, one) y = Gather(t, first) }"
    made = rewritten(model_of(text, {"one": normal(1)} | FIRST), {"x": normal(3)})
    assert kinds(made) == ["Gather", "Sub"]


@pytest.mark.parametrize(("indices", "dims"), [(FIRST, "8, b"), (SOME, "2, 8, b")])
def test_transpositions(indices: dict[str, np.ndarray], dims: str) -> None:
    text = f"""g (float[b, 5, 8] x) => (float[{dims}] y) {{
        t = Transpose<perm = [1, 2, 0]>(x) y = Gather<axis = 0>(t, first) }}"""
    assert kinds(rewritten(model_of(text, indices), {"x": normal(2, 5, 8)})) == ["Gather", "Transpose"]


def test_the_last_layer_of_a_classifier() -> None:
    """A residual, a normalisation and two products are computed for the first token alone."""
    text = """g (float[b, 5, 8] x) => (float[b, 3] y) {
        h = LayerNormalization(x, v) u = MatMul(h, w1) r = Relu(u) d = MatMul(r, w2) s = Add(x, d)
        n = LayerNormalization(s, v) c = Gather<axis = 1>(n, first) y = MatMul(c, head) }"""
    weights = {"v": normal(8), "w1": normal(8, 16), "w2": normal(16, 8), "head": normal(8, 3)}
    made = rewritten(model_of(text, weights | FIRST), {"x": normal(2, 5, 8)})
    assert kinds(made) == [
        "Gather", "LayerNormalization", "MatMul", "Relu", "MatMul", "Add", "LayerNormalization", "MatMul"
    ]  # fmt: skip


def test_what_stays() -> None:
    cases = {
        "t = Softmax<axis = 1>(x) y = Gather<axis = 1>(t, first) r = Identity(x)": "it needs all elements of the axis",
        "t = Relu(x) y = Gather<axis = 1>(t, first) r = Neg(t)": "it has other readers",
    }
    for nodes, reason in cases.items():
        text = f"g (float[b, 5, 8] x) => (float[b, 8] y, float[b, 5, 8] r) {{ {nodes} }}"
        made = rewritten(model_of(text, FIRST), {"x": normal(2, 5, 8)})
        assert refusals(made, "rewrite.selection")[0].reason == reason
    text = "g (float[b, 5, 8] x) => (float[b, 6, 8] y) { t = Relu(x) y = Gather<axis = 1>(t, many) }"
    model = model_of(text, {"many": np.array([0, 1, 2, 3, 4, 0])})
    assert kinds(rewritten(model, {"x": normal(2, 5, 8)})) == ["Relu", "Gather"]

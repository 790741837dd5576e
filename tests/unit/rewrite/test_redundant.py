from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.unit.rewrite.rewritten import kinds, model_of, normal, refusals, rewritten

X = {"x": normal(2, 3, 4)}


@pytest.mark.parametrize(
    "node",
    [
        "Identity(a)",
        "Dropout(a)",
        "Cast<to = 1>(a)",
        "Transpose<perm = [0, 1, 2]>(a)",
        "Concat<axis = 1>(a)",
        "Sum(a)",
        "Clip(a)",
        "Reshape(a, same)",
        "Expand(a, same)",
        "Slice(a, zeros, same, three)",
        "Pad(a, none)",
        "Mul(a, one)",
        "Mul(one, a)",
        "Div(a, one)",
        "Sub(a, zero)",
        "Add(a, minus_zero)",
        "Pow(a, one)",
    ],
)
def test_what_hands_on_its_input_goes(node: str) -> None:
    weights = {
        "same": np.array([2, 3, 4]),
        "zeros": np.zeros(3, np.int64),
        "three": np.arange(3),
        "none": np.zeros(6, np.int64),
        "one": np.array(1, np.float32),
        "zero": np.array(0, np.float32),
        "minus_zero": np.array(-0.0, np.float32),
    }
    text = f"g (float[2, 3, 4] x) => (float[2, 3, 4] y) {{ a = Relu(x) b = {node} y = Neg(b) }}"
    made = rewritten(model_of(text, weights), X)
    assert kinds(made) == ["Relu", "Neg"]
    assert made.ledger.counts()["rewrite.redundant"] == (1, 1)


@pytest.mark.parametrize("symbol", ["n", "?"])
def test_symbolic_sizes_are_known_to_be_the_same(symbol: str) -> None:
    dim = symbol if symbol != "?" else ""
    text = f"""g (float[{dim or "n"}, 3, 4] x) => (float[{dim or "n"}, 3, 4] y)
        {{ s = Shape(x) a = Relu(x) b = Reshape(a, s) y = Neg(b) }}"""
    assert kinds(rewritten(model_of(text), X)) == ["Relu", "Neg"]


def test_what_changes_its_input_stays() -> None:
    weights = {
        "one": np.ones((2, 3, 4), np.float32),
        "back": np.array([-1]),
        "first": np.array([0]),
        "last": np.array([-9]),
    }
    text = """g (float[3, 4] x) => (float[2, 3, 4] y, float[3, 4] z)
        { y = Mul(x, one) z = Slice(x, back, last, first, back) }"""
    made = rewritten(model_of(text, weights), {"x": normal(3, 4)})
    assert kinds(made) == ["Mul", "Slice"], "the one broadcasts, the other turns around"


def test_zero_keeps_its_sign() -> None:
    text = "g (float[n] x) => (float[n] y) { a = Relu(x) b = Add(a, zero) y = Neg(b) }"
    made = rewritten(model_of(text, {"zero": np.array(0, np.float32)}), {"x": normal(3)})
    assert kinds(made) == ["Relu", "Add", "Neg"]
    assert refusals(made, "rewrite.redundant")[0].reason == "adding 0 turns -0 into 0"
    text = text.replace("Add", "Sub")
    made = rewritten(model_of(text, {"zero": np.array(-0.0, np.float32)}), {"x": normal(3)})
    assert kinds(made) == ["Relu", "Sub", "Neg"]
    assert refusals(made, "rewrite.redundant")[0].reason == "subtracting -0 turns -0 into 0"
    assert kinds(rewritten(model_of(text, {"zero": np.array(0, np.float32)}), {"x": normal(3)})) == ["Relu", "Neg"]


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize(
    "nodes",
    ["a = MatMul(x, w)", "m = MatMul(x, w) a = Transpose<perm = [0, 2, 1]>(m)", "a = Softmax(x)", "a = Abs(x)"],
)
def test_zero_is_added_to_what_has_no_negative_zeros(nodes: str, rows: int) -> None:
    """As torch's exporter writes a bias that was never trained."""
    text = f"g (float[n, 3, 3] x) => (float[n, 3, 3] y) {{ {nodes} b = Add(a, zero) y = Neg(b) }}"
    weights = {"zero": np.zeros(3, np.float32), "w": normal(3, 3)}
    made = rewritten(model_of(text, weights), {"x": normal(rows, 3, 3)})
    assert "Add" not in kinds(made)


def test_dropout_that_trains_stays() -> None:
    weights = {"ratio": np.array(0.5, np.float32), "on": np.array(True)}
    text = "g (float[n] x) => (float[n] y) { a = Dropout(x, ratio, on) y = Neg(a) }"
    made = rewritten(model_of(text, weights))
    assert kinds(made) == ["Dropout", "Neg"]
    assert refusals(made, "rewrite.redundant")[0].reason == "it trains"


def test_names_of_the_interface_stay() -> None:
    made = rewritten(model_of("g (float[n] x) => (float[n] y) { y = Identity(x) }"), {"x": normal(3)})
    assert kinds(made) == ["Identity"]
    assert refusals(made, "rewrite.redundant")[0].reason == "it names an output of the model"
    text = "g (float[n] x) => (float[n] y, float[n] z) { a = Relu(x) y = Identity(a) z = Identity(a) }"
    made = rewritten(model_of(text), {"x": normal(3)})
    assert kinds(made) == ["Relu", "Identity"]


def test_bodies_read_what_outer_nodes_read() -> None:
    text = """g (float[n] x, bool c) => (float[n] y) {
        a = Relu(x) b = Identity(a)
        y = If(c) <then_branch = t () => (float[n] u) { u = Neg(b) }, else_branch = e () => (float[n] v) { v = Abs(b) }>
    }"""
    for chosen in (True, False):
        made = rewritten(model_of(text), {"x": normal(3), "c": np.array(chosen)})
        assert kinds(made) == ["Relu", "If"]


def test_levels_and_names_switch_rules_off() -> None:
    text = "g (float[n] x) => (float[n] y) { a = Relu(x) b = Identity(a) y = Neg(b) }"
    switched: list[dict[str, Any]] = [
        {"level": "none"},
        {"disable": ["rewrite.redundant"]},
        {"disable": ["rewrite"]},
        {"prefix": 0},
    ]
    for options in switched:
        assert kinds(rewritten(model_of(text), {"x": normal(3)}, **options)) == ["Relu", "Identity", "Neg"]

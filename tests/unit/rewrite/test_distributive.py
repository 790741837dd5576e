"""What is taken out of sums, and the order in which matrices are multiplied."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest

from opweld.ledger import Ledger
from opweld.rewrite.optimize import optimize_model
from opweld.rules import REWRITES
from tests.unit.rewrite.answers import written
from tests.unit.rewrite.rewritten import Array, computed, kinds, model_of, normal, refusals, rewritten

THREE = {name: normal(3, 4, seed=seed) for seed, name in enumerate("abc")}


@pytest.mark.parametrize(
    ("nodes", "left"),
    [
        ("m = Mul(a, b) n = Mul(a, c) s = Add(m, n)", ["Add", "Mul"]),
        ("m = Mul(b, a) n = Mul(a, c) s = Sub(m, n)", ["Sub", "Mul"]),
        ("m = Mul(a, k) n = Mul(l, a) s = Add(m, n)", ["Mul"]),
        ("m = Mul(a, k) n = Mul(a, l) s = Sub(m, n)", ["Mul"]),
        ("m = Mul(a, k) s = Add(m, a)", ["Mul"]),
        ("m = Mul(k, a) s = Sub(a, m)", ["Mul"]),
        ("m = Mul(a, b) s = Add(m, a)", ["Mul", "Add"]),
        ("m = Mul(a, b) n = Mul(b, c) s = Add(n, m)", ["Add", "Mul"]),
    ],
)
def test_a_factor_in_common(nodes: str, left: list[str]) -> None:
    weights = {"k": normal(4, seed=7), "l": np.array(0.3, np.float32)}
    used = {name: array for name, array in weights.items() if f" {name})" in nodes or f"({name}," in nodes}
    inputs = ", ".join(f"float[n, 4] {name}" for name in "abc")
    made = rewritten(model_of(f"g ({inputs}) => (float[n, 4] y) {{ {nodes} y = Tanh(s) }}", used), THREE)
    assert kinds(made) == [*left, "Tanh"]


def test_a_factor_in_common_of_integers() -> None:
    text = "g (int8[n, 4] a) => (int8[n, 4] y) { m = Mul(a, k) n = Mul(a, l) s = Sub(m, n) y = Abs(s) }"
    weights = {"k": np.array(100, np.int8), "l": np.array(-100, np.int8)}
    feeds = {"a": np.arange(-6, 6, dtype=np.int8).reshape(3, 4)}
    assert kinds(rewritten(model_of(text, weights), feeds)) == ["Mul", "Abs"]


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ("m = Mul(a, b) n = Mul(a, c) y = Add(m, n)", "the sum of the other factors may overflow FLOAT16"),
        ("m = Mul(a, k) n = Mul(a, k) y = Add(m, n)", ""),
        ("m = Mul(a, k) n = Mul(a, l) y = Add(m, n)", "the combined numbers are not finite in their type"),
    ],
)
def test_a_sum_that_half_precision_does_not_hold(nodes: str, reason: str) -> None:
    weights: dict[str, Array] = {"k": np.array(4e4, np.float16), "l": np.array(3e4, np.float16)}
    used = {name: array for name, array in weights.items() if f" {name})" in nodes}
    inputs = ", ".join(f"float16[n, 4] {name}" for name in "abc")
    feeds = {name: (array * 1e-2).astype(np.float16) for name, array in THREE.items()}
    made = rewritten(model_of(f"g ({inputs}) => (float16[n, 4] y) {{ {nodes} }}", used), feeds)
    assert [refused.reason for refused in refusals(made, "rewrite.common_factor")] == ([reason] if reason else [])


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize(
    ("nodes", "left"),
    [
        ("p = MatMul(x, v) q = MatMul(x, w) s = Add(p, q)", ["MatMul"]),
        ("p = MatMul(x, v) q = MatMul(x, w) s = Sub(p, q)", ["MatMul"]),
        ("p = MatMul(x, v) d = Add(p, b) q = MatMul(x, w) e = Add(q, c) s = Add(d, e)", ["MatMul", "Add"]),
    ],
)
def test_products_of_one_value_are_added(nodes: str, left: list[str], rows: int) -> None:
    weights = {"v": normal(4, 6), "w": normal(4, 6, seed=1), "b": normal(6), "c": normal(6, seed=1)}
    used = {name: array for name, array in weights.items() if f" {name})" in nodes}
    text = f"g (float[n, 5, 4] x) => (float[n, 5, 6] y) {{ {nodes} y = Tanh(s) }}"
    assert kinds(rewritten(model_of(text, used), {"x": normal(rows, 5, 4)})) == [*left, "Tanh"]


@pytest.mark.parametrize("rows", [1, 3])
def test_convolutions_of_one_value_are_added(rows: int) -> None:
    weights = {"v": normal(6, 4, 3, 3), "w": normal(6, 4, 3, 3, seed=1), "b": normal(6)}
    text = """g (float[n, 4, 7, 8] x) => (float[n, 6, 7, 8] y) {
        p = Conv<pads = [1, 1, 1, 1]>(x, v, b) q = Conv<pads = [1, 1, 1, 1]>(x, w) s = Add(p, q) y = Relu(s) }"""
    assert kinds(rewritten(model_of(text, weights), {"x": normal(rows, 4, 7, 8)})) == ["Conv", "Relu"]


def test_convolutions_that_look_elsewhere_are_not_added() -> None:
    weights = {"v": normal(6, 4, 3, 3), "w": normal(6, 4, 1, 1)}
    text = """g (float[n, 4, 7, 8] x) => (float[n, 6, 7, 8] y) {
        p = Conv<pads = [1, 1, 1, 1]>(x, v) q = Conv(x, w) y = Add(p, q) }"""
    made = rewritten(model_of(text, weights), {"x": normal(2, 4, 7, 8)})
    assert kinds(made) == ["Conv", "Conv", "Add"]
    assert refusals(made, "rewrite.sum_of_products")[0].reason == "the products differ in more than their weights"


@pytest.mark.parametrize(
    ("inputs", "result", "nodes", "fires"),
    [
        ({"a": "n, 8", "b": "8, 6", "c": "6, 1"}, "n, 1", "p = MatMul(a, b) y = MatMul(p, c)", False),
        ({"a": "n, 8", "b": "8, 6", "c": "6"}, "n", "p = MatMul(a, b) y = MatMul(p, c)", False),
        ({"a": "9, 8", "b": "8, 6", "c": "6"}, "9", "p = MatMul(a, b) y = MatMul(p, c)", True),
        ({"a": "1, 8", "b": "8, 6", "c": "6, n"}, "1, n", "p = MatMul(b, c) y = MatMul(a, p)", True),
        ({"a": "1, 8", "b": "8, 6", "c": "6, 5"}, "1, 5", "p = MatMul(a, b) y = MatMul(p, c)", False),
        ({"a": "n, 9, 2", "b": "n, 2, 9", "c": "n, 9, 3"}, "n, 9, 3", "p = MatMul(a, b) y = MatMul(p, c)", True),
    ],
)
def test_matrices_are_multiplied_in_the_order_that_costs_less(
    inputs: dict[str, str], result: str, nodes: str, fires: bool
) -> None:
    dims = ", ".join(f"float[{shape}] {name}" for name, shape in inputs.items())
    shapes = {name: [5 if dim == "n" else int(dim) for dim in shape.split(", ")] for name, shape in inputs.items()}
    feeds = {name: normal(*shape) for name, shape in shapes.items()}
    made = rewritten(model_of(f"g ({dims}) => (float[{result}] y) {{ {nodes} }}"), feeds)
    assert kinds(made) == ["MatMul", "MatMul"]
    assert (made.ledger.counts().get("rewrite.association", (0, 0))[0] == 1) is fires


def test_an_order_that_hangs_on_sizes_is_a_near_miss() -> None:
    text = "g (float[n, 8] a, float[8, m] b, float[m, 4] c) => (float[n, 4] y) { p = MatMul(a, b) y = MatMul(p, c) }"
    made = rewritten(model_of(text), {"a": normal(5, 8), "b": normal(8, 6), "c": normal(6, 4)})
    assert refusals(made, "rewrite.association")[0].reason == "which order costs less depends on sizes"


def test_half_precision_keeps_its_order() -> None:
    text = "g (float16[9, 8] a, float16[8, 6] b, float16[6] c) => (float16[9] y) { p = MatMul(a, b) y = MatMul(p, c) }"
    feeds = {"a": normal(9, 8), "b": normal(8, 6), "c": normal(6)}
    made = rewritten(model_of(text), {name: array.astype(np.float16) for name, array in feeds.items()})
    assert refusals(made, "rewrite.association")[0].reason == "the intermediate product may overflow FLOAT16"


GRID = np.array([-np.inf, -2, -0.0, 0, 1, np.inf, np.nan], np.float32)


def unless_nan(model: onnx.ModelProto, feeds: dict[str, Array], rule: str) -> tuple[Array, Array]:
    """The results of a model before and after a rule, where the first are numbers or infinite."""
    made = optimize_model(model, lambda: Ledger(rules=REWRITES))
    assert any(decision.fired for decision in made.ledger if decision.rule == rule)
    with np.errstate(all="ignore"):
        (before,), (after,) = computed(model, feeds), computed(written(made), feeds)
    there = ~np.isnan(before)
    assert there.any() and not there.all()
    return before[there], after[there]


@pytest.mark.parametrize("operator", ["Add", "Sub"])
def test_infinities_times_a_sum(operator: str) -> None:
    """inf - 2 inf is NaN, and -1 inf is not: what was no NaN is what it was, a NaN may be a number."""
    a, b, c = (axis.reshape(-1).copy() for axis in np.meshgrid(GRID, GRID, GRID, indexing="ij"))
    text = (
        f"g (float[n] a, float[n] b, float[n] c) => (float[n] y) {{ m = Mul(a, b) o = Mul(a, c) y = {operator}(m, o) }}"
    )
    np.testing.assert_array_equal(*unless_nan(model_of(text), {"a": a, "b": b, "c": c}, "rewrite.common_factor"))
    for k, m in itertools.product((-2.0, 0.5, 3.0), (-1.5, 0.25, 2.0)):
        stored = {"k": np.array(k, np.float32), "l": np.array(m, np.float32)}
        text = f"g (float[n] a) => (float[n] y) {{ m = Mul(a, k) o = Mul(a, l) y = {operator}(m, o) }}"
        np.testing.assert_array_equal(*unless_nan(model_of(text, stored), {"a": GRID}, "rewrite.common_factor"))


@pytest.mark.parametrize("operator", ["Add", "Sub"])
def test_infinities_times_a_sum_of_weights(operator: str) -> None:
    x = np.array(list(itertools.product(GRID, GRID)), np.float32)
    pairs = np.array(list(itertools.product([-2, 0, 1, 3], repeat=4)), np.float32)
    weights = {"v": pairs[:, :2].T.copy(), "w": pairs[:, 2:].T.copy()}
    text = f"g (float[n, 2] x) => (float[n, 256] y) {{ p = MatMul(x, v) q = MatMul(x, w) y = {operator}(p, q) }}"
    np.testing.assert_array_equal(*unless_nan(model_of(text, weights), {"x": x}, "rewrite.sum_of_products"))

from __future__ import annotations

import numpy as np
import pytest

import opweld
from opweld.verification.reference import float64_outputs
from tests.unit.rewrite.rewritten import kinds, model_of, normal, refusals, rewritten

RULE = "rewrite.consecutive"
BORDERS = "the second one pads, and the first has a bias"
LAYERS = {"v": normal(8, 6), "b": normal(6), "w": normal(6, 4), "c": normal(4)}


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize(
    ("nodes", "left"),
    [
        ("t = MatMul(x, v) s = Add(t, b) y = MatMul(s, w)", ["MatMul", "Add"]),
        ("t = MatMul(x, v) s = Add(b, t) u = MatMul(s, w) y = Add(c, u)", ["MatMul", "Add"]),
        ("t = MatMul(x, v) u = MatMul(t, w) y = Add(u, c)", ["MatMul", "Add"]),
    ],
)
def test_layers_with_biases(nodes: str, left: list[str], rows: int) -> None:
    """As torch exports nn.Linear for rows of more than two axes."""
    used = {name: array for name, array in LAYERS.items() if f" {name})" in nodes or f"({name}," in nodes}
    made = rewritten(
        model_of(f"g (float[n, 5, 8] x) => (float[n, 5, 4] y) {{ {nodes} }}", used), {"x": normal(rows, 5, 8)}
    )
    assert kinds(made) == left


def test_an_activation_between_layers_keeps_both() -> None:
    text = "g (float[n, 5, 8] x) => (float[n, 5, 4] y) { t = MatMul(x, v) s = Add(t, b) r = Relu(s) y = MatMul(r, w) }"
    assert kinds(rewritten(model_of(text, {k: LAYERS[k] for k in "vbw"}), {"x": normal(2, 5, 8)})).count("MatMul") == 2


@pytest.mark.parametrize("height", [5, 8])
@pytest.mark.parametrize(
    ("first", "second", "nodes"),
    [
        ((6, 2, 3, 3), (4, 6, 1, 1), "t = Conv<pads = [1, 1, 1, 1], strides = [2, 1]>(x, p, b) y = Conv(t, q, c)"),
        ((6, 2, 1, 1), (4, 6, 3, 3), "t = Conv(x, p) y = Conv<pads = [1, 0, 0, 1]>(t, q, c)"),
        ((6, 2, 1, 1), (4, 6, 3, 3), "t = Conv(x, p, b) y = Conv<strides = [2, 2]>(t, q, c)"),
        ((6, 2, 1, 1), (4, 6, 3, 3), "t = Conv(x, p, b) y = Conv<dilations = [2, 1]>(t, q)"),
    ],
)
def test_a_convolution_of_single_places_beside_another(
    first: tuple[int, ...], second: tuple[int, ...], nodes: str, height: int
) -> None:
    weights = {"p": normal(*first), "q": normal(*second), "b": normal(6), "c": normal(4)}
    used = {name: array for name, array in weights.items() if f" {name})" in nodes or f" {name}," in nodes}
    text = f"g (float[n, 2, h, 7] x) => (float[n, 4, r, s] y) {{ {nodes} }}"
    assert kinds(rewritten(model_of(text, used), {"x": normal(2, 2, height, 7)})) == ["Conv"]


@pytest.mark.parametrize(
    ("first", "second", "nodes", "reason"),
    [
        ((3, 2, 1, 1), (4, 3, 3, 3), "t = Conv(x, p, b) y = Conv<pads = [1, 1, 1, 1]>(t, q)", BORDERS),
        ((3, 2, 1, 1), (4, 3, 3, 3), 't = Conv(x, p, b) y = Conv<auto_pad = "SAME_UPPER">(t, q)', BORDERS),
        ((3, 2, 3, 3), (4, 3, 3, 3), "t = Conv(x, p, b) y = Conv(t, q)", "neither is pointwise"),
        ((1, 2, 3, 3), (4, 1, 1, 1), "t = Conv(x, p) y = Conv(t, q)", "one product would cost more than two"),
    ],
)  # fmt: skip
def test_convolutions_that_stay_two(first: tuple[int, ...], second: tuple[int, ...], nodes: str, reason: str) -> None:
    weights = {"p": normal(*first), "q": normal(*second)} | ({"b": normal(3)} if "p, b" in nodes else {})
    text = f"g (float[n, 2, h, 7] x) => (float[n, 4, r, s] y) {{ {nodes} }}"
    made = rewritten(model_of(text, weights), {"x": normal(2, 2, 6, 7)})
    assert kinds(made) == ["Conv", "Conv"]
    assert refusals(made, RULE)[0].reason == reason


@pytest.mark.parametrize("rows", [1, 3])
def test_compiling_merges_them_too(rows: int) -> None:
    text = """g (float[n, 5, 8] x) => (float[n, 5, 4] y) {
        t = MatMul(x, v) s = Add(t, b) u = MatMul(s, w) y = Add(u, c) }"""
    model, feeds = model_of(text, LAYERS), {"x": normal(rows, 5, 8)}
    (taken,) = opweld.explain(model).of_rule(RULE)
    assert taken.fired
    (wanted,) = float64_outputs(model, feeds)
    np.testing.assert_allclose(opweld.compile(model).run(feeds)["y"], wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())
    assert not any(decision.fired for decision in opweld.explain(model, disable=[RULE]).of_rule(RULE))

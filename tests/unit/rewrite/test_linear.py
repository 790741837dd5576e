from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.unit.rewrite.rewritten import Array, kinds, model_of, normal, refusals, rewritten


def statistics(channels: int) -> dict[str, Array]:
    names = ("gamma", "beta", "mean", "variance")
    return {n: np.abs(normal(channels, seed=i)) + np.float32(0.1) for i, n in enumerate(names)}


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(
    ("node", "shape"),
    [
        ("Conv", (6, 4, 3, 3)),
        ("Conv<group = 2>", (6, 2, 3, 3)),
        ("ConvTranspose", (4, 6, 3, 3)),
        ("ConvTranspose<group = 2>", (4, 3, 3, 3)),
    ],
)
def test_normalisation_is_in_the_weights(node: str, shape: tuple[int, ...], biased: bool) -> None:
    weights = {"w": normal(*shape), "b": normal(6), **statistics(6)}
    text = f"""g (float[n, 4, 7, 8] x) => (float[n, 6, p, q] y) {{
        c = {node}(x, w{", b" if biased else ""}) y = BatchNormalization(c, gamma, beta, mean, variance) }}"""
    made = rewritten(model_of(text, weights), {"x": normal(2, 4, 7, 8)})
    assert kinds(made) == [node.partition("<")[0]]


@pytest.mark.parametrize("transposed", [0, 1])
def test_normalisation_of_columns(transposed: int) -> None:
    weights = {"w": normal(6, 4) if transposed else normal(4, 6), "b": normal(6), **statistics(6)}
    text = f"""g (float[n, 4] x) => (float[n, 6] y) {{
        c = Gemm<transB = {transposed}>(x, w, b) y = BatchNormalization(c, gamma, beta, mean, variance) }}"""
    assert kinds(rewritten(model_of(text, weights), {"x": normal(3, 4)})) == ["Gemm"]
    if not transposed:
        text = """g (float[n, 4] x) => (float[n, 6] y) {
            c = MatMul(x, w) y = BatchNormalization(c, gamma, beta, mean, variance) }"""
        assert kinds(rewritten(model_of(text, weights), {"x": normal(3, 4)})) == ["Gemm"]


def test_normalisation_that_may_not_move() -> None:
    text = """g (float[n, 4, 7, 8] x, float[6, 4, 3, 3] fed) => (float[n, 6, 5, 6] y, float[n, 6, 5, 6] r) {{
        c = Conv({0}) y = BatchNormalization{1}(c, gamma, beta, mean, variance) r = Relu({2}) }}"""
    weights = {"w": normal(6, 4, 3, 3), **statistics(6)}
    cases = {
        ("x, w", "", "c"): "the result is read by more than one node",
        ("x, fed", "", "y"): "the weights are computed",
    }
    for case, reason in cases.items():
        made = rewritten(model_of(text.format(*case), weights))
        assert refusals(made, "rewrite.batch_normalization")[0].reason == reason
    text = """g (float[n, 4, 7, 8] x) => (float[n, 6, 5, 6] y, float[6] m, float[6] v) {
        c = Conv(x, w) y, m, v = BatchNormalization<training_mode = 1>(c, gamma, beta, mean, variance) }"""
    made = rewritten(model_of(text, weights))
    assert "trains" in refusals(made, "rewrite.batch_normalization")[0].reason


@pytest.mark.parametrize("shape", [(), (1,), (1, 6, 1, 1), (6, 1, 1)])
@pytest.mark.parametrize("node", ["Add(c, k)", "Add(k, c)", "Sub(c, k)", "Mul(c, k)", "Mul(k, c)", "Div(c, k)"])
def test_numbers_for_channels(node: str, shape: tuple[int, ...]) -> None:
    weights = {"w": normal(6, 4, 3, 3), "k": np.abs(normal(*shape)) + np.float32(0.5)}
    text = f"g (float[n, 4, 7, 8] x) => (float[n, 6, 5, 6] y) {{ c = Conv(x, w) y = {node} }}"
    assert kinds(rewritten(model_of(text, weights), {"x": normal(2, 4, 7, 8)})) == ["Conv"]


def test_numbers_for_places_stay() -> None:
    weights = {"w": normal(6, 4, 3, 3), "k": normal(5, 6)}
    text = "g (float[n, 4, 7, 8] x) => (float[n, 6, 5, 6] y) { c = Conv(x, w) y = Add(c, k) }"
    made = rewritten(model_of(text, weights), {"x": normal(2, 4, 7, 8)})
    assert kinds(made) == ["Conv", "Add"]
    assert refusals(made, "rewrite.bias")[0].reason == "what is added differs from place to place"


def test_padding() -> None:
    weights = {"w": normal(6, 4, 3, 3), "p": np.array([0, 0, 1, 2, 0, 0, 0, 3])}
    text = "g (float[n, 4, 7, 8] x) => (float[n, 6, a, b] y) { c = Pad(x, p) y = Conv<pads = [1, 0, 0, 1]>(c, w) }"
    made = rewritten(model_of(text, weights), {"x": normal(2, 4, 7, 8)})
    assert kinds(made) == ["Conv"]
    assert list(made.model.graph[0].attributes["pads"].value) == [2, 2, 0, 4]


@pytest.mark.parametrize(
    ("pads", "more", "reason"),
    [
        ([0, 0, -1, 0, 0, 0, 0, 0], "Pad(x, p)", "it crops, or pads images or channels"),
        ([0, 0, 1, 0, 0, 0, 0, 0], 'Pad<mode = "reflect">(x, p)', "it does not pad with zeros"),
        ([0, 0, 1, 0, 0, 0, 0, 0], "Pad(x, p, one)", "it does not pad with zeros"),
    ],
)
def test_other_padding_stays(pads: list[int], more: str, reason: str) -> None:
    weights: dict[str, Any] = {"w": normal(6, 4, 3, 3), "p": np.array(pads), "one": np.array(1, np.float32)}
    text = f"g (float[n, 4, 7, 8] x) => (float[n, 6, a, b] y) {{ c = {more} y = Conv(c, w) }}"
    made = rewritten(model_of(text, weights), {"x": normal(2, 4, 7, 8)})
    assert kinds(made) == ["Pad", "Conv"]
    assert refusals(made, "rewrite.padding")[0].reason == reason


def test_a_product_and_a_sum_are_gemm() -> None:
    weights = {"w": normal(4, 6), "k": normal(6)}
    text = "g (float[n, 4] x) => (float[n, 6] y) { c = MatMul(x, w) y = Add(k, c) }"
    assert kinds(rewritten(model_of(text, weights), {"x": normal(3, 4)})) == ["Gemm"]
    text = "g (float[n, 5, 4] x) => (float[n, 5, 6] y) { c = MatMul(x, w) y = Add(k, c) }"
    assert kinds(rewritten(model_of(text, weights), {"x": normal(3, 5, 4)})) == ["MatMul", "Add"]


def test_one_slope() -> None:
    weights = {"s": np.full((4, 1, 1), 0.25, np.float32), "t": np.abs(normal(4, 1, 1))}
    text = "g (float[n, 4, 7, 8] x) => (float[n, 4, 7, 8] y) { a = PRelu(x, s) y = PRelu(a, t) }"
    made = rewritten(model_of(text, weights), {"x": normal(2, 4, 7, 8)})
    assert kinds(made) == ["LeakyRelu", "PRelu"]
    assert refusals(made, "rewrite.one_slope")[0].reason == "the slopes differ, or are computed"

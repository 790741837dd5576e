"""Products of the same value become one: Q, K and V, gate and up."""

from __future__ import annotations

import pytest

from tests.unit.rewrite.rewritten import kinds, model_of, normal, refusals, rewritten

HEADS = """g (float[b, t, 8] x) => (float[b, t, 6] q, float[b, t, 4] k, float[b, t, 4] v) {{
    a = MatMul(x, wq) c = MatMul(x, wk) d = MatMul(x, wv) {} }}"""
BIASED = "q = Add(a, bq) k = Add(bk, c) v = Add(d, bv)"
WEIGHTS = {"wq": normal(8, 6), "wk": normal(8, 4), "wv": normal(8, 4, seed=1)}
BIASES = {"bq": normal(6), "bk": normal(4), "bv": normal(4, seed=1)}


@pytest.mark.parametrize("opset", [11, 13, 18, 21])
def test_biases_are_joined_too(opset: int) -> None:
    made = rewritten(model_of(HEADS.format(BIASED), WEIGHTS | BIASES, opset), {"x": normal(2, 5, 8)})
    assert kinds(made) == ["MatMul", "Add", "Split"]


def test_sums_of_some_stay_where_they_are() -> None:
    text = HEADS.format("q = Add(a, bq) k = Relu(c) v = Add(d, bv)")
    made = rewritten(model_of(text, WEIGHTS | {"bq": BIASES["bq"], "bv": BIASES["bv"]}), {"x": normal(2, 5, 8)})
    # The two that have biases are merged; the third has no sibling of its kind.
    assert sorted(kinds(made)) == ["Add", "MatMul", "MatMul", "Relu", "Split"]


@pytest.mark.parametrize("transposed", [0, 1])
def test_matrices(transposed: int) -> None:
    weights = {name: array.T.copy() if transposed else array for name, array in WEIGHTS.items()}
    text = f"""g (float[n, 8] x) => (float[n, 6] q, float[n, 4] k, float[n, 4] v) {{
        q = Gemm<transB = {transposed}>(x, wq, bq) k = Gemm<transB = {transposed}>(x, wk, bk)
        v = Gemm<transB = {transposed}>(x, wv, bv) }}"""
    assert kinds(rewritten(model_of(text, weights | BIASES), {"x": normal(5, 8)})) == ["Gemm", "Split"]


def test_a_gated_layer() -> None:
    text = """g (float[b, t, 8] x) => (float[b, t, 8] y) {
        g1 = MatMul(x, gate) u = MatMul(x, up) s = Sigmoid(g1) m = Mul(s, u) y = MatMul(m, down) }"""
    weights = {"gate": normal(8, 12), "up": normal(8, 12, seed=1), "down": normal(12, 8)}
    made = rewritten(model_of(text, weights), {"x": normal(2, 5, 8)})
    assert kinds(made) == ["MatMul", "Split", "Sigmoid", "Mul", "MatMul"]


def test_what_may_not_be_merged() -> None:
    text = """g (float[b, t, 8] x, float[8, 4] fed) => (float[b, t, 6] q, float[b, t, 4] k) {
        q = MatMul(x, wq) k = MatMul(x, fed) }"""
    made = rewritten(model_of(text, {"wq": WEIGHTS["wq"]}))
    assert refusals(made, "rewrite.siblings")[0].reason == "the weights of one are computed"
    text = """g (float[b, t, 8] x, float[b, 8] z) => (float[b, t, 6] q, float[b, t, 4] k, float[b, 4] m) {
        q = MatMul(x, wq) k = MatMul(x, wk) m = MatMul(z, wk) }"""
    made = rewritten(model_of(text, {"wq": WEIGHTS["wq"], "wk": WEIGHTS["wk"]}))
    (refused,) = refusals(made, "rewrite.siblings")
    assert refused.reason == "the weights of one are read elsewhere too"
    text = """g (float[n, 8] x) => (float[n, 6] q, float[n, 4] k) { q = Gemm<alpha = 2.0>(x, wq) k = Gemm(x, wk) }"""
    made = rewritten(model_of(text, {"wq": WEIGHTS["wq"], "wk": WEIGHTS["wk"]}))
    assert refusals(made, "rewrite.siblings")[0].reason == "one is scaled, or has a transposed operand"


def test_level() -> None:
    model = model_of(HEADS.format(BIASED), WEIGHTS | BIASES)
    assert "Split" not in kinds(rewritten(model, level="extended"))

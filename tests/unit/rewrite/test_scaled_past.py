from __future__ import annotations

import numpy as np
import pytest

from tests.unit.rewrite.rewritten import kinds, model_of, normal, refusals, rewritten

RULE = "rewrite.scale_past"


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("scaling", ["Mul(s, k)", "Mul(k, s)", "Div(s, k)"])
@pytest.mark.parametrize("shape", [(), (1,), (6,), (1, 1, 6)])
def test_a_factor_after_a_product_and_its_bias(rows: int, scaling: str, shape: tuple[int, ...]) -> None:
    weights = {"w": normal(4, 6), "b": normal(6), "k": np.abs(normal(*shape, seed=1)) + np.float32(0.5)}
    text = f"g (float[n, 5, 4] x) => (float[n, 5, 6] y) {{ c = MatMul(x, w) s = Add(c, b) y = {scaling} }}"
    made = rewritten(model_of(text, weights), {"x": normal(rows, 5, 4)})
    assert kinds(made) == ["MatMul", "Add"]
    assert made.ledger.counts()[RULE] == (1, 1)


@pytest.mark.parametrize("rows", [1, 3])
def test_a_factor_after_another_layout(rows: int) -> None:
    weights = {"w": normal(4, 6), "b": normal(6), "k": np.array(0.35, np.float32), "apart": np.array([0, 0, 2, 3])}
    text = """g (float[n, 5, 4] x) => (float[n, 2, 5, 3] y) {
        c = MatMul(x, w) s = Add(b, c) r = Reshape(s, apart) t = Transpose<perm = [0, 2, 1, 3]>(r) y = Mul(t, k) }"""
    assert kinds(rewritten(model_of(text, weights), {"x": normal(rows, 5, 4)})) == [
        "MatMul", "Add", "Reshape", "Transpose",
    ]  # fmt: skip


@pytest.mark.parametrize("rows", [1, 3])
def test_the_columns_of_one_part_are_scaled(rows: int) -> None:
    """As queries and keys of an attention are, whose projections are one product."""
    weights = {f"w{at}": normal(4, 6, seed=at) for at in range(3)} | {f"b{at}": normal(6, seed=at) for at in range(3)}
    weights |= {"k": np.array(0.35, np.float32), "apart": np.array([0, 0, 2, 3])}
    text = """g (float[n, 5, 4] x) => (float[n, 5, 2, 3] y, float[n, 5, 2, 3] z, float[n, 5, 6] v) {
        p0 = MatMul(x, w0) s0 = Add(p0, b0) r0 = Reshape(s0, apart) y = Mul(r0, k)
        p1 = MatMul(x, w1) s1 = Add(p1, b1) r1 = Reshape(s1, apart) z = Div(r1, k)
        p2 = MatMul(x, w2) v = Add(p2, b2) }"""
    made = rewritten(model_of(text, weights), {"x": normal(rows, 5, 4)})
    assert sorted(kinds(made)) == ["Add", "MatMul", "Reshape", "Reshape", "Split"]


@pytest.mark.parametrize(
    ("text", "rank", "reason"),
    [
        ("s = Add(c, b) r = Reshape(s, apart) y = Mul(r, rows)", 4, "the factor differs from place to place"),
        ("s = Add(c, b) r = Reshape(s, apart) y = Mul(r, row)", 4, "the factor differs from place to place"),
        ("s = Add(c, b) r = Reshape(s, apart) y = Mul(r, wide)", 5, "the scaled value is broadcast"),
        ("s = Add(c, b) y = Mul(s, huge)", 3, "the combined weights are not finite in their type"),
    ],
)
def test_a_factor_that_stays(text: str, rank: int, reason: str) -> None:
    weights = {"w": 4 * normal(4, 6), "b": normal(6), "rows": normal(5, 1, 1), "row": normal(3)}
    weights |= {"huge": np.array(3e38, np.float32), "apart": np.array([0, 5, 2, 3]), "wide": normal(2, 1, 1, 1, 1)}
    dims = ", ".join("pqrst"[:rank])
    model = model_of(f"g (float[n, 5, 4] x) => (float[{dims}] y) {{ c = MatMul(x, w) {text} }}", weights)
    assert refusals(rewritten(model), RULE)[0].reason == reason


def test_what_is_read_elsewhere_too_is_not_scaled() -> None:
    weights = {"w": normal(4, 6), "b": normal(6), "k": np.array(0.35, np.float32)}
    text = """g (float[n, 5, 4] x) => (float[n, 5, 6] y, float[n, 5, 6] z) {
        c = MatMul(x, w) s = Add(c, b) y = Mul(s, k) z = Relu(s) }"""
    assert kinds(rewritten(model_of(text, weights), {"x": normal(2, 5, 4)})) == ["MatMul", "Add", "Mul", "Relu"]


@pytest.mark.parametrize(("factor", "left"), [(2.0, ["MatMul", "Add"]), (300.0, ["MatMul", "Add", "Mul"])])
def test_scaled_weights_fit_their_own_type(factor: float, left: list[str]) -> None:
    """300 times 300 is no float16, though what is scaled is small."""
    weights = {"w": np.full((4, 6), 300, np.float16), "b": np.zeros(6, np.float16) + np.float16(1)}
    weights["k"] = np.array(factor, np.float16)
    text = "g (float16[n, 5, 4] x) => (float16[n, 5, 6] y) { c = MatMul(x, w) s = Add(c, b) y = Mul(s, k) }"
    feeds = {"x": np.full((3, 5, 4), 1e-3, np.float16)}
    assert kinds(rewritten(model_of(text, weights), feeds)) == left

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.rewrite.rewritten import kinds, model_of, normal, refusals, rewritten

RULE = "rewrite.shift_before"


@pytest.mark.parametrize("added", ["Add(r, d)", "Add(d, r)", "Sub(r, d)"])
@pytest.mark.parametrize("shape", [(), (1, 4, 1, 1), (4, 1, 1)])
@pytest.mark.parametrize(
    ("node", "weights"),
    [("Conv(a, w, b)", (6, 4, 1, 1)), ("Conv(a, w)", (6, 4, 3, 2)), ("Conv<group = 2>(a, w, b)", (6, 2, 3, 3))],
)
def test_a_shift_before_a_convolution(node: str, weights: tuple[int, ...], shape: tuple[int, ...], added: str) -> None:
    stored = {"w": normal(*weights), "b": normal(6), "d": normal(*shape, seed=3)}
    text = f"g (float[n, 4, h, 8] x) => (float[n, 6, p, q] y) {{ r = Relu(x) a = {added} y = {node} }}"
    made = rewritten(model_of(text, stored), {"x": normal(3, 4, 5, 8)})
    assert kinds(made) == ["Relu", "Conv"]


@pytest.mark.parametrize(("node", "weights"), [("Gemm(a, w, b)", (4, 6)), ("Gemm<transB = 1>(a, w, b)", (6, 4))])
def test_a_shift_before_a_gemm(node: str, weights: tuple[int, ...]) -> None:
    stored = {"w": normal(*weights), "b": normal(6), "d": normal(4, seed=3)}
    text = f"g (float[n, 4] x) => (float[n, 6] y) {{ r = Relu(x) a = Add(r, d) y = {node} }}"
    assert kinds(rewritten(model_of(text, stored), {"x": normal(3, 4)})) == ["Relu", "Gemm"]


def test_a_scale_and_a_shift_between_convolutions() -> None:
    """As the blocks of PP-OCR have them: nothing is left between two convolutions but the activation."""
    stored = {"v": normal(4, 4, 1, 1), "w": normal(6, 4, 1, 1), "c": np.array([0.7], np.float32)}
    stored["d"] = np.array([-0.2], np.float32)
    text = """g (float[n, 4, h, 8] x) => (float[n, 6, h, 8] y) {
        o = Conv(x, v) r = Relu(o) m = Mul(c, r) a = Add(m, d) y = Conv(a, w) }"""
    made = rewritten(model_of(text, stored), {"x": normal(3, 4, 5, 8)})
    assert kinds(made) == ["Conv", "Relu", "Conv"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a = Add(r, d) y = Conv<pads = [1, 1, 1, 1]>(a, w) z = Relu(x)", "its padding is not shifted"),
        ('a = Add(r, d) y = Conv<auto_pad = "SAME_UPPER">(a, w) z = Relu(x)', "its padding is not shifted"),
        ("a = Add(r, d) y = Conv(a, w) z = Exp(a)", "the shifted value is read by more than one node"),
        ("a = Add(r, row) y = Conv(a, w) z = Relu(x)", "the shift differs from place to place"),
        ("a = Add(r, huge) y = Conv(a, w) z = Relu(x)", "the combined biases are not finite in their type"),
    ],
)
def test_a_shift_that_stays(text: str, reason: str) -> None:
    stored = {"w": 4 * np.abs(normal(6, 4, 3, 3)), "d": normal(4, 1, 1), "row": normal(8)}
    stored["huge"] = np.array(3e38, np.float32)
    text = f"g (float[n, 4, 7, 8] x) => (float[n, 6, p, q] y, float[n, 4, 7, 8] z) {{ r = Relu(x) {text} }}"
    made = rewritten(model_of(text, stored))
    assert refusals(made, RULE)[0].reason == reason


def test_a_bias_fits_its_own_type() -> None:
    """600 times 300 is no float16."""
    stored = {"w": np.full((6, 4, 1, 1), 300, np.float16), "d": np.full((4, 1, 1), 600, np.float16)}
    text = "g (float16[n, 4, 7, 8] x) => (float16[n, 6, 7, 8] y) { r = Relu(x) a = Add(r, d) y = Conv(a, w) }"
    made = rewritten(model_of(text, stored))
    assert kinds(made) == ["Relu", "Add", "Conv"]
    assert refusals(made, RULE)[0].reason == "the combined biases are not finite in their type"

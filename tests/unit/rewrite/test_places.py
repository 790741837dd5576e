"""Convolutions that have one place to look at are products of matrices."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.rewrite.rewritten import kinds, model_of, normal, refusals, rewritten

W = {"w": normal(6, 8, 1, 1), "b": normal(6)}


@pytest.mark.parametrize(
    "last", ["Flatten(c)", "Reshape(c, rows)", "Squeeze(c, a23)", "Reshape(c, kept)", "Flatten<axis = -3>(c)"]
)
def test_the_layer_after_a_global_pool(last: str) -> None:
    text = f"g (float[n, 8, 5, 4] x) => (float[n, 6] y) {{ a = GlobalAveragePool(x) c = Conv(a, w, b) y = {last} }}"
    stored = {"rows": np.array([-1, 6]), "kept": np.array([0, 6]), "a23": np.array([2, 3])}
    weights = W | {name: array for name, array in stored.items() if f"{name})" in last}
    made = rewritten(model_of(text, weights), {"x": normal(2, 8, 5, 4)})
    assert kinds(made) == ["GlobalAveragePool", "Flatten", "Gemm"]


def test_layers_with_activations() -> None:
    """The layout moves before both of them."""
    text = """g (float[n, 8, 5, 4] x) => (float[n, 7] y) {
        a = GlobalAveragePool(x) c = Conv(a, w, b) r = HardSwish(c) d = Conv(r, v) s = Clip(d, low) y = Flatten(s) }"""
    weights = W | {"v": normal(7, 6, 1, 1), "low": np.array(-0.5, np.float32)}
    made = rewritten(model_of(text, weights), {"x": normal(2, 8, 5, 4)})
    assert kinds(made) == ["GlobalAveragePool", "Flatten", "Gemm", "HardSwish", "MatMul", "Clip"]


def test_a_kernel_of_all_places() -> None:
    """As networks end that were made from a classifier of one size."""
    text = "g (float[n, 8, 5, 4] x) => (float[n, 6] y) { c = Conv(x, w, b) r = Relu(c) y = Flatten(r) }"
    made = rewritten(model_of(text, W | {"w": normal(6, 8, 5, 4)}), {"x": normal(2, 8, 5, 4)})
    assert kinds(made) == ["Flatten", "Gemm", "Relu"]


def test_rows_that_were_laid_out_for_it() -> None:
    text = "g (float[n, 8] x) => (float[n, 6] y) { a = Unsqueeze(x, a2) c = Conv(a, w, b) y = Squeeze(c, a2) }"
    weights = {"w": normal(6, 8, 1), "b": normal(6), "a2": np.array([2])}
    assert kinds(rewritten(model_of(text, weights), {"x": normal(3, 8)})) == ["Gemm"]


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [("a = GlobalAveragePool(x) c = Conv(a, w, b) y = Mul(x6, c)", "its result is not reshaped to rows"),
     ("a = GlobalAveragePool(x) c = Conv(a, w, b) f = Flatten(c) g1 = Sigmoid(c) y = Mul(x6, g1)",
      "its result is not reshaped to rows"),
     ("a = GlobalAveragePool(x) c = Conv(a, k, b) d = Flatten(c) y = Add(x6, c)", "the weights are computed"),
     ("a = GlobalAveragePool(x) c = Conv(a, w, b) f = Flatten(c) y = Conv(x, w)",
      "the weights are read by more than one node")],
)  # fmt: skip
def test_what_stays(nodes: str, reason: str) -> None:
    rows = next((f"Identity({name})" for name in "fd" if f"{name} =" in nodes), "Flatten(x)")
    text = f"""g (float[n, 8, 5, 4] x, float[n, 6, 5, 4] x6, float[6, 8, 1, 1] k) =>
        (float[n, 6, 5, 4] y, float[n, o] z) {{ {nodes} z = {rows} }}"""
    used = {name: array for name, array in W.items() if f" {name}" in nodes}
    made = rewritten(model_of(text, used))
    assert "Conv" in kinds(made)
    assert reason in {decision.reason for decision in refusals(made, "rewrite.one_place")}


@pytest.mark.parametrize("attributes", ["group = 2", "pads = [1, 1, 1, 1]"])
def test_which_are_no_products(attributes: str) -> None:
    text = f"""g (float[n, 8, 5, 4] x) => (float[n, o] y) {{
        a = GlobalAveragePool(x) c = Conv<{attributes}>(a, w) y = Flatten(c) }}"""
    made = rewritten(
        model_of(text, {"w": normal(6, 4 if "group" in attributes else 8, 1, 1)}), {"x": normal(2, 8, 5, 4)}
    )
    assert kinds(made) == ["GlobalAveragePool", "Conv", "Flatten"]


def test_levels() -> None:
    text = "g (float[n, 8, 5, 4] x) => (float[n, 6] y) { a = GlobalAveragePool(x) c = Conv(a, w, b) y = Flatten(c) }"
    made = rewritten(model_of(text, W), {"x": normal(2, 8, 5, 4)}, level="basic")
    assert kinds(made) == ["GlobalAveragePool", "Conv", "Flatten"]

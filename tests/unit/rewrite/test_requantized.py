from __future__ import annotations

import numpy as np
import pytest

from tests.unit.rewrite.rewritten import Array, kinds, model_of, refusals, rewritten

EVERY = {"int8": np.arange(-128, 128).astype(np.int8), "uint8": np.arange(256).astype(np.uint8)}


@pytest.mark.parametrize("integers", ["int8", "uint8"])
@pytest.mark.parametrize("scale", [0.1, 1 / 3, 127.0, 1e-30])
@pytest.mark.parametrize("zero", [0, 3])
def test_every_integer_comes_back(integers: str, scale: float, zero: int) -> None:
    weights = {"s": np.array(scale, np.float32), "z": np.array(zero, integers), "more": np.array([0, 3, 2, 1])}
    text = f"""g ({integers}[n, 4] x) => ({integers}[n, 4] y) {{
        g = Gather<axis = 1>(x, more) f = DequantizeLinear(g, s, z) q = QuantizeLinear(f, s, z)
        y = Gather<axis = 1>(q, more) }}"""
    made = rewritten(model_of(text, weights), {"x": EVERY[integers].reshape(-1, 4)})
    assert "QuantizeLinear" not in kinds(made) and "DequantizeLinear" not in kinds(made)


@pytest.mark.parametrize("scales", [np.array([0.1, 0.2, 0.3, 0.4], np.float32)])
def test_scales_along_an_axis(scales: Array) -> None:
    weights = {"s": scales, "z": np.zeros(4, np.int8), "more": np.array([0, 3, 2, 1])}
    text = """g (int8[n, 4] x) => (int8[n, 4] y) {
        g = Gather<axis = 1>(x, more) f = DequantizeLinear(g, s, z) q = QuantizeLinear(f, s, z)
        y = Gather<axis = 1>(q, more) }"""
    assert kinds(rewritten(model_of(text, weights), {"x": EVERY["int8"].reshape(-1, 4)})) == ["Gather", "Gather"]


@pytest.mark.parametrize(
    ("back", "reason"),
    [
        ("QuantizeLinear(f, t, z)", "the scales differ"),
        ("QuantizeLinear(f, s, w)", "the zero points differ, or are computed"),
        ("QuantizeLinear(f, s, u)", "it becomes another type"),
    ],
)
def test_other_integers_stay(back: str, reason: str) -> None:
    numbers: dict[str, Array] = {"s": np.array(0.1, np.float32), "t": np.array(0.2, np.float32)}
    numbers |= {"z": np.array(1, np.int8), "w": np.array(2, np.int8), "u": np.array(1, np.uint8)}
    kind = "uint8" if back.endswith("u)") else "int8"
    text = f"g (int8[n, 4] x) => ({kind}[n, 4] y) {{ f = DequantizeLinear(x, s, z) y = {back} }}"
    made = rewritten(model_of(text, numbers), {"x": EVERY["int8"].reshape(-1, 4)})
    assert kinds(made) == ["DequantizeLinear", "QuantizeLinear"]
    assert refusals(made, "rewrite.requantized")[0].reason == reason


def test_half_precision_rounds_too_much() -> None:
    weights: dict[str, Array] = {"s": np.array(0.1, np.float16), "z": np.array(0, np.int8)}
    text = "g (int8[n, 4] x) => (int8[n, 4] y) { f = DequantizeLinear(x, s, z) y = QuantizeLinear(f, s, z) }"
    made = rewritten(model_of(text, weights))
    assert refusals(made, "rewrite.requantized")[0].reason == "the type of the scale rounds too much"

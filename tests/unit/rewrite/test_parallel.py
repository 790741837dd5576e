from __future__ import annotations

import numpy as np
import pytest

from tests.unit.rewrite.rewritten import kinds, model_of, normal, refusals, rewritten

RULE = "rewrite.parallel_convolutions"
WEIGHTS = {"v": normal(6, 4, 1, 1), "w": normal(3, 4, 1, 1), "b": normal(6)}


@pytest.mark.parametrize("opset", [11, 21])
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize(
    ("nodes", "left"),
    [
        ("p = Conv(x, v, b) q = Conv(x, w) y = Softsign(p) z = Exp(q)", ["Conv", "Split", "Softsign", "Exp"]),
        ("p = Conv(x, v, b) q = Conv(x, w) r = Relu(p) s = Relu(q) y = Exp(r) z = Exp(s)",
         ["Conv", "Relu", "Split", "Exp", "Exp"]),
    ],
)  # fmt: skip
def test_convolutions_that_read_the_same_are_one(nodes: str, left: list[str], rows: int, opset: int) -> None:
    text = f"g (float[n, 4, h, 8] x) => (float[n, 6, h, 8] y, float[n, 3, h, 8] z) {{ {nodes} }}"
    made = rewritten(model_of(text, WEIGHTS, opset), {"x": normal(rows, 4, 7, 8)})
    assert kinds(made) == left


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ("p = Conv(x, v) q = Conv(x, w) y = Relu(p) z = Exp(q)",
         "a runtime computes Relu with the convolution before it"),
        ("p = Conv(x, v) q = Conv(x, w) y = Clip(p) z = Clip(q)", ""),
        ("p = Conv(x, v) q = Conv(x, w) y = HardSigmoid(p) z = HardSigmoid(q)",
         "a runtime computes HardSigmoid with the convolution before it"),
        ("p = Conv(x, v) q = Conv<strides = [2, 2]>(x, w) y = Exp(p) z = Exp(q)", ""),
    ],
)  # fmt: skip
def test_convolutions_that_stay_apart(nodes: str, reason: str) -> None:
    weights = {name: WEIGHTS[name] for name in "vw"}
    text = f"g (float[n, 4, 7, 8] x) => (float[n, 6, 7, 8] y, float[n, 3, p1, p2] z) {{ {nodes} }}"
    made = rewritten(model_of(text, weights), {"x": normal(2, 4, 7, 8)})
    assert "Split" not in kinds(made) or "Clip" in nodes
    assert [refused.reason for refused in refusals(made, RULE)] == ([reason] if reason else [])


def test_half_precision() -> None:
    text = """g (float16[n, 4, 7, 8] x) => (float16[n, 6, 7, 8] y, float16[n, 3, 7, 8] z) {
        p = Conv(x, v, b) q = Conv(x, w) y = Exp(p) z = Exp(q) }"""
    weights = {name: array.astype(np.float16) for name, array in WEIGHTS.items()}
    made = rewritten(model_of(text, weights), {"x": (0.1 * normal(2, 4, 7, 8)).astype(np.float16)})
    assert kinds(made) == ["Conv", "Split", "Exp", "Exp"]

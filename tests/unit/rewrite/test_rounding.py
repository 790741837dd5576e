"""Weights that are combined are numbers of the model's own type: float16 ends at 65504 and is coarse below 6e-5."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import pytest

from tests.unit.rewrite.rewritten import Array, kinds, model_of, normal, refusals, rewritten


def half(array: Array | float) -> Array:
    return np.asarray(array, np.float16)


def read_by(text: str, stored: Mapping[str, Array]) -> Mapping[str, Array]:
    """The tensors that a text names."""
    return {name: half(array) for name, array in stored.items() if re.search(rf"\b{name}\b", text)}


CONV = "float16[n, 4, t, t] x) => (float16[n, 4, p, q] y"
ROWS = "float16[n, 4] x) => (float16[n, 4] y"
NORMALISED = "c = Conv(x, w) y = BatchNormalization(c, gamma, beta, mean, variance)"
ONES = {name: half(np.ones(4)) for name in ("gamma", "beta", "mean", "variance")}

OVERFLOWS = {
    "scale": (CONV, "c = Conv(x, w) y = Mul(c, k)", {"k": half(300)}, "weights"),
    "batch_normalization": (CONV, NORMALISED, {**ONES, "gamma": half(np.full(4, 300))}, "weights"),
    "bias": (CONV, "c = Conv(x, w, b) y = Add(c, k)", {"b": half(np.full(4, 4e4)), "k": half(4e4)}, "biases"),
    "scale_before": (ROWS, "s = Mul(x, k) y = MatMul(s, v)", {"k": half(300)}, "weights"),
    "consecutive": (ROWS, "s = MatMul(x, v) y = MatMul(s, u)", {"u": half(np.full((4, 4), 299))}, "weights"),
}


@pytest.mark.parametrize("rule", OVERFLOWS)
def test_weights_that_would_be_infinite_are_not_combined(rule: str) -> None:
    """At small inputs what they give is finite."""
    interface, text, more, title = OVERFLOWS[rule]
    stored = {"w": half(np.full((4, 4, 1, 1), 300)), "v": half(np.full((4, 4), 300)), **more}
    used, shape = read_by(text, stored), (2, 4, 3, 3) if "Conv" in text else (2, 4)
    made = rewritten(model_of(f"g ({interface}) {{ {text} }}", used), {"x": half(1e-3 * np.abs(normal(*shape)))})
    assert len(kinds(made)) == 2
    (refused,) = refusals(made, f"rewrite.{rule}")
    assert refused.reason == f"the combined {title} are not finite in their type"
    assert refused.failed["type"] == "float16"


SMALL = {
    "scale": (CONV, "c = Conv(x, w) y = Mul(c, k)", {"k": half(1e-3)}),
    "batch_normalization": (CONV, NORMALISED, {**ONES, "variance": half(np.full(4, 6e4))}),
    "scale_before": (ROWS, "s = Mul(x, k) y = MatMul(s, v)", {"k": half(1e-3)}),
    "consecutive": (ROWS, "s = MatMul(x, v) y = MatMul(s, u)", {"u": half(1e-3 * np.abs(normal(4, 4)))}),
}


@pytest.mark.parametrize("rule", SMALL)
def test_weights_that_would_lose_digits_are_not_combined(rule: str) -> None:
    """Large inputs show all of them."""
    interface, text, more = SMALL[rule]
    stored = {"w": half(1e-3 * normal(4, 4, 1, 1)), "v": half(1e-3 * normal(4, 4)), **more}
    used, shape = read_by(text, stored), (2, 4, 3, 3) if "Conv" in text else (2, 4)
    made = rewritten(model_of(f"g ({interface}) {{ {text} }}", used), {"x": half(1e4 * np.abs(normal(*shape)))})
    assert len(kinds(made)) == 2
    (refused,) = refusals(made, f"rewrite.{rule}")
    assert refused.reason == "the combined weights are too small for their type"


@pytest.mark.parametrize("rule", OVERFLOWS)
def test_weights_of_usual_size_are_combined(rule: str) -> None:
    interface, text, more, _ = OVERFLOWS[rule]
    stored = {"w": normal(4, 4, 1, 1), "v": normal(4, 4), **{name: np.sign(array) for name, array in more.items()}}
    used, shape = read_by(text, stored), (2, 4, 3, 3) if "Conv" in text else (2, 4)
    made = rewritten(model_of(f"g ({interface}) {{ {text} }}", used), {"x": half(normal(*shape))})
    assert len(kinds(made)) == 1


def test_small_weights_of_float32_are_measured_there() -> None:
    text = "g (float[n, 4] x) => (float[n, 4] y) { s = Mul(x, k) y = MatMul(s, v) }"
    for factor, left in ((1e-30, 1), (1e-38, 2)):
        stored = {"v": 1e-3 * normal(4, 4), "k": np.array(factor, np.float32)}
        assert len(kinds(rewritten(model_of(text, stored), {"x": np.float32(1e35) * normal(2, 4)}))) == left

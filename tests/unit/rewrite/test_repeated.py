from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.unit.rewrite.rewritten import Array, kinds, model_of, normal, refusals, rewritten

SPECIAL = np.array([[np.nan, np.inf, -np.inf, 0.0], [-0.0, 1.5, -7.25, 9.0]], np.float32)


def of(nodes: str, weights: dict[str, Array] | None = None, opset: int = 21, **options: Any) -> list[str]:
    text = f"g (float[n, 4] x) => (float[n, 4] y) {{ {nodes} y = Tanh(z) }}"
    return kinds(rewritten(model_of(text, weights, opset), {"x": SPECIAL}, **options))


@pytest.mark.parametrize(
    ("nodes", "left"),
    [
        ("a = Neg(x) b = Neg(a) z = Exp(b)", ["Exp", "Tanh"]),
        ("a = Abs(x) z = Abs(a)", ["Abs", "Tanh"]),
        ("a = Floor(x) z = Floor(a)", ["Floor", "Tanh"]),
        ("a = Relu(x) z = Relu(a)", ["Relu", "Tanh"]),
        ("a = Relu(x) z = Clip(a, zero)", ["Relu", "Tanh"]),
        ("a = Clip(x, zero) z = Relu(a)", ["Clip", "Tanh"]),
        ("a = Clip(x, zero, six) z = Relu(a)", ["Clip", "Tanh"]),
        ("a = Relu(x) z = Clip(a, zero, six)", ["Clip", "Tanh"]),
        ("a = Clip(x, one, six) z = Clip(a, zero, two)", ["Clip", "Tanh"]),
        ("a = Sigmoid(x) z = Clip(a, zero, one)", ["Sigmoid", "Tanh"]),
        ("a = Sigmoid(x) z = Clip(a, zero, half)", ["Sigmoid", "Clip", "Tanh"]),
        ("a = Neg(x) z = Abs(a)", ["Neg", "Abs", "Tanh"]),
    ],
)
def test_what_changes_nothing_again(nodes: str, left: list[str]) -> None:
    numbers = {"zero": 0, "one": 1, "two": 2, "six": 6, "half": 0.5}
    assert of(nodes, {name: np.array(number, np.float32) for name, number in numbers.items()}) == left


def test_limits_of_attributes() -> None:
    assert of("a = Relu(x) z = Clip<max = 6.0>(a)", opset=10) == ["Clip", "Tanh"]
    assert of("a = Clip<min = -1.0>(x) z = Clip<min = 0.0>(a)", opset=10) == ["Clip", "Tanh"]


def test_limits_that_are_read_elsewhere_stay() -> None:
    text = "g (float[n, 4] x) => (float[n, 4] y, float[n, 4] z) { a = Relu(x) y = Clip(a, no, six) z = Exp(a) }"
    weights = {"no": np.array(0, np.float32), "six": np.array(6, np.float32)}
    assert kinds(rewritten(model_of(text, weights), {"x": SPECIAL})) == ["Relu", "Clip", "Exp"]


def test_limits_that_are_fed_stay() -> None:
    text = "g (float[n, 4] x, float low) => (float[n, 4] y) { a = Clip(x, low) b = Relu(a) y = Tanh(b) }"
    made = rewritten(model_of(text), {"x": SPECIAL, "low": np.array(-1, np.float32)})
    assert kinds(made) == ["Clip", "Relu", "Tanh"]
    assert refusals(made, "rewrite.limits")[0].reason == "the limits before it are computed"


def test_limits_of_integers() -> None:
    text = "g (int32[n, 4] x) => (int32[n, 4] y) { a = Clip(x, low, high) b = Clip(a, zero, most) y = Neg(b) }"
    numbers = {"low": -3, "high": 5, "zero": 0, "most": 100}
    weights = {name: np.array(number, np.int32) for name, number in numbers.items()}
    feeds = {"x": np.arange(-8, 8, 2, dtype=np.int32).reshape(2, 4)}
    assert kinds(rewritten(model_of(text, weights), feeds)) == ["Clip", "Neg"]


@pytest.mark.parametrize(
    ("nodes", "dtype", "a", "b", "left"),
    [
        ("m = Add(x, a) s = Sub(m, b)", np.int64, 7, 7, []),
        ("m = Add(a, x) s = Add(b, m)", np.int8, 100, 100, ["Add"]),
        ("m = Sub(a, x) s = Sub(b, m)", np.int32, 3, 9, ["Add"]),
        ("m = Sub(a, x) s = Add(m, b)", np.int32, 3, 9, ["Sub"]),
        ("m = Mul(x, a) s = Mul(m, b)", np.int32, 2, 4, ["Mul"]),
        ("m = Div(x, a) s = Mul(m, b)", np.int32, 2, 4, ["Div", "Mul"]),
        ("m = Mul(x, a) s = Mul(m, b)", np.float32, 2, 4, ["Mul"]),
        ("m = Div(x, a) s = Div(m, b)", np.float32, 3, 7, ["Mul"]),
        ("m = Add(x, a) s = Add(m, b)", np.float32, 0.1, 0.2, ["Add"]),
        ("m = Sub(x, a) s = Sub(m, b)", np.float16, 0.1, 0.2, ["Add"]),
    ],
)
def test_two_numbers_in_a_row(nodes: str, dtype: type[np.generic], a: float, b: float, left: list[str]) -> None:
    made = np.dtype(dtype)
    name = {"f2": "float16", "f4": "float", "i1": "int8", "i4": "int32", "i8": "int64"}[made.str[1:]]
    text = f"g ({name}[n, 4] x) => ({name}[n, 4] y) {{ i = Abs(x) k = Reshape(i, shape) " + nodes.replace("x", "k")
    text += " y = Abs(s) }"
    weights = {"a": np.array(a, made), "b": np.array(b, made), "shape": np.array([-1, 4])}
    feeds = {"x": (normal(3, 4) * 100).astype(made)}
    found = kinds(rewritten(model_of(text, weights), feeds))
    assert [kind for kind in found if kind not in ("Abs", "Reshape")] == left


@pytest.mark.parametrize(
    ("nodes", "dtype", "a", "b", "reason"),
    [
        ("m = Add(x, a) y = Sub(m, b)", np.float32, 1e8, 1e8, "one number is added, the other subtracted"),
        ("m = Mul(x, a) y = Mul(m, b)", np.float32, 1e30, 1e-30, "one number makes it larger, the other smaller"),
        ("m = Mul(x, a) y = Mul(m, b)", np.float16, 300, 300, "the combined numbers are not finite in their type"),
        ("m = Add(x, a) y = Add(m, b)", np.float16, 4e4, 4e4, "the combined numbers are not finite in their type"),
        ("m = Mul(x, a) y = Mul(m, b)", np.float16, 1e-4, 1e-4, "the combined numbers are too small for their type"),
    ],
)
def test_numbers_that_stay_two(nodes: str, dtype: type[np.generic], a: float, b: float, reason: str) -> None:
    name = {2: "float16", 4: "float"}[np.dtype(dtype).itemsize]
    text = f"g ({name}[n, 4] x) => ({name}[n, 4] y) {{ {nodes} }}"
    made = rewritten(
        model_of(text, {"a": np.array(a, dtype), "b": np.array(b, dtype)}), {"x": normal(3, 4).astype(dtype)}
    )
    assert len(kinds(made)) == 2
    assert refusals(made, "rewrite.constants")[0].reason == reason


def test_limits_of_integers_are_no_relu() -> None:
    """Relu is of floats, in most opsets and runtimes."""
    weights = {"low": np.array(-5, np.int32), "zero": np.array(0, np.int32)}
    text = "g (int32[n] x) => (int32[n] y) { a = Clip(x, low) y = Clip(a, zero) }"
    assert kinds(rewritten(model_of(text, weights, 13), {"x": np.array([-7, -3, 4], np.int32)})) == ["Clip"]


def test_infinity_is_beyond_the_limits_of_older_opsets() -> None:
    """A Clip of opset 10 without a highest number has one all the same."""
    text = "g (float[n] x) => (float[n] y) { a = Relu(x) y = Clip<min = 0.0>(a) }"
    feeds = {"x": np.array([np.inf, 1, -2], np.float32)}
    assert "Clip" in kinds(rewritten(model_of(text, {}, 10), feeds))

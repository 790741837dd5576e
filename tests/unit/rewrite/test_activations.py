from __future__ import annotations

import numpy as np
import pytest

from opweld.rewrite.optimize import optimize_model
from tests.unit.rewrite.rewritten import for_onnxruntime, kinds, model_of, normal, refusals, rewritten
from tests.unit.rewrite.written.activations import GELU, TANH, X, model


@pytest.mark.parametrize("body", GELU.values(), ids=GELU)
def test_gelu_whoever_wrote_it(body: str) -> None:
    assert kinds(rewritten(model(body), X)) == ["Gelu"]


def test_gelu_before_it_was_an_operator() -> None:
    written = model(GELU["by hand: halved"], 17)
    made = rewritten(written, X)
    assert "Erf" in kinds(made)
    assert refusals(made, "rewrite.gelu")[0].reason == "Gelu exists since opset 20"
    contributed = optimize_model(written, contributed=True)
    assert [(node.domain, node.op_type) for node in contributed.model.graph] == [("com.microsoft", "Gelu")]
    assert contributed.model.opset_imports["com.microsoft"] == 1


@pytest.mark.parametrize("body", TANH.values(), ids=TANH)
def test_gelu_by_tanh_whoever_wrote_it(body: str) -> None:
    made = rewritten(model(body), X)
    assert kinds(made) == ["Gelu"]
    assert made.model.graph[0].attributes["approximate"].value == "tanh"
    made = for_onnxruntime(model(body, 17), X)
    assert [(node.domain, node.op_type) for node in made.model.graph] == [("com.microsoft", "FastGelu")]
    other = body.replace("small", "one")
    assert "Tanh" in kinds(rewritten(model(other), X))


@pytest.mark.parametrize(
    "body",
    [
        "a = Div(x, wrong) b = Erf(a) c = Add(b, one) d = Mul(x, c) y = Mul(d, half)",
        "a = Div(x, root) b = Erf(a) c = Add(b, two) d = Mul(x, c) y = Mul(d, half)",
        "a = Div(x, root) b = Erf(a) c = Add(b, one) d = Mul(x, c) y = Mul(d, two)",
        "e = Exp(x) a = Div(e, root) b = Erf(a) c = Add(b, one) d = Mul(x, c) y = Mul(d, half)",
    ],
)
def test_what_is_nearly_gelu_stays(body: str) -> None:
    assert "Erf" in kinds(rewritten(model(body), X))


@pytest.mark.parametrize(
    ("body", "opset", "left"),
    [
        ("a = Sigmoid(x) y = Mul(x, a)", 24, ["Swish"]),
        ("a = Sigmoid(x) y = Mul(a, x)", 21, ["Sigmoid", "Mul"]),
        ("a = Softplus(x) b = Tanh(a) y = Mul(x, b)", 21, ["Mish"]),
        ("a = Add(x, three) b = Clip(a, zero, six) c = Mul(x, b) y = Div(c, six)", 21, ["HardSwish"]),
        ("a = Add(x, three) b = Clip(a, zero, six) c = Div(b, six) y = Mul(x, c)", 21, ["HardSwish"]),
        ("a = Add(three, x) b = Clip(a, zero, six) c = Mul(b, sixth) y = Mul(c, x)", 21, ["HardSwish"]),
        ("a = HardSigmoid<alpha = 0.16666667, beta = 0.5>(x) y = Mul(x, a)", 21, ["HardSwish"]),
        ("a = Add(x, three) b = Clip<min = 0., max = 6.>(a) c = Mul(x, b) y = Div(c, six)", 9, ["HardSigmoid", "Mul"]),
        ("a = Add(x, three) b = Clip(a, zero, six) y = Div(b, six)", 21, ["HardSigmoid"]),
        ("e = Exp(x) a = Add(x, three) b = Clip(a, zero, six) c = Mul(e, b) y = Div(c, six)", 21,
         ["Exp", "HardSigmoid", "Mul"]),
        ("a = Add(x, three) b = Clip(a, zero, three) c = Mul(x, b) y = Div(c, six)", 21, ["Add", "Clip", "Mul", "Div"]),
    ],
)  # fmt: skip
def test_activations(body: str, opset: int, left: list[str]) -> None:
    assert kinds(rewritten(model(body, opset), X)) == left


def test_a_part_that_is_read_elsewhere_stays() -> None:
    text = """g (float[n, 70] x) => (float[n, 70] y, float[n, 70] z) {
        a = Softplus(x) b = Tanh(a) y = Mul(x, b) z = Neg(b) }"""
    assert "Softplus" in kinds(rewritten(model_of(text), X))


@pytest.mark.parametrize("opset", [14, 24])
@pytest.mark.parametrize(
    ("nodes", "left"),
    [
        ("n = Neg(x) e = Exp(n) o = Add(e, one) y = Div(x, o)", {14: ["Sigmoid", "Mul"], 24: ["Swish"]}),
        ("n = Neg(x) e = Exp(n) o = Add(one, e) y = Div(one, o)", {14: ["Sigmoid"], 24: ["Sigmoid"]}),
        ("n = Mul(x, less) e = Exp(n) o = Add(e, one) y = Reciprocal(o)", {14: ["Sigmoid"], 24: ["Sigmoid"]}),
        ("d = Div(x, six) a = Add(d, half) b = Clip(a, zero, one) y = Mul(x, b)", {14: ["HardSwish"]}),
        ("d = Mul(x, sixth) a = Add(half, d) b = Clip(a, zero, one) y = Mul(b, x)", {14: ["HardSwish"]}),
    ],
)
def test_activations_by_quotients_and_lines(nodes: str, left: dict[int, list[str]], opset: int) -> None:
    numbers = {"one": 1, "less": -1, "six": 6, "sixth": 1 / 6, "half": 0.5, "zero": 0}
    weights = {name: np.array(number, np.float32) for name, number in numbers.items() if name in nodes}
    text = f"g (float[n, 7] x) => (float[n, 7] y) {{ {nodes} }}"
    feeds = {"x": np.concatenate([normal(3, 7) * 4, np.full((1, 7), -200, np.float32)])}
    assert kinds(rewritten(model_of(text, weights, opset), feeds)) == left.get(opset, left[14])


def test_another_exponential_is_no_sigmoid() -> None:
    weights = {"two": np.array(2, np.float32)}
    text = "g (float[n, 7] x) => (float[n, 7] y) { m = Neg(x) e = Exp(m) o = Add(e, two) y = Div(x, o) }"
    made = rewritten(model_of(text, weights), {"x": normal(3, 7)})
    assert "Sigmoid" not in kinds(made)
    assert refusals(made, "rewrite.sigmoid")[0].reason == "a number is not the one of the formula"

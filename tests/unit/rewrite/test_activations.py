from __future__ import annotations

import pytest

from opweld.rewrite.optimize import optimize_model
from tests.unit.rewrite.rewritten import for_onnxruntime, kinds, model_of, refusals, rewritten
from tests.unit.rewrite.written.activations import GELU, TANH, X, model


@pytest.mark.parametrize("body", GELU.values(), ids=GELU)
def test_gelu_whoever_wrote_it(body: str) -> None:
    assert kinds(rewritten(model(body), X)) == ["Gelu"]


def test_gelu_before_it_was_an_operator() -> None:
    written = model(GELU["by hand: halved"], 17)
    made = rewritten(written, X)
    assert "Erf" in kinds(made)
    assert refusals(made, "rewrite.gelu")[0].reason == "Gelu came with opset 20"
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

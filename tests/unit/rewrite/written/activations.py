"""Activations of x [n, 70]."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from onnx import ModelProto

from tests.unit.rewrite.rewritten import model_of, normal

WEIGHTS = {
    name: np.array(value, np.float32)
    for name, value in {
        "half": 0.5, "one": 1, "two": 2, "three": 3, "six": 6, "sixth": 1 / 6, "zero": 0, "twenty": 20,
        "cube": 0.044715, "small": np.sqrt(2 / np.pi), "both": np.sqrt(2 / np.pi) * 0.044715,
        "root": np.sqrt(2), "inverse": np.sqrt(0.5), "wrong": 1.5,
    }.items()
}  # fmt: skip
X = {"x": normal(3, 70) * 3}


def model(body: str, opset: int = 21) -> ModelProto:
    """The nodes as a model, with the numbers that they read."""
    words = set(body.replace("(", " ").replace(")", " ").replace(",", " ").split())
    used = {name: value for name, value in WEIGHTS.items() if name in words}
    return model_of(f"g (float[n, 70] x) => (float[n, 70] y) {{ {body} }}", used, opset)


GELU = {
    "torch dynamo": "a = Div(x, root) b = Erf(a) c = Add(b, one) d = Mul(half, c) y = Mul(x, d)",
    "torch's old exporter": "a = Div(x, root) b = Erf(a) c = Add(b, one) d = Mul(x, c) y = Mul(d, half)",
    "tf2onnx": "h = Mul(half, x) a = Mul(inverse, x) b = Erf(a) c = Add(b, one) y = Mul(h, c)",
    "paddle2onnx": "i = Identity(x) a = Div(i, root) b = Erf(a) c = Add(b, one) d = Mul(i, c) y = Mul(d, half)",
    "by hand: halved": "a = Div(x, root) b = Erf(a) c = Add(b, one) d = Mul(x, c) y = Div(d, two)",
    "by hand: times the inverse": "a = Mul(x, inverse) b = Erf(a) c = Add(one, b) d = Mul(half, c) y = Mul(x, d)",
}
TANH = {
    "torch dynamo": """p = Pow(x, three) a = Mul(cube, p) b = Add(x, a) c = Mul(small, b) t = Tanh(c) d = Add(t, one)
        h = Mul(half, d) y = Mul(x, h)""",
    "torch's old exporter": """p = Mul(x, x) q = Mul(x, p) a = Mul(cube, q) b = Add(x, a) c = Mul(small, b) t = Tanh(c)
        d = Add(one, t) e = Mul(x, d) y = Mul(half, e)""",
    "tf2onnx": """p = Mul(cube, x) q = Mul(x, p) a = Mul(x, q) b = Add(x, a) c = Mul(small, b) t = Tanh(c)
        d = Add(one, t) h = Mul(half, d) y = Mul(x, h)""",
    "by hand: transformers": """p = Pow(x, three) a = Mul(cube, p) b = Add(x, a) c = Mul(small, b) t = Tanh(c)
        d = Add(t, one) h = Mul(x, half) y = Mul(h, d)""",
    "by hand: bloom": """p = Mul(x, x) a = Mul(p, cube) b = Add(one, a) s = Mul(x, small) c = Mul(s, b) t = Tanh(c)
        d = Add(one, t) h = Mul(x, d) y = Div(h, two)""",
    "by hand: keras": """p = Mul(x, x) q = Mul(p, x) a = Mul(q, both) s = Mul(x, small) c = Add(s, a) t = Tanh(c)
        d = Add(one, t) h = Mul(half, d) y = Mul(x, h)""",
}
SILU = {
    "torch dynamo": "a = Sigmoid(x) y = Mul(x, a)",
    "torch's old exporter": "a = Sigmoid(x) y = Mul(x, a)",
    "tf2onnx": "a = Sigmoid(x) y = Mul(a, x)",
    "paddle2onnx": "s = Mul(x, one) a = Sigmoid(s) y = Mul(x, a)",
    "by hand: a quotient": "n = Neg(x) e = Exp(n) o = Add(e, one) y = Div(x, o)",
}
HARD_SWISH: Mapping[str, str] = {
    "torch dynamo": "a = Add(x, three) b = Clip(a, zero, six) c = Mul(x, b) y = Div(c, six)",
    "torch's old exporter": "a = Add(x, three) b = Clip(a, zero, six) c = Mul(x, b) y = Div(c, six)",
    "tf2onnx": "a = Add(x, three) b = Clip(a, zero, six) c = Mul(b, sixth) y = Mul(x, c)",
    "paddle2onnx": "a = Add(x, three) b = Clip(a, zero, six) c = Mul(x, b) y = Div(c, six)",
    "by hand: a sixth of the gate": "a = Add(three, x) b = Clip(a, zero, six) c = Div(b, six) y = Mul(x, c)",
    "by hand: HardSigmoid": "a = HardSigmoid<alpha = 0.16666667, beta = 0.5>(x) y = Mul(x, a)",
}
MISH = {
    "torch dynamo": "s = Softplus(x) g = Greater(x, twenty) w = Where(g, x, s) t = Tanh(w) y = Mul(x, t)",
    "torch's old exporter": "a = Softplus(x) b = Tanh(a) y = Mul(x, b)",
    "tf2onnx": "a = Softplus(x) b = Tanh(a) y = Mul(x, b)",
    "paddle2onnx": "a = Softplus(x) b = Tanh(a) y = Mul(x, b)",
    "by hand: darknet": "e = Exp(x) o = Add(e, one) l = Log(o) b = Tanh(l) y = Mul(b, x)",
}

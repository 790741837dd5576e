"""Normalisations of rows x [n, 5, 12]."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto

from tests.unit.rewrite.rewritten import Array, model_of, normal

X = {"x": normal(2, 5, 12) * 3 + 1}
PARAMETERS: dict[str, Array] = {
    "scale": normal(12), "bias": normal(12, seed=1), "wide": normal(1, 1, 12), "one": np.array([1], np.float32),
    "two": np.array(2, np.float32), "half": np.array(0.5, np.float32), "less": np.array([-0.5], np.float32),
    "eps": np.array([1e-5], np.float32), "many": np.abs(normal(12)) + np.float32(0.1), "last": np.array([-1]),
    "dozen": np.array(12, np.float32), "both": np.array([1, 2]), "middle": np.array([1]),
}  # fmt: skip


def model(body: str, opset: int = 21, shape: str = "n, 5, 12") -> ModelProto:
    """The nodes as a model, with the parameters that they read."""
    used = {name: value for name, value in PARAMETERS.items() if name in body}
    return model_of(f"g (float[{shape}] x) => (float[{shape}] y) {{ {body} }}", used, opset)


CENTRED = "m = ReduceMean(x, last) c = Sub(x, m) s = Pow(c, two) v = ReduceMean(s, last) e = Add(v, eps)"
LAYER = {
    "torch dynamo": CENTRED + "r = Sqrt(e) d = Div(c, r) g = Mul(scale, d) y = Add(g, bias)",
    "torch's old exporter": CENTRED + "r = Sqrt(e) d = Div(c, r) g = Mul(d, scale) y = Add(g, bias)",
    "tf2onnx": """m = ReduceMean(x, last) c = Sub(x, m) s = Mul(c, c) v = ReduceMean(s, last) e = Add(v, eps)
        r = Sqrt(e) i = Reciprocal(r) k = Mul(i, scale) f = Mul(x, k) o = Mul(m, k) b = Sub(bias, o) y = Add(f, b)""",
    "paddle2onnx": CENTRED + "r = Sqrt(e) d = Div(c, r) g = Mul(d, scale) h = Add(g, bias) y = Identity(h)",
    "by hand: a reciprocal": CENTRED + "r = Sqrt(e) i = Reciprocal(r) d = Mul(c, i) g = Mul(scale, d) y = Add(bias, g)",
    "by hand: a factor in the root": CENTRED
    + "r = Sqrt(e) i = Div(one, r) k = Mul(i, scale) g = Mul(k, c) y = Add(g, bias)",
    "by hand: powers": """m = ReduceMean(x, last) c = Sub(x, m) s = Mul(c, c) v = ReduceMean(s, last) e = Add(eps, v)
        i = Pow(e, less) d = Mul(i, c) g = Mul(d, wide) y = Add(g, bias)""",
    "by hand: a power and a quotient": CENTRED + "r = Pow(e, half) d = Div(c, r) g = Mul(d, scale) y = Add(g, bias)",
    "by hand: two differences": """m = ReduceMean(x, last) c = Sub(x, m) s = Pow(c, two) v = ReduceMean(s, last)
        e = Add(v, eps) r = Sqrt(e) o = Sub(x, m) d = Div(o, r) g = Mul(d, scale) y = Add(g, bias)""",
    "by hand: sums": """t = ReduceSum(x, last) m = Div(t, dozen) c = Sub(x, m) s = Pow(c, two) q = ReduceSum(s, last)
        v = Div(q, dozen) e = Add(v, eps) r = Sqrt(e) d = Div(c, r) g = Mul(d, scale) y = Add(g, bias)""",
    "by hand: no bias": CENTRED + "r = Sqrt(e) d = Div(c, r) y = Mul(d, scale)",
    "by hand: no scale": CENTRED + "r = Sqrt(e) y = Div(c, r)",
    "by hand: a number besides": CENTRED
    + "r = Sqrt(e) d = Div(c, r) g = Mul(d, scale) h = Mul(g, two) y = Add(h, bias)",
}

SQUARES = "s = Pow(x, two) v = ReduceMean(s, last) e = Add(v, eps) r = Sqrt(e)"
ROOT = {
    "torch dynamo": SQUARES + "i = Reciprocal(r) d = Mul(x, i) y = Mul(scale, d)",
    "torch's old exporter": """w = Cast<to = 1>(x) s = Pow(w, two) v = ReduceMean(s, last) e = Add(v, eps) r = Sqrt(e)
        i = Div(one, r) d = Mul(w, i) h = Cast<to = 1>(d) y = Mul(scale, h)""",
    "tf2onnx": """s = Mul(x, x) v = ReduceMean(s, last) e = Add(v, eps) r = Sqrt(e) i = Reciprocal(r) d = Mul(x, i)
        y = Mul(scale, d)""",
    "paddle2onnx": SQUARES + "i = Reciprocal(r) d = Mul(i, x) y = Mul(d, scale)",
    "by hand: a quotient": SQUARES + "d = Div(x, r) y = Mul(d, scale)",
    "by hand: no scale": SQUARES + "y = Div(x, r)",
    "by hand: scaled inverse": SQUARES + "i = Div(one, r) k = Mul(i, scale) y = Mul(k, x)",
}

"""Softmax of x [n, 5, 12] and its logarithm."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto

from tests.unit.rewrite.rewritten import model_of, normal

X = {"x": normal(2, 5, 12) * 3}
WEIGHTS = {
    "last": np.array([-1]), "middle": np.array([1]), "both": np.array([1, 2]), "one": np.array(1, np.float32),
    "infinite": np.array(-np.inf, np.float32), "rows": np.array([2, 5, 1]),
}  # fmt: skip


def model(body: str, opset: int = 21, rows: str = "n") -> ModelProto:
    """The nodes as a model, with what they read."""
    used = {name: value for name, value in WEIGHTS.items() if name in body}
    return model_of(f"g (float[{rows}, 5, 12] x) => (float[{rows}, 5, 12] y) {{ {body} }}", used, opset)


SOFTMAX = {
    "torch dynamo": "m = ReduceMax(x, last) c = Sub(x, m) e = Exp(c) s = ReduceSum(e, last) y = Div(e, s)",
    "torch's old exporter": "m = ReduceMax(x, last) c = Sub(x, m) e = Exp(c) s = ReduceSum(e, last) y = Div(e, s)",
    "tf2onnx": """m = ReduceMax<keepdims = 0>(x, last) k = Max(infinite, m) j = Unsqueeze(k, last) c = Sub(x, j)
        e = Exp(c) s = ReduceSum<keepdims = 0>(e, last) t = Unsqueeze(s, last) y = Div(e, t)""",
    "by hand: without the maximum": "e = Exp(x) s = ReduceSum(e, last) y = Div(e, s)",
    "by hand: with an inverse": "e = Exp(x) s = ReduceSum(e, last) i = Reciprocal(s) y = Mul(i, e)",
    "by hand: less another": "m = ReduceMin(x, last) c = Sub(x, m) e = Exp(c) s = ReduceSum(e, last) y = Div(e, s)",
}
LOG = {
    "torch dynamo": "l = ReduceLogSumExp(x, last) y = Sub(x, l)",
    "torch dynamo: of softmax": "s = Softmax(x) y = Log(s)",
    "torch's old exporter": "l = ReduceLogSumExp(x, last) y = Sub(x, l)",
    "torch's old exporter: of softmax": "s = Softmax(x) y = Log(s)",
    "tf2onnx": "s = Softmax(x) y = Log(s)",
    "paddle2onnx": "s = Softmax(x) y = Log(s)",
    "by hand: of all of it": """m = ReduceMax(x, last) c = Sub(x, m) e = Exp(c) s = ReduceSum(e, last) d = Div(e, s)
        y = Log(d)""",
    "by hand: a difference": """m = ReduceMax(x, last) c = Sub(x, m) e = Exp(c) s = ReduceSum(e, last) l = Log(s)
        y = Sub(c, l)""",
}

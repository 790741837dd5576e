"""Rotary embeddings of 3 heads of size 8 at 5 places."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto

from tests.unit.rewrite.rewritten import Array, model_of, normal

ANGLES = normal(5, 4).reshape(1, 1, 5, 4)
WEIGHTS: dict[str, Array] = {
    "cos": np.cos(np.concatenate([ANGLES, ANGLES], -1)), "sin": np.sin(np.concatenate([ANGLES, ANGLES], -1)),
    "other": np.sin(np.concatenate([ANGLES, ANGLES + np.float32(1)], -1)), "none": np.array([0]),
    "half": np.array([4]), "whole": np.array([8]), "large": np.array([2**62]), "last": np.array([-1]),
    "five": np.array([5]), "one": np.array([1]), "apart": np.array([0, 0, 3, 8]),
    "less": np.array([-4]), "third": np.array([3]), "halves": np.array([4, 4]), "two": np.array([2]),
    "rows": np.array([1, -1, 4]),
}  # fmt: skip
X = {"x": normal(1, 3, 5, 8)}


def model(body: str, opset: int = 23, inputs: str = "float[1, 3, 5, 8] x", output: str = "1, 3, 5, 8") -> ModelProto:
    """The nodes as a model, with what they read."""
    words = set(body.replace("(", " ").replace(")", " ").replace(",", " ").split())
    used = {name: value for name, value in WEIGHTS.items() if name in words and f"{name} =" not in body}
    return model_of(f"g ({inputs}) => (float[{output}] y) {{ {body} }}", used, opset)


HALVES = "f = Slice(x, none, half, last) s = Slice(x, half, large, last) n = Neg(s) t = Concat<axis = -1>(n, f)"
TURN = " c = Mul(x, cos) d = Mul(t, sin) y = Add(c, d)"
ROTARY = {
    "torch dynamo": """c = Mul(x, cos) s = Slice(x, half, large, third, one) n = Neg(s)
        f = Slice(x, none, half, third, one) t = Concat<axis = -1>(n, f) d = Mul(t, sin) y = Add(c, d)""",
    "torch's old exporter": """c = Mul(x, cos) s = Slice(x, half, large, third, one) n = Neg(s)
        f = Slice(x, none, half, third, one) t = Concat<axis = -1>(n, f) d = Mul(t, sin) y = Add(c, d)""",
    "tf2onnx": """f, s = Split<axis = -1>(x, halves) n = Neg(s) t = Concat<axis = -1>(n, f) c = Mul(x, cos)
        d = Mul(t, sin) y = Add(c, d)""",
    "paddle2onnx": """f = Slice(x, none, half, third, one) s = Slice(x, half, large, third, one) n = Neg(s)
        t = Concat<axis = 3>(n, f) c = Mul(x, cos) d = Mul(t, sin) y = Add(c, d)""",
    "by hand: in another order": HALVES + " c = Mul(cos, x) d = Mul(sin, t) y = Add(d, c)",
    "by hand: split": "f, s = Split<num_outputs = 2, axis = 3>(x) n = Neg(s) t = Concat<axis = 3>(n, f)" + TURN,
    "by hand: from the end": HALVES.replace("half, last)", "less, last)").replace("half, large", "less, whole") + TURN,
}

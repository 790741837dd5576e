from __future__ import annotations

import numpy as np
import onnx
import pytest

from opweld.rewrite.optimize import optimize_model
from tests.unit.rewrite.rewritten import for_onnxruntime, kinds, model_of, normal, refusals, rewritten

ACTIVATIONS = [
    "Relu(c)",
    "Sigmoid(c)",
    "Tanh(c)",
    "LeakyRelu(c)",
    "LeakyRelu<alpha = 0.3>(c)",
    "HardSigmoid(c)",
    "HardSigmoid<alpha = 0.1666, beta = 0.4>(c)",
    "Clip(c, low, high)",
    "Clip(c, low)",
    "Clip(c, , high)",
]
GELU = "d = Div(a, root) e = Erf(d) o = Add(e, one) m = Mul(a, o) y = Mul(m, half)"
STORED = {"w": normal(6, 4, 3), "b": normal(6), "low": np.array(-0.3, "float32"), "high": np.array(0.4, "float32")}


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_an_activation_of_a_convolution(activation: str) -> None:
    text = f"g (float[n, 4, 9] x) => (float[n, 6, 9] y) {{ c = Conv<pads = [1, 1]>(x, w, b) y = {activation} }}"
    model = model_of(text, STORED)
    assert kinds(for_onnxruntime(model, {"x": normal(2, 4, 9)})) == ["FusedConv"]
    assert kinds(rewritten(model)) == ["Conv", activation.partition("(")[0].partition("<")[0]]


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_an_activation_of_a_product(activation: str) -> None:
    text = f"g (float[n, 4] x) => (float[n, 6] y) {{ c = Gemm<alpha = 0.5, transB = 1>(x, w, b) y = {activation} }}"
    made = for_onnxruntime(model_of(text, STORED | {"w": normal(6, 4)}), {"x": normal(3, 4)})
    assert kinds(made) == (["Gemm", "Clip"] if "Clip" in activation else ["FusedGemm"])


def test_an_activation_that_stays() -> None:
    text = """g (float[n, 4, 9] x{1}) => (float[n, 6, 7] y, float[n, 6, 7] z) { c = Conv(x, w, b) {0} }"""
    cases = {
        "y = Relu(c) z = Sigmoid(c)": "the result is read by more than one node",
        "y = Clip(c, low, top) z = Relu(y)": "its bounds are computed",
    }
    for nodes, reason in cases.items():
        feeds = {"x": normal(2, 4, 9)} | ({"top": np.array(0.4, "float32")} if "top" in nodes else {})
        made = for_onnxruntime(
            model_of(text.replace("{0}", nodes).replace("{1}", ", float top" if "top" in nodes else ""), STORED), feeds
        )
        assert refusals(made, "rewrite.fused_activation")[0].reason == reason
    halves = {"w": normal(6, 4, 3).astype("float16")}
    text = "g (float16[n, 4, 9] x) => (float16[n, 6, 7] y) { c = Conv(x, w) y = Relu(c) }"
    made = for_onnxruntime(model_of(text, halves), {"x": normal(2, 4, 9).astype("float16")})
    assert kinds(made) == ["Conv", "Relu"]


def test_a_swish_is_found_first() -> None:
    text = "g (float[n, 4, 9] x) => (float[n, 6, 7] y) { c = Conv(x, w, b) s = Sigmoid(c) y = Mul(c, s) }"
    assert kinds(for_onnxruntime(model_of(text, STORED), {"x": normal(2, 4, 9)})) == ["Conv", "QuickGelu"]


@pytest.mark.parametrize(
    ("nodes", "shape"),
    [
        ("t = Transpose<perm = [0, 2, 1]>(a) y = MatMul(t, b)", (2, 4, 3)),
        ("s = MatMul(c, b) y = Mul(s, half)", (2, 3, 4)),
        ("s = MatMul(c, b) y = Div(s, half)", (2, 3, 4)),
        ("t = Transpose<perm = [0, 2, 1]>(a) s = MatMul(t, b) y = Mul(half, s)", (2, 4, 3)),
        ("t = Transpose<perm = [0, 2, 1]>(a) u = Transpose<perm = [0, 2, 1]>(b) s = MatMul(u, a) y = Mul(s, half)", 0),
    ],
)
def test_transposed_and_scaled_products(nodes: str, shape: object) -> None:
    feeds = {"a": normal(2, 4, 3), "b": normal(2, 4, 5), "c": normal(2, 3, 4)}
    used = {name: array for name, array in feeds.items() if f"({name}" in nodes or f", {name})" in nodes}
    inputs = ", ".join(f"float[{', '.join(map(str, array.shape))}] {name}" for name, array in used.items())
    model = model_of(f"g ({inputs}) => (float[p, q, r] y) {{ {nodes} }}", {"half": np.array(0.3, "float32")})
    assert kinds(for_onnxruntime(model, used)) == ["FusedMatMul"]


def test_products_that_stay() -> None:
    """Another order of axes, a number for each column, a product that is read twice."""
    cases = {
        "t = Transpose<perm = [1, 2, 0]>(x) y = MatMul(t, b)": ["Transpose", "MatMul"],
        "s = MatMul(x, b) y = Mul(s, row)": ["MatMul", "Mul"],
        "s = MatMul(x, b) t = Mul(s, half) u = Neg(s) y = Add(t, u)": ["MatMul", "Mul", "Neg", "Add"],
    }
    feeds = {"x": normal(3, 3, 3), "b": normal(3, 3, 5)}
    stored = {"row": normal(5), "half": np.array(0.3, "float32")}
    for nodes, left in cases.items():
        model = model_of(f"g (float[3, 3, 3] x, float[3, 3, 5] b) => (float[p, q, r] y) {{ {nodes} }}", stored)
        assert kinds(for_onnxruntime(model, feeds)) == left


@pytest.mark.parametrize(("opset", "gelu"), [(20, "y = Gelu(a)"), (17, GELU)])
def test_a_row_before_a_gelu(opset: int, gelu: str) -> None:
    text = f"g (float[n, 4] x) => (float[n, 4] y) {{ r = Relu(x) a = Add(r, row) {gelu} }}"
    stored = {"row": normal(4), "root": np.array(np.sqrt(2)), "one": np.array(1), "half": np.array(0.5)}
    arrays = {name: array.astype("float32") for name, array in stored.items()}
    made = for_onnxruntime(model_of(text, arrays, opset), {"x": normal(3, 4)})
    assert kinds(made) == ["Relu", "BiasGelu"]


def test_vectors_and_moved_batches_stay() -> None:
    """ONNX Runtime reads a transposed matrix by a vector in another order; a batch that moves is moved first."""
    text = "g (float[2, 3] a, float[2] b) => (float[3] y) { t = Transpose(a) y = MatMul(t, b) }"
    made = for_onnxruntime(model_of(text), {"a": normal(2, 3), "b": normal(2)})
    assert kinds(made) == ["Transpose", "MatMul"]
    text = """<ir_version: 10, opset_import: ["" : 21, "com.microsoft" : 1]>
        g (float[2, 3, 4] x, float[4, 2, 5] b) => (float[p, q, r] y) {
            t = Transpose<perm = [0, 2, 1]>(x) y = com.microsoft.FusedMatMul<transBatchA = 1>(t, b) }"""
    made = optimize_model(onnx.parser.parse_model(text), contributed=True)
    assert kinds(made) == ["Transpose", "FusedMatMul"]

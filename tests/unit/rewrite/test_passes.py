from __future__ import annotations

import re

import numpy as np
import onnx
import pytest

import opweld
from tests.unit.rewrite.rewritten import kinds, model_of, normal, refusals, rewritten


def test_what_is_not_fed_is_computed() -> None:
    weights = {"w": normal(4, 5), "k": np.array(0.1, np.float32)}
    text = """g (float[n, 5] x) => (float[n, 4] y) {
        a = Transpose(w) b = Mul(a, k) c = Mul(b, k) y = MatMul(x, c) }"""
    made = rewritten(model_of(text, weights), {"x": normal(3, 5)})
    assert kinds(made) == ["MatMul"]
    stored = [value.const_value for value in made.model.graph.initializers.values()]
    assert [list(t.shape) for t in stored if t is not None] == [[5, 4]]
    wide = weights["w"].astype(np.float64).T * np.float64(np.float32(0.1)) * np.float64(np.float32(0.1))
    assert stored[0] is not None
    assert np.array_equal(stored[0].numpy(), wide.astype(np.float32)), "in float64, rounded once"


def test_sizes_that_are_known_are_stored() -> None:
    text = """g (float[n, 3, 4] x) => (float[a, b] y) {
        s = Shape<start = 1>(x) p = ReduceProd<keepdims = 1>(s) m = Concat<axis = 0>(minus, p) y = Reshape(x, m) }"""
    made = rewritten(model_of(text, {"minus": np.array([-1])}), {"x": normal(2, 3, 4)})
    assert kinds(made) == ["Reshape"]


def test_sizes_that_are_fed_are_not() -> None:
    text = "g (float[n, 3] x) => (int64[2] y, float[n, 3] z) { s = Shape(x) y = Neg(s) z = Relu(x) }"
    for n in (2, 5):
        made = rewritten(model_of(text), {"x": normal(n, 3)})
    assert sorted(kinds(made)) == ["Neg", "Relu", "Shape"]


def test_a_file_does_not_grow() -> None:
    weights = {"one": np.array([1], np.float32), "shape": np.array([300, 300])}
    text = "g (float[300, 300] x) => (float[300, 300] y) { e = Expand(one, shape) f = Sin(e) y = Add(x, f) }"
    made = rewritten(model_of(text, weights), {"x": normal(300, 300)})
    assert kinds(made) == ["Expand", "Sin", "Add"]
    assert refusals(made, "rewrite.fold")[0].reason == "the file would grow"
    # What is large on the way may end small.
    text = "g (float[n] x) => (float[n] y) { e = Expand(one, shape) s = ReduceSum<keepdims = 0>(e) y = Add(x, s) }"
    assert kinds(rewritten(model_of(text, weights), {"x": normal(4)})) == ["Add"]


def test_jumps_are_where_the_model_jumps() -> None:
    """0.1 * 3 is 0.3000000119 in float32, and its tenfold is 3.0000002: in float64 it is 3.0000000447, above 3 too, but
    0.7 * 10 is 6.9999999 in float64 and 7 in float32."""
    weights = {"a": np.array(0.7, np.float32), "ten": np.array(10, np.float32)}
    text = "g (int64[n] x) => (int64[n] y) { m = Mul(a, ten) c = Cast<to = 7>(m) y = Add(x, c) }"
    made = rewritten(model_of(text, weights), jumps=True)
    assert kinds(made) == ["Add"]
    (stored,) = made.model.graph.initializers.values()
    assert stored.const_value is not None
    assert int(stored.const_value.numpy()) == int(np.float32(0.7) * np.float32(10)) == 7


def test_what_is_random_or_quantized_stays() -> None:
    weights = {
        "q": np.arange(12, dtype=np.int8).reshape(3, 4),
        "s": np.array(0.5, np.float32),
        "shape": np.array([3, 4]),
    }
    text = """g (float[3, 4] x) => (float[3, 4] y, float[3, 4] z) {
        d = DequantizeLinear(q, s) y = Add(x, d) r = RandomNormal<shape = [3, 4]>() z = Add(x, r) }"""
    assert sorted(kinds(rewritten(model_of(text, weights)))) == ["Add", "Add", "DequantizeLinear", "RandomNormal"]


def test_equal_nodes_are_one() -> None:
    text = """g (float[n] x) => (float[n] y) {
        a = Relu(x) b = Relu(x) c = Exp(a) d = Exp(b) e = LeakyRelu<alpha = 0.1>(x) f = LeakyRelu<alpha = 0.2>(x)
        y = Sum(c, d, e, f) }"""
    made = rewritten(model_of(text), {"x": normal(7)})
    assert kinds(made) == ["Relu", "Exp", "LeakyRelu", "LeakyRelu", "Sum"]
    assert made.ledger.counts()["rewrite.equal_nodes"] == (2, 2)


def test_equal_random_nodes_are_two() -> None:
    text = "g (float[n] x) => (float[n] y) { a = RandomNormalLike(x) b = RandomNormalLike(x) y = Sub(a, b) }"
    assert kinds(rewritten(model_of(text))) == ["RandomNormalLike", "RandomNormalLike", "Sub"]


def test_equal_tensors_are_one() -> None:
    weights = {"a": normal(4, 4), "b": normal(4, 4), "c": normal(4, 4).reshape(2, 8)}
    text = """g (float[n, 4] x, float[n, 2] z) => (float[n, 4] y, float[n, 8] w) {
        u = MatMul(x, a) y = MatMul(u, b) w = MatMul(z, c) }"""
    made = rewritten(model_of(text, weights), {"x": normal(3, 4), "z": normal(3, 2)})
    assert len(made.model.graph.initializers) == 2


def test_what_nothing_needs_goes() -> None:
    text = "g (float[n] x) => (float[n] y) { a = Exp(x) b = Sin(a) y = Neg(x) }"
    made = rewritten(model_of(text, {"unused": normal(100)}), {"x": normal(7)})
    assert kinds(made) == ["Neg"]
    assert not made.model.graph.initializers


def test_functions_are_inlined() -> None:
    model = onnx.parser.parse_model("""<ir_version: 10, opset_import: ["" : 21, "own" : 1]>
        g (float[n] x) => (float[n] y) { a = own.twice(x) y = own.twice(a) }
        <domain: "own", opset_import: ["" : 21]> twice (u) => (v) { w = Identity(u) v = Add(w, w) }""")
    assert kinds(rewritten(model, {"x": normal(3)})) == ["Add", "Add"]


@pytest.mark.parametrize("opset", [7, 9, 11, 13, 17, 21])
def test_every_opset_keeps_its_own(opset: int) -> None:
    squeeze = "Squeeze<axes = [0]>(b)" if opset < 13 else "Squeeze(b, axes)"
    unsqueeze = "Unsqueeze<axes = [0]>(a)" if opset < 13 else "Unsqueeze(a, axes)"
    pad = "Pad<pads = [0, 0]>(c)" if opset < 11 else "Pad(c, none)"
    weights = {"axes": np.array([0]), "none": np.zeros(2, np.int64)} if opset >= 11 else {}
    weights = {k: v for k, v in weights.items() if k == "none" or opset >= 13}
    text = f"g (float[5] x) => (float[5] y) {{ a = Relu(x) b = {unsqueeze} c = {squeeze} d = {pad} y = Neg(d) }}"
    made = rewritten(model_of(text, weights, opset), {"x": normal(5)})
    assert kinds(made) == ["Relu", "Neg"]
    assert made.model.opset_imports[""] == opset


@pytest.mark.parametrize(
    ("nodes", "left"),
    [
        ("p = Add(a, b) q = Add(b, a)", 1),
        ("p = Mul(a, b) q = Mul(b, a)", 1),
        ("p = Sum(a, b) q = Sum(b, a)", 1),
        ("p = Sub(a, b) q = Sub(b, a)", 2),
        ("p = Max(a, b) q = Max(b, a)", 2),
        ("p = Sum(a, b, a) q = Sum(a, a, b)", 2),
    ],
)
def test_operands_in_either_order_are_the_same(nodes: str, left: int) -> None:
    text = f"g (float[n, 3] a, float[n, 3] b) => (float[n, 3] y, float[n, 3] z) {{ {nodes} y = Exp(p) z = Tanh(q) }}"
    made = rewritten(model_of(text), {"a": normal(2, 3), "b": normal(2, 3, seed=1)})
    assert len(kinds(made)) == 2 + left


JUMPS = {
    "a comparison of what is subtracted": "m = Mul(a, ten) e = Sub(m, seven) c = Less(e, zero) y = Or(x, c)",
    "a comparison": "m = Mul(a, ten) c = Less(m, seven) y = Or(x, c)",
    "an integer": "m = Mul(a, ten) i = Cast<to = 7>(m) c = Less(i, whole) y = Or(x, c)",
    "a root": "m = Mul(a, ten) e = Sub(m, seven) r = Sqrt(e) c = IsNaN(r) y = Or(x, c)",
}


@pytest.mark.parametrize("size", [(), (5000,)])
@pytest.mark.parametrize("nodes", JUMPS.values(), ids=JUMPS)
def test_every_step_to_a_jump_is_rounded(nodes: str, size: tuple[int, ...]) -> None:
    """0.7 * 10 is 7 in float32, and less in float64; what is compiled jumps where the model does, too."""
    words = {
        "a": np.full(size, 0.7, np.float32), "ten": np.array(10, np.float32), "seven": np.array(7, np.float32),
        "zero": np.array(0, np.float32), "whole": np.array(7),
    }  # fmt: skip
    used = {name: array for name, array in words.items() if re.search(rf"\b{name}\b", nodes.replace("a =", ""))}
    model = model_of(f"g (bool[1] x) => (bool[n] y) {{ {nodes} }}", used)
    feeds = {"x": np.array([False])}
    rewritten(model, feeds, jumps=True)
    assert not opweld.compile(model, level="none").run(feeds)["y"].any()

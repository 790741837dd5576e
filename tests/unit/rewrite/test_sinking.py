"""Nodes between transpositions are computed in the other order of axes, where fewer are left then."""

from __future__ import annotations

import re

import numpy as np
import pytest

from opweld.ledger import Ledger
from opweld.rewrite.optimize import Optimized, optimize_model
from opweld.rules import REWRITES
from tests.unit.rewrite.rewritten import Array, kinds, model_of, normal, refusals, rewritten

STORED: dict[str, Array] = {
    "three": np.array(3, np.float32), "row": normal(6),
    "low": np.array(-1, np.float32), "high": np.array(1, np.float32), "k": normal(8, 1, 1),
    "whole": normal(1, 8, 4, 6), "one": normal(1, 1, 1, 1), "half": np.array(0.5, np.float32), "a1": np.array([1]),
    "a23": np.array([2, 3]), "s": np.array([1, 2]), "e": np.array([4, 4]), "axes": np.array([3, 1]),
    "pads": np.array([0, 1, 2, 3, 0, 0, 4, 5]), "some": np.array([2, 0]), "m": normal(8, 1, 6) > 0,
    "slope": np.abs(normal(8, 1, 1)), "parts": np.array([3, 5]), "scale": np.array(0.1, np.float32),
    "scales": np.abs(normal(8)) + 0.1, "zeros": np.zeros(8, np.int8), "zero": np.array(3, np.int8),
}  # fmt: skip


def used(text: str, stored: dict[str, Array] = STORED) -> dict[str, Array]:
    return {name: np.asarray(array) for name, array in stored.items() if re.search(rf"\b{name}\b", text)}


def transpositions(made: Optimized) -> int:
    return kinds(made).count("Transpose")


@pytest.mark.parametrize(
    "node",
    ["Relu(t)", "Clip(t, low, high)", "Gelu(t)", "Sin(t)", "Add(t, k)", "Mul(row, t)", "Sub(t, whole)", "Div(t, one)",
     "Pow(t, three)", "Where(m, t, half)", "PRelu(t, slope)", "Max(t, k, row)", "Softmax<axis = 1>(t)", "Softmax(t)",
     "LogSoftmax<axis = -2>(t)", "Concat<axis = 1>(t, t)", "Concat<axis = -1>(t, t)", "Pad(t, pads)",
     'Pad<mode = "edge">(t, pads)', "Slice(t, s, e, axes)", "Gather<axis = 1>(t, some)", "ReduceMean(t, a1)",
     "ReduceMax(t, a23)", "ReduceSum(t, a1)", "GlobalMaxPool(t)", "Concat<axis = 1>(t, whole)"],
)  # fmt: skip
def test_it_is_computed_in_the_other_order(node: str) -> None:
    text = f"""g (float[1, 4, 6, 8] x) => (float[a, b, c, d] y) {{
        t = Transpose<perm = [0, 3, 1, 2]>(x) u = {node} y = Transpose<perm = [0, 2, 3, 1]>(u) }}"""
    made = rewritten(model_of(text, used(node)), {"x": normal(1, 4, 6, 8)})
    assert len(kinds(made)) == 1 and transpositions(made) == 0


@pytest.mark.parametrize(("opset", "node"), [
    (11, "Softmax<axis = 3>(t)"), (11, "ReduceMean<axes = [1]>(t)"),
    (9, "Slice<axes = [1], starts = [2], ends = [4]>(t)"), (9, "Pad<pads = [0, 1, 2, 3, 0, 0, 4, 5]>(t)"),
    (6, "Add(t, t)"), (7, "Add(t, k)"),
])  # fmt: skip
def test_opsets_in_which_axes_are_attributes(opset: int, node: str) -> None:
    text = f"""g (float[1, 4, 6, 8] x) => (float[a, b, c, d] y) {{
        t = Transpose<perm = [0, 3, 1, 2]>(x) u = {node} y = Transpose<perm = [0, 2, 3, 1]>(u) }}"""
    made = rewritten(model_of(text, used(node), opset), {"x": normal(1, 4, 6, 8)})
    plain = (opset, node[:3]) not in ((11, "Sof"), (6, "Add"))
    assert transpositions(made) == (0 if plain else 2), "what softmax of several axes means is not told"


@pytest.mark.parametrize("scale", ["scale, zero", "scales, zeros"])
def test_quantised_values(scale: str) -> None:
    text = f"""g (float[1, 4, 6, 8] x) => (float[1, 4, 6, 8] y) {{
        t = Transpose<perm = [0, 3, 1, 2]>(x) q = QuantizeLinear<axis = 1>(t, {scale})
        u = DequantizeLinear<axis = 1>(q, {scale}) y = Transpose<perm = [0, 2, 3, 1]>(u) }}"""
    made = rewritten(model_of(text, used(scale)), {"x": normal(1, 4, 6, 8)})
    assert kinds(made) == ["QuantizeLinear", "DequantizeLinear"]


@pytest.mark.parametrize(
    ("node", "left"),
    [("ReduceMean<keepdims = 0>(r, a23)", "ReduceMean"), ("ArgMax<axis = 1, keepdims = 0>(r)", "ArgMax"),
     ("ReduceSum<keepdims = 0>(r, a1)", "ReduceSum")],
)  # fmt: skip
def test_reductions_that_drop_axes_need_no_order(node: str, left: str) -> None:
    """What is left has the same axes in either order."""
    dims = "n, 8" if "a23" in node else "n, 4, 6"
    dtype = "int64" if "Arg" in node else "float"
    text = f"""g (float[n, 4, 6, 8] x) => ({dtype}[{dims}] y) {{
        t = Transpose<perm = [0, 3, 1, 2]>(x) r = Relu(t) y = {node} }}"""
    made = rewritten(model_of(text, used(node)), {"x": normal(2, 4, 6, 8)})
    assert kinds(made) == ["Relu", left]
    permuted = text.replace("[0, 3, 1, 2]", "[0, 1, 3, 2]").replace(
        f"[{dims}] y", f"[{dims.replace('4', 'p').replace('6', 'q').replace('8', 'r')}] y"
    )
    assert transpositions(rewritten(model_of(permuted, used(node)))) == ("a23" not in node)


CHANNELS_LAST = """g (float[n, 9, 9, 3] x) => (float[n, 9, 9, 8] y) {
    a = Transpose<perm = [0, 3, 1, 2]>(x)
    b = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(a, w1)
    c = Transpose<perm = [0, 2, 3, 1]>(b)
    d = Add(c, bias)
    e = Relu(d)
    f = Transpose<perm = [0, 3, 1, 2]>(e)
    g1 = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(f, w2)
    h = Transpose<perm = [0, 2, 3, 1]>(g1)
    i = Mul(h, bias)
    j = Add(i, e)
    k = Relu(j)
    l = Transpose<perm = [0, 3, 1, 2]>(k)
    m = Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>(l, w3)
    y = Transpose<perm = [0, 2, 3, 1]>(m)
}"""
"""Two convolutions with a residual around the second, and a third, as tf2onnx writes them."""


def test_convolutions_of_a_channels_last_framework() -> None:
    weights = {"w1": normal(8, 3, 3, 3), "w2": normal(8, 8, 3, 3), "w3": normal(8, 8, 3, 3, seed=1), "bias": normal(8)}
    made = rewritten(model_of(CHANNELS_LAST, weights), {"x": normal(2, 9, 9, 3)})
    assert kinds(made) == ["Transpose", "Conv", "Relu", "Conv", "Add", "Relu", "Conv", "Transpose"]
    fired = {decision.rule for decision in made.ledger if decision.fired}
    assert fired >= {"rewrite.sinking", "rewrite.bias", "rewrite.scale"}
    once = optimize_model(model_of(CHANNELS_LAST, weights), lambda: Ledger(level="extended", rules=REWRITES))
    assert transpositions(once) == 6, "level all does it"


def test_split_and_concat_between_convolutions() -> None:
    text = """g (float[n, 8, 5, 5] x) => (float[n, 8, 5, 5] y, float[n, 5, 5, 5] z) {
        a = Transpose<perm = [0, 2, 3, 1]>(x) p, q = Split<axis = -1>(a, parts)
        u = Sigmoid(q) v = Concat<axis = 3>(u, p)
        y = Transpose<perm = [0, 3, 1, 2]>(v) z = Transpose<perm = [0, 3, 1, 2]>(q) }"""
    made = rewritten(model_of(text, used(text)), {"x": normal(2, 8, 5, 5)})
    assert kinds(made) == ["Split", "Sigmoid", "Concat"]


def test_a_pool_that_a_layer_follows() -> None:
    text = """g (float[n, 5, 6, 8] x) => (float[n, 4] y) {
        a = Transpose<perm = [0, 3, 1, 2]>(x) b = Relu(a) c = GlobalAveragePool(b)
        d = Reshape(c, flat) y = MatMul(d, w) }"""
    weights = {"flat": np.array([-1, 8]), "w": normal(8, 4)}
    made = rewritten(model_of(text, weights), {"x": normal(2, 5, 6, 8)})
    assert transpositions(made) == 0 and kinds(made)[:2] == ["Relu", "ReduceMean"]


def test_a_reshape_may_be_a_transposition() -> None:
    """As tf2onnx writes what is one element high and wide: the gate of a squeeze-and-excite block."""
    text = """g (float[1, 8, 5, 6] x) => (float[1, 8, 5, 6] y) {
        a = Transpose<perm = [0, 2, 3, 1]>(x) b = GlobalAveragePool(x) c = Reshape(b, last) d = Sigmoid(c)
        e = Mul(a, d) y = Transpose<perm = [0, 3, 1, 2]>(e) }"""
    made = rewritten(model_of(text, {"last": np.array([1, 1, 1, 8])}), {"x": normal(1, 8, 5, 6)})
    assert kinds(made) == ["GlobalAveragePool", "Sigmoid", "Mul"]


def test_more_may_go_than_come() -> None:
    """A stream that three convolutions read transposed, and that is transposed whenever something is added to it."""
    lines = ["s0 = Transpose<perm = [0, 3, 1, 2]>(x)"]
    for at in range(3):
        lines.append(f"c{at} = Conv(s{at}, w) t{at} = Transpose<perm = [0, 2, 3, 1]>(c{at}) l{at} = Softmax(t{at})")
        lines.append(f"u{at} = Transpose<perm = [0, 3, 1, 2]>(l{at}) s{at + 1} = Add(s{at}, u{at})")
    lines.append("y = Transpose<perm = [0, 2, 3, 1]>(s3)")
    text = "g (float[2, 5, 6, 8] x) => (float[2, 5, 6, 8] y) { " + " ".join(lines) + " }"
    made = rewritten(
        model_of(text, {"w": normal(8, 8, 1, 1)}), {"x": normal(2, 5, 6, 8)}, disable=("rewrite.pointwise",)
    )
    assert transpositions(made) == 2, "a softmax of channels is one in either order"
    text = text.replace("Softmax(t", "LayerNormalization(t").replace("(t0)", "(t0, v)").replace("(t1)", "(t1, v)")
    model = model_of(text.replace("(t2)", "(t2, v)"), {"w": normal(8, 8, 1, 1), "v": normal(8)})
    made = rewritten(model, {"x": normal(2, 5, 6, 8)}, disable=("rewrite.pointwise",))
    assert transpositions(made) == 6, "of eight"


def test_batches_that_come_second() -> None:
    """Rows and normalisations do not care where the axes before theirs lie."""
    text = """g (float[n, 5, 8] x) => (float[n, 5, 8] y) {
        a = Transpose<perm = [1, 0, 2]>(x) b = LayerNormalization(a, v) c = MatMul(b, w) d = Add(c, a)
        y = Transpose<perm = [1, 0, 2]>(d) }"""
    made = rewritten(model_of(text, {"v": normal(8), "w": normal(8, 8)}), {"x": normal(2, 5, 8)})
    assert kinds(made) == ["LayerNormalization", "MatMul", "Add"]


def test_outputs_keep_their_names() -> None:
    """One of them is needed in both orders. Two others are one value, of which one name is taken."""
    text = """g (float[2, 5, 8] x) => (float[2, 8, 5] r, float[2, 5, 8] y, float[2, 5, 8] z, float[2, 5, 8] w) {
        a = Transpose<perm = [0, 2, 1]>(x) r = Relu(a) y = Transpose<perm = [0, 2, 1]>(r)
        s = Neg(r) z = Transpose<perm = [0, 2, 1]>(s) w = Transpose<perm = [0, 2, 1]>(s) }"""
    made = rewritten(model_of(text), {"x": normal(2, 5, 8)})
    assert kinds(made).count("Relu") == 1 and transpositions(made) == 3


def test_what_a_body_reads_stays_as_it_is() -> None:
    text = """g (float[2, 5] x, bool c) => (float[2, 5] y, float[5, 2] z) {
        a = Transpose(x) b = Relu(a) y = Transpose(b)
        z = If (c) <
            then_branch = p () => (float[5, 2] k) { k = Neg(b) },
            else_branch = q () => (float[5, 2] l) { l = Abs(b) } > }"""
    made = rewritten(model_of(text), {"x": normal(2, 5), "c": np.array(True)})
    assert kinds(made) == ["Relu", "Transpose", "If"]


def refused(text: str, reason: str, feeds: dict[str, Array], stored: dict[str, Array] | None = None) -> Optimized:
    made = rewritten(model_of(text, stored), feeds)
    assert reason in {decision.reason for decision in refusals(made, "rewrite.sinking")}
    return made


def test_what_stays() -> None:
    text = """g (float[2, 5, 6, 8] x) => (float[2, 5, 6, 8] y) {
        a = Transpose<perm = [0, 3, 1, 2]>(x) b = MaxPool<kernel_shape = [1, 1]>(a)
        y = Transpose<perm = [0, 2, 3, 1]>(b) }"""
    reason = "MaxPool between two transpositions is not written in another order of axes"
    assert transpositions(refused(text, reason, {"x": normal(2, 5, 6, 8)})) == 2
    text = """g (float[2, 5, 8] x, float[2, 8, 5] o, float[2, 8, 5] p) => (float[2, 5, 8] y) {
        a = Transpose<perm = [0, 2, 1]>(x) b = Add(a, o) c = Mul(b, p) y = Transpose<perm = [0, 2, 1]>(c) }"""
    feeds = {"x": normal(2, 5, 8), "o": normal(2, 8, 5), "p": normal(2, 8, 5, seed=1)}
    assert transpositions(refused(text, "as many transpositions would be needed elsewhere", feeds)) == 2
    text = """g (float[2, 50, 8] x) => (float[2, 50, 8] y, float[2, 8, 50] z) {
        a = Transpose<perm = [0, 2, 1]>(x) b = Add(a, big) y = Transpose<perm = [0, 2, 1]>(b) z = Identity(big) }"""
    made = refused(text, "the file would grow", {"x": normal(2, 50, 8)}, {"big": normal(2, 8, 50)})
    assert transpositions(made) == 2


def test_fewer_but_larger() -> None:
    """One transposition of what is broadcast moves more than two of what is not."""
    text = """g (float[1, 2, 3] x, float[1, 2, 3] w, float[64, 3, 2] o) => (float[64, 2, 3] y, float[64, 3, 2] z) {
        a = Transpose<perm = [0, 2, 1]>(x) b = Transpose<perm = [0, 2, 1]>(w) c = Add(a, b) z = Mul(c, o)
        y = Transpose<perm = [0, 2, 1]>(z) }"""
    feeds = {"x": normal(1, 2, 3), "w": normal(1, 2, 3, seed=1), "o": normal(64, 3, 2)}
    made = rewritten(model_of(text), feeds)
    assert transpositions(made) == 2, "the sum is transposed, not what is summed"

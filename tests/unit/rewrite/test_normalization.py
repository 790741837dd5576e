from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto

from opweld.rewrite.optimize import Optimized
from tests.unit.rewrite.rewritten import for_onnxruntime, kinds, model_of, normal, refusals, rewritten
from tests.unit.rewrite.written.normalization import CENTRED, LAYER, PARAMETERS, ROOT, X, model


def attributes(made: Any, position: int = 0) -> dict[str, Any]:
    return {name: attribute.value for name, attribute in made.model.graph[position].attributes.items()}


@pytest.mark.parametrize("body", LAYER.values(), ids=LAYER)
def test_layer_normalization_whoever_wrote_it(body: str) -> None:
    made = rewritten(model(body), X)
    assert kinds(made) == ["LayerNormalization"]
    assert attributes(made) == {"axis": -1, "epsilon": pytest.approx(1e-5)}
    assert len(made.model.graph[0].inputs) == (3 if "bias" in body else 2)
    assert kinds(for_onnxruntime(model(body), X)) == ["LayerNormalization"]


@pytest.mark.parametrize("body", ROOT.values(), ids=ROOT)
def test_root_mean_square_whoever_wrote_it(body: str) -> None:
    made = rewritten(model(body, 23), X)
    assert kinds(made) == ["RMSNormalization"]
    assert kinds(for_onnxruntime(model(body, 23), X)) == ["RMSNormalization"]
    assert refusals(rewritten(model(body), X), "rewrite.rms_normalization")[0].failed == {"opset": 21, "needed": 23}


def test_several_axes_are_one_row() -> None:
    body = """m = ReduceMean(x, both) c = Sub(x, m) s = Mul(c, c) v = ReduceMean(s, both) e = Add(v, eps) r = Sqrt(e)
              d = Div(c, r) g = Mul(d, plane)"""
    weights = {**{n: PARAMETERS[n] for n in ("both", "eps")}, "plane": normal(5, 12), "shift": normal(1, 5, 12)}
    text = f"g (float[n, 5, 12] x) => (float[n, 5, 12] y) {{ {body} y = Add(g, shift) }}"
    made = rewritten(model_of(text, weights), X)
    assert kinds(made) == ["LayerNormalization"]
    assert attributes(made)["axis"] == -2


def test_axes_that_are_attributes() -> None:
    body = """m = ReduceMean<axes = [2]>(x) c = Sub(x, m) s = Pow(c, two) v = ReduceMean<axes = [-1]>(s)
              e = Add(v, eps) r = Sqrt(e) d = Div(c, r) g = Mul(d, scale) y = Add(g, bias)"""
    assert kinds(rewritten(model(body, 17), X)) == ["LayerNormalization"]
    made = rewritten(model(body, 13), X)
    assert "Sqrt" in kinds(made)
    assert refusals(made, "rewrite.layer_normalization")[0].reason == "LayerNormalization exists since opset 17"


def test_a_long_row_without_a_scale_gets_ones_that_are_not_stored() -> None:
    shape = "n, 5, 120"
    made = rewritten(model(LAYER["by hand: no scale"], shape=shape), {"x": normal(2, 5, 120)})
    assert kinds(made) == ["ConstantOfShape", "LayerNormalization"]


@pytest.mark.parametrize(("opset", "left"), [(17, "LayerNormalization"), (23, "RMSNormalization")])
def test_half_precision_that_is_computed_in_float32(opset: int, left: str) -> None:
    centre = "m = ReduceMean(w, last) c = Sub(w, m)" if opset == 17 else "c = Identity(w)"
    if opset < 18:
        centre = centre.replace("(w, last)", "<axes = [-1]>(w)")
    mean = "ReduceMean<axes = [-1]>(s)" if opset < 18 else "ReduceMean(s, last)"
    text = f"""g (float16[n, 5, 12] x) => (float16[n, 5, 12] y) {{
        w = Cast<to = 1>(x) {centre} s = Pow(c, two) v = {mean} e = Add(v, eps) r = Sqrt(e) d = Div(c, r)
        h = Cast<to = 10>(d) y = Mul(h, scale) }}"""
    weights = {name: PARAMETERS[name] for name in ("two", "eps", *(["last"] if opset >= 18 else []))}
    weights["scale"] = normal(12).astype(np.float16)
    made = rewritten(model_of(text, weights, opset), {"x": X["x"].astype(np.float16)})
    assert kinds(made) == [left]


NEAR = {
    "another reader": (
        CENTRED + "r = Sqrt(e) d = Div(c, r) g = Mul(d, scale) h = Add(g, bias) y = Add(h, v)",
        "ReduceMean inside of it is read elsewhere too", {"value": "v", "other readers": 1},
    ),
    "other axes": (
        """m = ReduceMean(x, middle) c = Sub(x, m) s = Pow(c, two) v = ReduceMean(s, last) e = Add(v, eps) r = Sqrt(e)
           d = Div(c, r) y = Mul(d, scale)""",
        "the mean is over other axes than the variance", {"mean": "1", "variance": "2"},
    ),
    "not the last": (
        """m = ReduceMean(x, middle) c = Sub(x, m) s = Pow(c, two) v = ReduceMean(s, middle) e = Add(v, eps)
           r = Sqrt(e) y = Div(c, r)""",
        "the axes that it normalises are not the last ones", {"axes": "1", "rank": 3},
    ),
    "epsilons": (
        """m = ReduceMean(x, last) c = Sub(x, m) s = Pow(c, two) v = ReduceMean(s, last) e = Add(v, many) r = Sqrt(e)
           y = Div(c, r)""",
        "epsilon is not one number", {"epsilon": "many"},
    ),
    "no epsilon": (
        CENTRED.replace("eps", "less") + "r = Sqrt(e) y = Div(c, r)",
        "epsilon is negative", {"epsilon": "-0.5"},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("body", "reason", "failed"), NEAR.values(), ids=NEAR)
def test_what_is_nearly_layer_normalization_stays(body: str, reason: str, failed: dict[str, Any]) -> None:
    made = rewritten(model(body), X)
    assert "LayerNormalization" not in kinds(made)
    (refusal,) = refusals(made, "rewrite.layer_normalization")
    assert (refusal.reason, refusal.failed) == (reason, failed)


def test_casts_in_between_are_named() -> None:
    text = """g (double[n, 5, 12] x) => (float[n, 5, 12] y) {
        m = ReduceMean(x, last) c = Sub(x, m) s = Mul(c, c) v = ReduceMean(s, last) e = Add(v, tiny) r = Sqrt(e)
        d = Div(c, r) h = Cast<to = 1>(d) y = Mul(h, scale) }"""
    weights = {"last": PARAMETERS["last"], "tiny": np.array(1e-5), "scale": PARAMETERS["scale"]}
    made = rewritten(model_of(text, weights), {"x": X["x"].astype(np.float64)})
    reasons = {d.reason: d.failed for d in refusals(made, "rewrite.layer_normalization")}
    assert reasons["a Cast stands in between, and not the same one before"]["to"] == "FLOAT"


def test_other_formulas_are_left_alone() -> None:
    for body in (
        CENTRED + "r = Sqrt(e) d = Div(x, r) y = Mul(d, scale)",
        CENTRED + "r = Log(e) d = Div(c, r) y = Mul(d, scale)",
        CENTRED + "r = Sqrt(e) d = Mul(c, r) y = Mul(d, scale)",
    ):
        made = rewritten(model(body), X)
        assert "LayerNormalization" not in kinds(made)
        assert not refusals(made, "rewrite.layer_normalization")


def test_what_is_scaled_otherwise_is_normalised_by_ones() -> None:
    text = f"""g (float[n, 5, 12] x, float[n, 1, 12] gate) => (float[n, 5, 12] y) {{
        {CENTRED} r = Sqrt(e) d = Div(c, r) y = Mul(d, gate) }}"""
    weights = {name: PARAMETERS[name] for name in ("last", "two", "eps")}
    made = rewritten(model_of(text, weights), {**X, "gate": normal(2, 1, 12)})
    assert kinds(made) == ["LayerNormalization", "Mul"]


SUM = {"x": normal(2, 5, 12) * 3 + 1, "z": normal(2, 5, 12, seed=3)}


def skipping(body: str, opset: int, more: str = "") -> ModelProto:
    used = {name: value for name, value in PARAMETERS.items() if name in body}
    outputs = "float[n, 5, 12] y" + (f", float[n, 5, 12] {more}" if more else "")
    return model_of(f"g (float[n, 5, 12] x, float[n, 5, 12] z) => ({outputs}) {{ {body} }}", used, opset)


WRITTEN_OUT = """m = ReduceMean<axes = [-1]>(a) c = Sub(a, m) s = Pow(c, two) v = ReduceMean<axes = [-1]>(s)
                 e = Add(v, eps) r = Sqrt(e) d = Div(c, r) g = Mul(d, scale) y = Add(g, bias)"""


def insisted(written: ModelProto) -> Optimized:
    """Rewritten for ONNX Runtime with the sum in the normalisation, whether that is faster or not."""
    made = for_onnxruntime(written, SUM)
    (decision,) = (d for d in made.ledger if d.rule == "rewrite.skip_normalization")
    if decision.fired:
        return made
    assert decision.reason == "ONNX Runtime is faster on CPUs with a node for each"
    return for_onnxruntime(written, SUM, pins={decision.id: "rewritten"})


@pytest.mark.parametrize(
    ("body", "opset", "left", "inputs"),
    [
        ("a = Add(x, z) y = LayerNormalization(a, scale, bias)", 17, ["SkipLayerNormalization"], 4),
        ("a = Add(x, z) y = LayerNormalization(a, scale)", 17, ["SkipLayerNormalization"], 3),
        ("k = Add(x, bias) a = Add(k, z) y = LayerNormalization(a, scale)", 17, ["SkipLayerNormalization"], 5),
        ("a = Add(x, z) " + WRITTEN_OUT, 13, ["SkipLayerNormalization"], 4),
        ("a = Add(x, z) y = RMSNormalization(a, scale)", 23, ["SkipSimplifiedLayerNormalization"], 3),
        ("a = Add(x, z) s = Pow(a, two) v = ReduceMean(s, last) e = Add(v, eps) r = Sqrt(e) d = Div(a, r) "
         "y = Mul(d, scale)", 18, ["SkipSimplifiedLayerNormalization"], 3),
    ],
)  # fmt: skip
def test_a_sum_is_normalised_by_one_node(body: str, opset: int, left: list[str], inputs: int) -> None:
    made = insisted(skipping(body, opset))
    assert kinds(made) == left
    assert len(made.model.graph[0].inputs) == inputs
    assert left[0] not in kinds(rewritten(skipping(body, opset)))


def test_a_sum_that_is_read_elsewhere_comes_from_the_same_node() -> None:
    body = "a = Add(x, z) b = LayerNormalization(a, scale, bias) y = Add(a, b)"
    made = insisted(skipping(body, 17))
    assert kinds(made) == ["SkipLayerNormalization", "Add"]
    made = insisted(skipping("a = Add(x, z) y = LayerNormalization(a, scale)", 17, "a"))
    assert kinds(made) == ["SkipLayerNormalization"]
    assert [value.name for value in made.model.graph[0].outputs] == ["y", "", "", "a"]


def test_sums_that_onnxruntime_does_not_normalise() -> None:
    for body, reason in (
        ("a = Add(x, z) k = ReduceMax(a, last) f = Mul(k, scale) y = LayerNormalization<axis = -2>(a, plane)",
         "it normalises more than the last axis"),
    ):  # fmt: skip
        used = {name: value for name, value in PARAMETERS.items() if name in body}
        text = f"g (float[n, 5, 12] x, float[n, 5, 12] z) => (float[n, 5, 12] y) {{ {body} }}"
        made = for_onnxruntime(model_of(text, {**used, "plane": normal(5, 12)}, 18), SUM)
        assert refusals(made, "rewrite.skip_normalization")[0].reason == reason
    text = """g (float[n, 5, 12] x, float[n, 5, 12] z, float[12] fed) => (float[n, 5, 12] y) {
        a = Add(x, z) y = LayerNormalization(a, fed) }"""
    made = for_onnxruntime(model_of(text, None, 17), {**SUM, "fed": normal(12)})
    assert refusals(made, "rewrite.skip_normalization")[0].failed == {"scale": "fed"}


@pytest.mark.parametrize("rows", [1, 3])
def test_a_variance_that_torch_takes(rows: int) -> None:
    """x.var has a mean of its own, over an axis that is counted from the first; the other is counted from the last."""
    weights = {"last": np.array([-1]), "second": np.array([2]), "eps": np.array(1e-5, np.float32)}
    text = """g (float[n, 5, 12] x, float[12] scale, float[12] bias) => (float[n, 5, 12] y) {
        m = ReduceMean(x, last) n = ReduceMean(x, second) o = Sub(x, n) s = Mul(o, o)
        u = ReduceMean<keepdims = 0>(s, second) v = Unsqueeze(u, last) c = Sub(x, m) e = Add(v, eps)
        r = Sqrt(e) d = Div(c, r) g = Mul(d, scale) y = Add(g, bias) }"""
    feeds = {"x": normal(rows, 5, 12), "scale": normal(12), "bias": normal(12, seed=1)}
    assert kinds(rewritten(model_of(text, weights), feeds)) == ["LayerNormalization"]


@pytest.mark.parametrize("count", [12.0, 11.0])
def test_a_sum_by_how_many_there_are_is_a_mean(count: float) -> None:
    weights = {"last": np.array([-1]), "count": np.array(count, np.float32), "eps": np.array(1e-5, np.float32)}
    text = """g (float[n, 5, 12] x, float[12] scale, float[12] bias) => (float[n, 5, 12] y) {
        t = ReduceSum(x, last) m = Div(t, count) c = Sub(x, m) s = Mul(c, c) q = ReduceSum(s, last) v = Div(q, count)
        e = Add(v, eps) r = Sqrt(e) d = Div(c, r) g = Mul(d, scale) y = Add(g, bias) }"""
    feeds = {"x": normal(2, 5, 12), "scale": normal(12), "bias": normal(12, seed=1)}
    made = rewritten(model_of(text, weights), feeds)
    assert ("LayerNormalization" in kinds(made)) is (count == 12)

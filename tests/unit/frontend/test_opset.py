from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, parser
from onnx.reference import ReferenceEvaluator

from opweld.errors import UnsupportedError
from opweld.frontend import isolated
from opweld.frontend.onnx import load
from tests.unit.ops.one_node import check, integers, make_model, normal, programs_of, run


def subsets(count: int) -> list[tuple[int, ...]]:
    """The choices of some of so many inputs, of which at least one is fed."""
    return [chosen for size in range(1, count) for chosen in combinations(range(count), size)]


def compare(model: onnx.ModelProto, feeds: dict[str, Any], *names: str) -> None:
    expected: Any = ReferenceEvaluator(model).run(None, feeds)
    found = run(programs_of(model), feeds)
    for name, wanted in zip(names, expected, strict=True):
        np.testing.assert_allclose(found[name], wanted, rtol=1e-5, atol=1e-6)


def attention_model(op_type: str, domain: str, nodes: list[Any], inputs: dict[str, Any]) -> Any:
    fed = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in inputs.items()
    ]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, op_type, fed, [output])
    imports = [helper.make_opsetid("", 24), *(helper.make_opsetid(domain, 1) for _ in [0] if domain)]
    return helper.make_model(graph, opset_imports=imports, ir_version=11)


def queries() -> dict[str, Any]:
    return {name: normal(2, 3, 4, 8, seed=seed) for seed, name in enumerate("qkv")}


def test_a_definition_with_absent_inputs_between_given_ones() -> None:
    feeds = queries() | {"lengths": np.array([4, 2], np.int64)}
    node = helper.make_node("Attention", ["q", "k", "v", "", "", "", "lengths"], ["y"], is_causal=1)
    compare(attention_model("Attention", "", [node], feeds), feeds, "y")


STORED = {
    "RotaryEmbedding": (normal(2, 3, 4, 8), normal(50, 4), normal(50, 4), integers(2, 4, low=0, high=50)),
    "Attention": (normal(2, 3, 4, 8), normal(2, 3, 5, 8), normal(2, 3, 5, 8), normal(4, 5)),
    "CenterCropPad": (normal(5, 8), np.array([3, 10])),
    "SoftmaxCrossEntropyLoss": (normal(5, 8), integers(5, low=0, high=8), normal(8)),
}


@pytest.mark.parametrize(
    ("op_type", "stored"),
    [(name, stored) for name, inputs in STORED.items() for stored in subsets(len(inputs))],
)
def test_a_definition_of_stored_inputs(op_type: str, stored: tuple[int, ...]) -> None:
    """onnx's inliner raises where it has to convert a definition and an input is stored."""
    check(op_type, STORED[op_type], constant=stored, opset=24, tolerance=1e-5)


def test_a_definition_in_a_body_of_what_is_around_it() -> None:
    model = parser.parse_model("""<ir_version: 10, opset_import: ["": 24]>
        g (float[2, 3, 4, 8] x, float[2, 4, 4] angles, bool turned) => (float[2, 3, 4, 8] y) {
            cosines = Cos(angles) sines = Sin(angles)
            y = If(turned) <then_branch = t () => (a) { a = RotaryEmbedding(x, cosines, sines) },
                            else_branch = e () => (b) { b = Neg(x) }>
        }""")
    feeds = {"x": normal(2, 3, 4, 8), "angles": normal(2, 4, 4), "turned": np.array(True)}
    compare(model, feeds, "y")


BEHIND = """<ir_version: 10, opset_import: ["": 24, "com.microsoft": 1]>
    g (float[2, 3] x) => (float[4, 2] y) <int64[2] shape = {4, 2}> {
        a = com.microsoft.QuickGelu(x) y = CenterCropPad(a, shape)
    }"""


def test_a_definition_of_what_another_domain_gives() -> None:
    """A file says of which type that is; onnx knows none of its operators."""
    model = parser.parse_model(BEHIND)
    with pytest.raises(UnsupportedError, match=r"CenterCropPad.*depends on the type of 'a'"):
        load(model)
    model.graph.value_info.append(helper.make_tensor_value_info("a", TensorProto.FLOAT, [2, 3]))
    x = normal(2, 3)
    wanted = np.pad((x / (1 + np.exp(-1.702 * x)))[:, :2], ((1, 1), (0, 0)))
    np.testing.assert_allclose(run(programs_of(model), {"x": x})["y"], wanted, rtol=1e-5)


def test_what_onnx_says_of_a_definition_that_cannot_be_inlined(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(model: onnx.ModelProto, convert: bool) -> onnx.ModelProto:
        raise isolated.LibraryError("no way")

    monkeypatch.setattr(isolated, "inline_local_functions", refuse)
    with pytest.raises(UnsupportedError, match=r"CenterCropPad.*no way"):
        load(make_model("CenterCropPad", STORED["CenterCropPad"], opset=24))


def test_a_definition_of_the_preview_domain() -> None:
    """Its attributes are graphs, which become part of it."""
    score = helper.make_tensor_value_info("score", TensorProto.FLOAT, None)
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT, None)
    body = helper.make_graph([helper.make_node("Tanh", ["score"], ["out"])], "capped", [score], [out])
    domain = "ai.onnx.preview"
    node = helper.make_node("FlexAttention", ["q", "k", "v"], ["y"], domain=domain, score_mod=body)
    compare(attention_model("FlexAttention", domain, [node], queries()), queries(), "y")


def test_functions_of_values_of_unknown_types() -> None:
    """onnx's inliner must know all types where it converts; nothing is to be converted from 20 to 21 here."""
    model = parser.parse_model("""<ir_version: 10, opset_import: ["": 21, "com.microsoft": 1, "own": 1]>
        g (float[N] x) => (float[N] y) { a = com.microsoft.Gelu (x) y = own.f (a) }
        <domain: "own", opset_import: ["": 20]>
        f (a) => (b) { c = Relu (a) b = Neg (c) }""")
    loaded = load(model)
    assert [node.op_type for node in loaded.graph] == ["Gelu", "Relu", "Neg"]


def test_attributes_that_a_call_leaves_to_its_function() -> None:
    model = parser.parse_model("""<ir_version: 10, opset_import: ["": 21, "own": 1]>
        g (float[2] x) => (float[2] y) { a = own.outer (x) y = own.inner <by = 5.0> (a) }
        <domain: "own", opset_import: ["": 21]>
        inner <by: float = 3.0> (a) => (b) { c = Constant <value_float: float = @by> () b = Add (a, c) }
        <domain: "own", opset_import: ["": 21, "own": 1]>
        outer (a) => (b) { c = own.inner (a) b = Mul (c, c) }""")
    x = normal(2)
    np.testing.assert_allclose(run(programs_of(model), {"x": x})["y"], (x + 3) ** 2 + 5, rtol=1e-6)


@pytest.mark.parametrize("corners", ["", "<align_corners = 1>"])
def test_attributes_that_a_node_leaves_to_a_definition(corners: str) -> None:
    model = parser.parse_model(f"""<ir_version: 10, opset_import: ["": 20]>
        g (float[1, 2, 3] theta) => (float[1, h, w, 2] y) {{
            sizes = Constant <value_ints = [1, 1, 4, 5]> () y = AffineGrid {corners} (theta, sizes)
        }}""")
    compare(model, {"theta": normal(1, 2, 3)}, "y")


def test_constants_that_older_functions_read() -> None:
    """onnx's inliner writes them again before each body that it converts."""
    model = parser.parse_model("""<ir_version: 10, opset_import: ["": 28, "own": 1]>
        g (float[2] x) => (float[2] y) {
            s = Constant <value_floats = [1.0, 2.0]> ()
            a = own.f (x, s)
            b = Relu (a)
            y = own.f (b, s)
        }
        <domain: "own", opset_import: ["": 20]>
        f (a, k) => (b) { c = Mul (a, k) b = Cast <to = 1> (c) }""")
    x = normal(2)
    np.testing.assert_allclose(run(programs_of(model), {"x": x})["y"], np.maximum(x, 0) * [1, 4], rtol=1e-6)


@pytest.mark.parametrize("operator", ["Max", "Min"])
def test_the_largest_of_one_known_number(operator: str) -> None:
    model = parser.parse_model(f"""<ir_version: 10, opset_import: ["": 21]>
        g (float[3] x) => (float[3] y) <float[1] c = {{2.5}}> {{ a = {operator}(c) y = Mul(x, a) }}""")
    compare(model, {"x": normal(3)}, "y")

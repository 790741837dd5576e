from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, parser
from onnx.reference import ReferenceEvaluator

from opweld.frontend.onnx import load
from tests.unit.ops.one_node import normal, programs_of, run


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

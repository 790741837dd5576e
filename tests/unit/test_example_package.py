"""examples/package, as an installer leaves it, and the code of the guide that explains it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import opweld
from opweld import ir
from opweld.frontend.coverage import coverage
from opweld.operators import DType, Fact, Inference, infers, required
from opweld.ops import registry
from tests.unit.packages import installed, registrations

REPOSITORY = Path(__file__).parents[2]
PACKAGE = REPOSITORY / "examples" / "package"
GUIDE = REPOSITORY / "docs" / "guides" / "your-own-rules-and-operators.md"

MODEL = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17, "com.acme" : 1]>
    g (float[batch, 3, t] x, float[3] alpha, float[1] w) => (float[batch, 3, t] y, float[batch, 3, t] z) {
        m = Neg(x) a = Max(m, x) b = com.acme.Snake(a, alpha) y = Tanh(b) z = Max(m, x, w) }""")

MEDIAN = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17, "com.acme" : 1]>
    g (float[batch, c, t] a) => (float[batch, c] m) { m = com.acme.Median(a) }""")


@pytest.fixture(autouse=True)
def own_operators_only() -> Iterator[None]:
    with registrations():
        yield


@pytest.fixture
def package(tmp_path: Path) -> Iterator[None]:
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    with installed(tmp_path, project["entry-points"], PACKAGE):
        yield


def feeds() -> dict[str, Any]:
    random = np.random.default_rng(0)
    return {
        "x": random.standard_normal((2, 3, 17)).astype(np.float32),
        "alpha": np.array([0.5, 1, 3], np.float32),
        "w": np.array([0.25], np.float32),
    }


def test_its_rule_rewrites_graphs(package: None) -> None:
    made = opweld.optimize(MODEL)
    assert sorted(node.op_type for node in made.graph.node) == ["Abs", "Max", "Neg", "Snake", "Tanh"]
    assert sorted(node.op_type for node in opweld.optimize(MODEL, disable=["acme"]).graph.node) == sorted(
        node.op_type for node in MODEL.graph.node
    )


def test_its_operator_is_compiled_and_fused(package: None) -> None:
    compiled, fed = opweld.compile(MODEL), feeds()
    assert compiled.session.manifest.kernels == 2, "one for each output"
    a, alpha = np.abs(fed["x"].astype(np.float64)), fed["alpha"][:, None]
    outputs = compiled.run(fed)
    np.testing.assert_allclose(outputs["y"], np.tanh(a + np.sin(alpha * a) ** 2 / alpha), rtol=2e-6)
    np.testing.assert_array_equal(outputs["z"], np.maximum(np.abs(fed["x"]), fed["w"]))
    assert compiled.verify(fed).passed


def test_its_kernel_is_called_between_fused_ones(package: None) -> None:
    """Rows of an odd and of an even number of elements, on one thread and on two."""
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17, "com.acme" : 1]>
        g (float[rows, n] x, float[rows] b) => (float[rows] y) { a = Abs(x) m = com.acme.Median(a)
            c = Neg(m) y = Add(c, b) }""")
    random = np.random.default_rng(0)
    for threads in (1, 2):
        compiled = opweld.compile(model, threads=threads)
        assert compiled.session.manifest.kernels == 3
        for rows, n in ((1, 1), (3, 2), (40, 501), (7, 1000)):
            x, b = (random.standard_normal(shape).astype(np.float32) for shape in ((rows, n), (rows,)))
            expected = b - np.sort(np.abs(x), axis=1)[:, (n - 1) // 2]
            np.testing.assert_array_equal(compiled.run({"x": x, "b": b})["y"], expected)
            assert compiled.verify({"x": x, "b": b}).passed


def test_what_it_adds_is_listed(package: None) -> None:
    text = opweld.explain(MODEL).all()
    assert "acme.absolute: 1 of 2" in text
    assert "it is the largest of more than two" in text
    registry.load_installed()
    assert ("com.acme", "Snake", "lowered") in {(o.domain, o.name, o.how) for o in coverage().operators}


def test_the_code_of_the_guide_works() -> None:
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    # Kernels in Triton have tests of their own, where Triton is interpreted.
    blocks = [block for block in blocks if "triton" not in block]
    marks = ("class Absolute", "@infers", "@kernel(")
    (rule,), (operator,), (called,) = ([block for block in blocks if mark in block] for mark in marks)
    made: dict[str, Any] = {"__name__": "guide"}
    exec(rule, made)
    exec("import numpy as np\n" + operator, made)
    found = [node.op_type for node in opweld.optimize(MODEL, rules=[made["Absolute"]]).graph.node]
    assert "Abs" in found
    assert opweld.compile(MODEL).verify(feeds()).passed
    exec(called, made)

    @infers("Median", domain="com.acme")
    def infer(scope: Inference, node: ir.Node) -> list[Fact]:
        return [Fact(DType.F32, scope.fact(required(node, 0)).shape[:-1])]

    assert infer
    x = feeds()["x"]
    np.testing.assert_array_equal(opweld.compile(MEDIAN).run({"a": x})["m"], np.median(x, axis=-1))


def test_its_kernel_takes_the_place_of_a_sorted_half_where_that_is_faster(package: None) -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
        g (float[rows, 1001] x, float[rows] b) => (float[rows] y) <int64[1] k = {501}, int64 last = {500}> {
            a = Abs(x) v, i = TopK<axis = -1, largest = 0>(a, k) m = Gather<axis = -1>(v, last) y = Sub(b, m) }""")
    compiled = opweld.compile(model, dim_hints={"rows": 64})
    random = np.random.default_rng(0)
    x, b = (random.standard_normal(shape).astype(np.float32) for shape in ((64, 1001), (64,)))
    np.testing.assert_array_equal(compiled.run({"x": x, "b": b})["y"], b - np.sort(np.abs(x), axis=1)[:, 500])
    assert "acme.median: 1 of 1" in opweld.explain(model, dim_hints={"rows": 64}).all()

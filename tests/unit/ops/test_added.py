"""Operators of other packages: registered as opweld's own are, found through entry points, fused with neighbours."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import opweld
from opweld import extensions, ir
from opweld.errors import ModelError, OperatorError, UnsupportedError
from opweld.operators import Fact, Inference, Lowering, computes, define, infers, lowers, required, unary
from tests.unit.packages import installed, registrations

Array = np.ndarray[Any, Any]

NORM = '''
import numpy as np
from opweld.operators import *

@infers("Norm", domain="com.acme")
def infer(scope, node):
    x, scale = require_float(scope.fact(required(node, 0)), node), scope.fact(required(node, 1))
    dtype = require_same_dtype((x, scale), node)
    scope.same(require_rank(scale, 1, node, 1).shape[0], require_rank(x, 1, node).shape[-1], node, "a scale a column")
    return [Fact(dtype, x.shape)]

@lowers("Norm", domain="com.acme")
def lower(scope, node):
    """x / max(|x|) * scale, along the last axis"""
    x, scale = required(node, 0), required(node, 1)
    rows = rows_along(scope, x, (scope.fact(x).rank - 1,))
    largest = rows.total("max", lambda at: unary("abs", rows.element(at)), "largest")
    part = lambda at: div(rows.element(at), largest.at(rows.row(at)))
    define(scope, node.outputs[0], lambda at: mul(part(at), scope.load(scale, at[-1:])))

@computes("Norm", domain="com.acme")
def compute(x, scale):
    return x / np.abs(x).max(-1, keepdims=True) * scale
'''

TEXT = """g (float[batch, 6] x) => (float[batch, 6] y) {
    a = Relu(x) b = Add(a, one) c = com.acme.Norm(b, scale) d = Sigmoid(c) y = Mul(d, d) }"""

SCALE = np.linspace(0.5, 2, 6, dtype=np.float32)


@pytest.fixture(autouse=True)
def own_operators_only() -> Iterator[None]:
    with registrations():
        yield


def model_of(text: str, weights: Mapping[str, Array] | None = None, opset: int = 21) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}, "com.acme" : 1]> {text}')
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in (weights or {}).items())
    return model


def normed(x: Array) -> Array:
    b = np.maximum(x.astype(np.float64), 0) + 1
    c = b / np.abs(b).max(-1, keepdims=True) * SCALE
    return np.square(1 / (1 + np.exp(-c)))


@pytest.mark.parametrize("opset", [9, 21, 28])
def test_an_installed_operator_is_fused_with_its_neighbours(tmp_path: Path, opset: int) -> None:
    (tmp_path / "acme_norm.py").write_text(NORM)
    model = model_of(TEXT, {"one": np.ones(1, np.float32), "scale": SCALE}, opset)
    with installed(tmp_path, {"opweld.operators": {"norm": "acme_norm"}}):
        compiled = opweld.compile(model)
        assert compiled.session.manifest.kernels == 1
        for batch in (1, 5, 64):
            x = np.random.default_rng(batch).standard_normal((batch, 6)).astype(np.float32)
            np.testing.assert_allclose(compiled.run({"x": x})["y"], normed(x), rtol=2e-6)
        check = compiled.verify()
        assert check.passed
        facts = opweld.optimize(model).graph
        assert [node.op_type for node in facts.node] == ["Relu", "Add", "Norm", "Sigmoid", "Mul"]


def test_it_is_checked_as_opwelds_own(tmp_path: Path) -> None:
    (tmp_path / "acme_norm.py").write_text(NORM)
    with installed(tmp_path, {"opweld.operators": {"norm": "acme_norm"}}):
        for scale, said in ((np.ones(5, np.float32), "a scale a column"), (np.ones(6), "one element type")):
            with pytest.raises(ModelError, match=said):
                opweld.compile(model_of(TEXT, {"one": np.ones(1, np.float32), "scale": scale}))


def test_without_the_package_it_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"com.acme::Norm is not supported.*install a package that has it"):
        opweld.compile(model_of(TEXT, {"one": np.ones(1, np.float32), "scale": SCALE}))


def test_a_broken_package_is_left_out_with_a_warning(tmp_path: Path) -> None:
    (tmp_path / "acme_bad.py").write_text("import nothing_of_this_name")
    plain = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 21]> g (float[n] x) => (float[n] y) { y = Exp(x) }'
    )
    with installed(tmp_path, {"opweld.operators": {"bad": "acme_bad"}}):
        opweld.compile(plain)  # which needs nothing of it
        with (
            pytest.warns(RuntimeWarning, match=r"'bad' of opweld.operators \(acme_bad\) is left out: it does not load"),
            pytest.raises(UnsupportedError, match=r"com.acme::Norm"),
        ):
            opweld.compile(model_of(TEXT, {"one": np.ones(1, np.float32), "scale": SCALE}))


def infer_like(scope: Inference, node: ir.Node) -> list[Fact]:
    fact = scope.fact(required(node, 0))
    return [Fact(fact.dtype, fact.shape)]


ONE = "g (float[n] x) => (float[n] y) { a = com.acme.Wave<steps = 2>(x) y = Neg(a) }"


def test_operators_are_registered_by_decorators_alone() -> None:
    @lowers("Wave", domain="com.acme")
    def lower(scope: Lowering, node: ir.Node) -> None:
        value = required(node, 0)
        define(scope, node.outputs[0], lambda at: unary("sin", scope.load(value, at)))

    assert infers("Wave", domain="com.acme")(infer_like) is infer_like
    before = extensions.digest()
    compiled = opweld.compile(model_of(ONE))
    x = np.linspace(-3, 3, 9, dtype=np.float32)
    np.testing.assert_allclose(compiled.run({"x": x})["y"], -np.sin(x), atol=1e-6)
    assert compiled.session.manifest.kernels == 1
    with pytest.raises(UnsupportedError, match="no float64 reference"):
        compiled.verify({"x": x})

    @computes("Wave", domain="com.acme")
    def compute(x: Array, steps: int) -> Array:
        assert steps == 2 and x.dtype == np.float64
        return np.sin(x)

    assert compiled.verify({"x": x}).passed
    assert before == extensions.digest(), "the text is the same"
    assert lower is not None and compute is not None


def test_what_an_operator_raises_names_the_node() -> None:
    infers("Flat", domain="com.acme")(infer_like)

    @lowers("Flat", domain="com.acme")
    def lower(scope: Lowering, node: ir.Node) -> None:
        raise RuntimeError(f"cannot: {math.pi:.2f}")

    with pytest.raises(
        OperatorError, match=r"node 'Flat' \(Flat\): the operator of .*test_added failed: Run.*: cannot: 3"
    ):
        opweld.compile(model_of(ONE.replace("Wave", "Flat")))
    assert lower is not None


def test_nobody_takes_anothers_operators() -> None:
    with pytest.raises(ValueError, match=r"::Relu is that of opweld.ops.elementwise"):
        infers("Relu", domain="")(infer_like)
    infers("Wave", domain="com.acme")(infer_like)
    infers("Wave", domain="com.acme")(infer_like)  # a cell of a notebook that is run again


def test_what_opweld_has_counts_as_no_package() -> None:
    assert extensions._noted == {}
    infers("Wave", domain="com.acme")(infer_like)
    assert list(extensions._noted) == [__name__.partition(".")[0]]

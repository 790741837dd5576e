"""Folding of constants is a decision: what it takes and saves is in the ledger, and it can be left."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest

import opweld
from opweld.build import artifact
from opweld.ledger import Decision, Ledger
from opweld.options import LevelName
from opweld.verification.reference import float64_outputs
from tests.unit.rewrite.rewritten import Array, model_of, normal

RULE = "simplify.fold"
WEIGHTS: dict[str, Array] = {"w": normal(6, 4), "k": normal(6, seed=1), "b": normal(6)}
TEXT = """g (float[n, 4] x) => (float[n, 6] y) {
    t = Transpose(w) v = Mul(t, k) e = Exp(b) p = MatMul(x, v) y = Add(p, e) }"""


def folded(model: opweld.Model) -> Sequence[Decision]:
    ledger = Ledger.loads((model.path / artifact.LEDGER).read_text(encoding="utf-8"))
    return [decision for decision in ledger if decision.rule == RULE]


@pytest.fixture
def model() -> onnx.ModelProto:
    return model_of(TEXT, WEIGHTS)


@pytest.mark.parametrize("level", ["none", "all"])
def test_what_is_folded_is_decided(model: onnx.ModelProto, level: LevelName) -> None:
    decisions = folded(opweld.compile(model, level=level))
    for decision in decisions:
        before, after = (alternative.bytes for alternative in decision.alternatives)
        assert decision.taken == "now" and isinstance(before, int) and isinstance(after, int)
    assert 24 in [decision.alternatives[1].bytes for decision in decisions], "six exponentials"


@pytest.mark.parametrize("rows", [1, 5])
def test_what_is_not_folded_gives_the_same(model: onnx.ModelProto, rows: int) -> None:
    feeds = {"x": normal(rows, 4)}
    (wanted,) = float64_outputs(model, feeds)
    plain, apart = opweld.compile(model), opweld.compile(model, disable=[RULE])
    assert {decision.taken for decision in folded(plain)} == {"now"}
    assert {decision.taken for decision in folded(apart)} == {"in every run"}
    for made in (plain, apart):
        np.testing.assert_allclose(made.run(feeds)["y"], wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


def test_one_is_pinned(model: onnx.ModelProto) -> None:
    first, *_ = folded(opweld.compile(model))
    (pinned,) = [d for d in folded(opweld.compile(model, pins={first.id: "in every run"})) if d.id == first.id]
    assert pinned.pinned and pinned.taken == "in every run"


def test_what_is_moved_by_stored_indices_is_folded() -> None:
    text = (
        "g (float[n, 4] x) => (float[n, 4] y) { c = GatherElements<axis = 0>(w, i) s = Transpose(c) y = MatMul(x, s) }"
    )
    indices = np.array([[5, 0, 1, 2], [0, 0, 3, 4], [1, 5, 5, 5], [2, 2, 0, 3]])
    made = opweld.compile(model_of(text, {"w": WEIGHTS["w"], "i": indices}))
    x = normal(3, 4)
    right = x @ np.take_along_axis(WEIGHTS["w"], indices, 0).T
    np.testing.assert_allclose(made.run({"x": x})["y"], right, rtol=0, atol=1e-5)


QUANTIZED = """g (float[n, 64] x) => (float[n, 40] y) {
    w = DequantizeLinear<axis = 1>(q, s, z) p = MatMul(x, w) y = Relu(p) }"""


@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("way", ["in every run", "now", "by its readers"])
def test_quantized_weights_are_right_whoever_computes_them(rows: int, way: str) -> None:
    draw = np.random.default_rng(0)
    weights: dict[str, Array] = {
        "q": draw.integers(-127, 128, (64, 40)).astype(np.int8),
        "s": draw.uniform(0.01, 0.02, 40).astype(np.float32),
        "z": draw.integers(-9, 9, 40).astype(np.int8),
    }
    model, feeds = model_of(QUANTIZED, weights), {"x": normal(rows, 64)}
    first = folded(opweld.compile(model))
    (decision,) = [found for found in first if len(found.alternatives) == 3]
    assert decision.taken == "by its readers"
    made = opweld.compile(model, pins={decision.id: way})
    (wanted,) = float64_outputs(model, feeds)
    np.testing.assert_allclose(made.run(feeds)["y"], wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


RECURRENT = """g (float[7, 1, 24] x) => (float[1, 1, 32] y) {
    r = DequantizeLinear<axis = 1>(q, s, z) _, y = LSTM<hidden_size = 32>(x, w, r) }"""


@pytest.mark.parametrize("stored", ["in registers", "in memory"])
def test_quantized_weights_of_a_recurrence_are_computed_by_its_steps(stored: str) -> None:
    """Or once, when compiling: each step would multiply by them in float32."""
    draw = np.random.default_rng(0)
    weights: dict[str, Array] = {
        "q": draw.integers(-127, 128, (1, 128, 32)).astype(np.int8),
        "s": draw.uniform(0.001, 0.002, 128).astype(np.float32),
        "z": draw.integers(-9, 9, 128).astype(np.int8),
        "w": normal(1, 128, 24),
    }
    model, feeds = model_of(RECURRENT, weights), {"x": normal(7, 1, 24)}
    first = opweld.compile(model)
    (decision,) = [found for found in folded(first) if len(found.alternatives) == 3]
    assert decision.taken == "by its readers"
    (prologue,) = first.explain().of_rule("fuse.prologue")
    made = opweld.compile(model, pins={prologue.id: stored})
    (wanted,) = float64_outputs(model, feeds)
    np.testing.assert_allclose(made.run(feeds)["y"], wanted, rtol=0, atol=1e-5)

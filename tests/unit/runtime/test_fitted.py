"""Sizes that no variant of a compiled model takes: compiled for them alone, as onnxruntime answers them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import parser

import opweld
from opweld.cached import compile_model
from opweld.errors import AssumptionError, OptionError
from opweld.interface import TensorInfo
from opweld.ledger import Ledger
from opweld.options import Options
from opweld.runtime.advice import advice
from opweld.runtime.fitted import FittedSessions, symbolic_sizes
from tests.patience import PATIENCE_S
from tests.unit.ops.one_node import normal

HEADER = '<ir_version: 8, opset_import: ["": 17]>'

BROADCAST = "g (float[a, b] x, float[c, d] y) => (float[e, f] z) { z = Add(x, y) }"

MODELS: dict[str, tuple[str, list[list[tuple[int, ...]]]]] = {
    "an axis of one element is broadcast": (BROADCAST, [[(2, 3), (2, 3)], [(1, 3), (2, 3)], [(2, 1), (1, 3)]]),
    "products of batches": (
        "g (float[a, 3, 4] x, float[b, 4, 5] y) => (float[c, 3, 5] z) { z = MatMul(x, y) }",
        [[(2, 3, 4), (2, 4, 5)], [(1, 3, 4), (2, 4, 5)], [(2, 3, 4), (1, 4, 5)]],
    ),
    "the last ones of a short axis": (
        """g (float[n, 2] x) => (float[m, 2] y) <int64[1] s = {-4}, int64[1] e = {1000}> { y = Slice(x, s, e) }""",
        [[(7, 2)], [(2, 2)], [(1, 2)]],
    ),
    "a range that ends where it begins": (
        """g (float[n] x) => (int64[m] y) <int64 zero = {0}, int64 one = {1}, int64 two = {2}, int64 three = {3}>
        { s = Shape(x) n0 = Squeeze(s) a = Sub(n0, three) b = Div(a, two) y = Range(zero, b, one) }""",
        [[(9,)], [(1,)], [(4,)]],
    ),
    "parts that are not equal": (
        "g (float[n] x) => (float[a] p, float[b] q, float[c] r) { p, q, r = Split<num_outputs = 3>(x) }",
        [[(6,)], [(5,)], [(7,)]],
    ),
    "without names": (
        "g (float[?, 2] x, float[?, 2] y) => (float[?, 2] z) { z = Add(x, y) }",
        [[(3, 2), (3, 2)], [(1, 2), (3, 2)]],
    ),
}  # fmt: skip


def model_of(text: str) -> onnx.ModelProto:
    opset = 18 if "num_outputs" in text else 17
    return parser.parse_model(HEADER.replace("17", str(opset)) + text)


@pytest.mark.parametrize("name", MODELS)
def test_sizes_are_answered_as_onnxruntime_does(name: str) -> None:
    text, shapes = MODELS[name]
    model = model_of(text)
    session = opweld.InferenceSession(model.SerializeToString())
    compiled = opweld.compile(model)
    theirs: Any = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for sizes in shapes:
        inputs = zip(model.graph.input, sizes, strict=True)
        feeds = {value.name: normal(*size, seed=i) for i, (value, size) in enumerate(inputs)}
        expected = theirs.run(None, feeds)
        for answer in (session.run(None, feeds), list(compiled.run(feeds).values())):
            for mine, wanted in zip(answer, expected, strict=True):
                np.testing.assert_allclose(mine, wanted, rtol=1e-5, atol=1e-6)


def test_what_a_broadcast_axis_is_compiled_for(caplog: pytest.LogCaptureFixture, cache_without_models: Path) -> None:
    """Once for all other sizes."""
    session = opweld.InferenceSession(model_of(BROADCAST).SerializeToString())
    with caplog.at_level(logging.INFO, "opweld"):
        for rows in (2, 3, 5):
            session.run(None, {"x": normal(1, 4), "y": normal(rows, 4)})
    assert sum("compiling for" in record.getMessage() for record in caplog.records) == 1
    assert any("compiling for a = 1 alone" in record.getMessage() for record in caplog.records)


def test_sizes_that_no_model_takes_are_still_refused(tmp_path: Path) -> None:
    model = opweld.compile(model_of(BROADCAST))
    feeds = {"x": normal(2, 3), "y": normal(5, 3)}
    with pytest.raises(
        AssumptionError, match=r"^sizes that would fit: 'a' 5 \(not 2\); or 'c' 2 .*for these sizes alone: .*2 and 5"
    ):
        model.run(feeds)
    saved = opweld.load(model.save(tmp_path / "m.opweld"))
    with pytest.raises(AssumptionError, match=r"^sizes that would fit: 'a' 5 \(not 1\); or 'c' 1 "):
        saved.run({"x": normal(1, 3), "y": normal(5, 3)})


def test_advice_is_in_the_words_of_the_model() -> None:
    inputs = [TensorInfo("x", "float32", (1, "?", "width")), TensorInfo("y", "float32", ("width", -1))]

    def fits(shapes: Sequence[tuple[int, ...]]) -> bool:
        (_, height, width), (same, depth) = shapes
        assert width == same
        return 33 <= height <= 80 and width % 32 == 0 and depth >= 5

    assert advice(inputs, [(1, 32, 64), (64, 7)], fits) == "sizes that would fit: dim 1 of 'x' 33 to 80 (not 32)"
    assert advice(inputs, [(1, 40, 65), (65, 7)], fits) == (
        "sizes that would fit: 'width' 32, 64, 96, 128, 160, 192, 224, 256, ... (not 65)"
    )
    assert advice(inputs, [(1, 40, 64), (64, 3)], fits) == "sizes that would fit: dim 1 of 'y' 5 or more (not 3)"
    assert advice(inputs, [(1, 32, 65), (65, 3)], fits) == ""


def test_lengths_of_small_inputs_are_taken_from_what_is_fed() -> None:
    text = "g (float[2, 6] x, int64[K] shape) => (float[] y) { y = Reshape(x, shape) }"
    session = opweld.InferenceSession(model_of(text).SerializeToString())
    x = normal(2, 6)
    for shape in ((3, 4), (12,), (2, 2, 3)):
        np.testing.assert_array_equal(session.run(None, {"x": x, "shape": np.array(shape)})[0], x.reshape(shape))


def test_dims_of_one_name_that_are_fed_two_sizes_are_nobodys() -> None:
    inputs = opweld.compile(model_of("g (float[n, m] x, float[n] y) => (float[n, m] z) { z = Neg(x) }")).inputs
    feeds = {"x": normal(2, 3), "y": normal(4)}
    assert symbolic_sizes(inputs, feeds) == {"m": 3}


ROWS = "g (float[n, 16] x) => (float[n, 16] y) <float[16, 16] w> { h = MatMul(x, w) r = Relu(h) y = Softmax(r) }"


def rows() -> bytes:
    model = model_of(ROWS.replace(" <float[16, 16] w>", ""))
    model.graph.initializer.append(onnx.numpy_helper.from_array(normal(16, 16), "w"))
    return model.SerializeToString()


def first_output(model: opweld.InferenceSession | opweld.Model, x: Any) -> Any:
    if isinstance(model, opweld.InferenceSession):
        return model.run(None, {"x": x})[0]
    return next(iter(model.run({"x": x}).values()))


def about_single_decisions(model: bytes) -> dict[str, dict[str, Any]]:
    """Options that name decisions which a compilation for one size does not meet."""
    path = opweld.compile(model).path
    decisions = list(Ledger.loads((path / "ledger.json").read_text()))
    alone = {
        decision.id
        for decision in Ledger.loads((opweld.compile(model, dims={"n": 0}).path / "ledger.json").read_text())
    }
    missing = next(d for d in decisions if d.id not in alone and len(d.alternatives) > 1 and d.fired)
    return {
        "disable": {"disable": [missing.id]},
        "pins": {"pins": {missing.id: missing.taken}},
        "schedules": {"schedules": path / "schedules.txt"},
    }


@pytest.mark.parametrize("option", ["disable", "pins", "schedules"])
def test_what_options_say_of_single_decisions_does_not_stop_other_sizes(
    option: str, cache_without_models: Path
) -> None:
    model = rows()
    options = about_single_decisions(model)[option]
    for session in (opweld.InferenceSession(model, **options), opweld.compile(model, **options)):
        for n in (3, 0):
            assert first_output(session, normal(n, 16)).shape == (n, 16)
    with pytest.raises(OptionError):  # who compiles for the size alone is told
        opweld.compile(model, dims={"n": 0}, **options)


def test_a_run_does_not_tune(cache_without_models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = rows()
    opened = [opweld.InferenceSession(model, tune="quick"), opweld.compile(model, tune="quick")]

    def refuse(*_: object) -> None:
        raise AssertionError("measured within a run")

    monkeypatch.setattr("opweld.tune.build.tune", refuse)
    for session in opened:
        assert first_output(session, normal(0, 16)).shape == (0, 16)


def test_a_size_that_is_compiled_does_not_stop_others() -> None:
    """One is answered while another one is being compiled."""
    model, compiling, answered = rows(), threading.Event(), threading.Event()
    compiled = opweld.compile(model)

    def compile(dims: Mapping[str, int]) -> Path:
        if dims["n"] == 0:
            compiling.set()
            assert answered.wait(PATIENCE_S)
        return compile_model(model, Options().fitted(dims))

    fitted = FittedSessions(compiled.session, compile)

    def answer(n: int) -> tuple[int, ...]:
        feeds = {"x": normal(n, 16)}
        return fitted.answer(feeds, AssumptionError("no"), lambda session: session.run(feeds)[0].shape)

    with ThreadPoolExecutor(1) as pool:
        slow = pool.submit(answer, 0)
        assert compiling.wait(PATIENCE_S)
        assert answer(1) == (1, 16)
        answered.set()
        assert slow.result() == (0, 16)

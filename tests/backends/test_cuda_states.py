"""States of the CUDA backend in Triton's interpreter: written in place, and what compiled C keeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import opweld
from opweld.errors import AssumptionError, InputError, RunError, StateError, UnsupportedError
from opweld.runtime.cuda.state import CudaState
from tests.backends.test_cuda import parsed, steps_of
from tests.unit.runtime.kept_models import MODELS, Kept, cache, counter, failing_counter
from tests.unit.runtime.test_state import fed

Array = np.ndarray[Any, Any]


def compiled(kept: Kept) -> opweld.Model:
    return opweld.compile(kept.model, states=kept.states, target="sm_90")


@pytest.mark.parametrize("name", MODELS)
def test_runs_find_what_those_before_them_kept(name: str, tmp_path: Path) -> None:
    kept, shape = MODELS[name][0](), MODELS[name][1]
    model = opweld.load(compiled(kept).save(tmp_path / "m.opweld"))
    native = opweld.compile(kept.model, states=kept.states)
    assert [info.name for info in (*model.inputs, *model.outputs)] == ["x", "y"]
    capacity = 20 if name == "cache" else None
    state, other = model.new_state(capacity), native.new_state(capacity)
    assert isinstance(state, CudaState)
    rows: list[Array] = []
    for number in range(7):
        rows.append(fed(shape, number))
        (y,) = model.run({"x": rows[-1]}, state).values()
        (expected,) = native.run({"x": rows[-1]}, other).values()
        np.testing.assert_allclose(y, kept.answer(rows), rtol=1e-5)
        np.testing.assert_allclose(y, expected, rtol=1e-5)
    assert state.lengths == other.lengths
    theirs = other.arrays()
    for value, array in state.arrays().items():
        assert array.dtype == theirs[value].dtype
        np.testing.assert_allclose(array, theirs[value], rtol=1e-5)


def test_what_grows_is_appended_where_it_lies() -> None:
    model = compiled(cache())
    assert not any(step["kind"] == "copy" for step in steps_of(model))
    variants = json.loads((model.path / "cuda.json").read_text())["variants"]
    buffers = [buffer for variant in variants.values() for buffer in variant["buffers"]]
    assert [buffer["name"] for buffer in buffers if buffer["kind"] == "state"] == ["keys"]
    state = model.new_state(capacity=5)
    model.run({"x": fed((2, 3), 0)}, state)
    memory, before = state.memory("keys"), state.memory("keys").copy()
    before[:, 2:] = 7
    memory[...] = before
    model.run({"x": fed((1, 3), 1)}, state)
    np.testing.assert_array_equal(state.memory("keys")[:, 3:], 7)
    np.testing.assert_array_equal(state.memory("keys")[:, :2], before[:, :2])


SCATTERED = """g (float[4, 3] s, int64[k, 1] at, float[k, 3] x) => (float[3] y, float[4, 3] after) {{
    after = ScatterND <reduction = "{0}"> (s, at, x) axes = Constant <value = int64[1] {{0}}> ()
    y = ReduceSum <keepdims = 0> (after, axes) }}"""


@pytest.mark.parametrize("reduction", ["none", "add"])
def test_scattered_writes_change_a_state_where_it_lies(reduction: str) -> None:
    model = opweld.compile(parsed(SCATTERED.format(reduction)), states={"s": "after"}, target="sm_90")
    kinds = [step["kind"] for step in steps_of(model)]
    assert "copy" not in kinds and ("host" in kinds) == (reduction == "add")
    state, right = model.new_state(), np.zeros((4, 3), np.float32)
    for at in ([1], [3, 0], [1, 2]):
        x = fed((len(at), 3), at[0])
        (y,) = model.run({"at": np.array(at).reshape(-1, 1), "x": x}, state).values()
        right[at] = x if reduction == "none" else right[at] + x
        np.testing.assert_allclose(y, right.sum(0), rtol=1e-5)
        np.testing.assert_allclose(state["s"], right, rtol=1e-6)
    with pytest.raises(RunError, match="ScatterND"):
        model.run({"at": np.array([[4]]), "x": fed((1, 3), 0)}, state)


def test_scattered_writes_of_many_rows_into_a_value_that_stays() -> None:
    text = "g (float[40, 300] x, int64[k, 1] at, float[k, 300] u) => (float[40, 300] y) { y = ScatterND (x, at, u) }"
    model = opweld.compile(parsed(text), target="sm_90")
    assert [step["kind"] for step in steps_of(model)][-2:] == ["copy", "kernel"]
    x, at = fed((40, 300), 0), np.array([3, 39, 0])
    found = model.run({"x": x, "at": at.reshape(-1, 1), "u": fed((3, 300), 1)})["y"]
    right = x.copy()
    right[at] = fed((3, 300), 1)
    np.testing.assert_array_equal(found, right)


def test_states_are_independent_and_are_saved_loaded_and_reset() -> None:
    kept, rows = cache(), [fed((2, 3), number) for number in range(3)]
    model = compiled(kept)
    first, second = model.new_state(capacity=8), model.new_state(capacity=20)
    for row in rows[:2]:
        model.run({"x": row}, first)
    second.load(first.arrays())
    larger, expected = first.copy(capacity=30), kept.answer(rows)
    for state in (first, second, larger):
        np.testing.assert_allclose(model.run({"x": rows[2]}, state)["y"], expected, rtol=1e-5)
        assert state["keys"].shape == (2, 6, 3)
    first.reset()
    np.testing.assert_allclose(model.run({"x": rows[0]}, first)["y"], kept.answer(rows[:1]), rtol=1e-5)
    with pytest.raises(InputError):
        second.load({"keys": np.zeros((2, 21, 3), np.float32)})
    model.run({"x": fed((4, 3), 0)}, first)
    with pytest.raises(AssumptionError, match="in use"):
        model.run({"x": fed((4, 3), 0)}, first)
    assert first.lengths == {"keys": 6}


def test_a_run_that_fails_leaves_what_it_replaces_lost() -> None:
    model = opweld.compile(failing_counter(), states={"count": "next"}, target="sm_90")
    state = model.new_state()
    x = np.ones(3, np.float32)
    with pytest.raises(RunError):
        model.run({"x": x, "index": np.array([3])}, state)
    with pytest.raises(StateError, match="reset"):
        model.run({"x": x, "index": np.array([0])}, state)
    state.load({"count": np.array(4, np.float32)})
    np.testing.assert_array_equal(model.run({"x": x, "index": np.array([0])}, state)["y"], [5])


def test_a_state_is_used_by_one_run_at_a_time_and_not_by_tensors_of_the_device() -> None:
    model = compiled(counter())
    state = model.new_state()
    assert isinstance(state, CudaState)
    with state.run(), pytest.raises(StateError, match="in use"):
        model.run({"x": np.ones(2, np.float32)}, state)
    opened: Any = model.session._opened
    with pytest.raises(UnsupportedError, match="keeps states"):
        opened.run_on_device([], lambda shape, dtype: None, 0)


def test_what_is_written_is_computed_on_the_way_unless_others_read_it() -> None:
    text = """g (float[6, 8] s, int64[k, 1] at, float[k, 8] x, float[8] b) => (float[k, 8] y, float[6, 8] after) {{
        u = Add (x, b) v = Tanh (u) y = {0} after = ScatterND (s, at, v) }}"""
    x, at, b = fed((2, 8), 0), np.array([[5], [2]]), fed((8,), 1)
    for other, count in (("Neg (x)", 3), ("Neg (v)", 4)):
        model = opweld.compile(parsed(text.format(other)), states={"s": "after"}, target="sm_90")
        steps = steps_of(model)
        assert len(steps) == count and {step["kind"] for step in steps} == {"kernel"}
        state = model.new_state()
        (y,) = model.run({"x": x, "at": at, "b": b}, state).values()
        right = np.zeros((6, 8), np.float32)
        right[at[:, 0]] = np.tanh(x + b)
        np.testing.assert_allclose(state["s"], right, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(y, -np.tanh(x + b) if "v" in other else -x, rtol=1e-5, atol=1e-6)


def test_what_is_computed_of_a_state_is_computed_before_it_is_overwritten() -> None:
    text = """g (float[2, 8] s, float[2, 8] t, int64[2, 1] at, float[2, 8] x) => (float[2, 8] a, float[2, 8] b) {
        u = Mul (s, two) a = Add (s, x) b = ScatterND (t, at, u) }"""
    model = parsed(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(2, np.float32), "two"))
    compiled = opweld.compile(model, states={"s": "a", "t": "b"}, target="sm_90")
    state, x = compiled.new_state(), fed((2, 8), 0)
    for number in range(3):
        compiled.run({"at": np.array([[1], [0]]), "x": x}, state)
        np.testing.assert_allclose(state["t"], 2 * number * x[::-1], rtol=1e-6)

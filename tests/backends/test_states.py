"""States through the door for other backends: a counter, a ring buffer and a cache, kept by the tests' interpreter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opweld
from opweld.errors import AssumptionError, InputError, OpweldError, StateError
from opweld.tensor.parse import parse_program
from tests.backends.kept import Kept as KeptState
from tests.unit.runtime.kept_models import MODELS, Kept, cache, counter, failing_counter
from tests.unit.runtime.test_state import PROGRAM, fed

pytestmark = pytest.mark.usefixtures("interpreter")

Array = np.ndarray[Any, Any]


def compiled(kept: Kept) -> opweld.Model:
    return opweld.compile(kept.model, states=kept.states, target="interpret")


@pytest.mark.parametrize("name", MODELS)
def test_runs_find_what_those_before_them_kept(name: str, tmp_path: Path) -> None:
    kept, shape = MODELS[name][0](), MODELS[name][1]
    model = opweld.load(compiled(kept).save(tmp_path / "m.opweld"))
    assert [info.name for info in (*model.inputs, *model.outputs)] == ["x", "y"]
    state = model.new_state(capacity=40 if name == "cache" else None)
    assert isinstance(state, KeptState)
    places = {value: state.memory(value).ctypes.data for value in state.names}
    rows: list[Array] = []
    for number in range(12):
        rows.append(fed(shape, number))
        (y,) = model.run({"x": rows[-1]}, state).values()
        np.testing.assert_allclose(y, kept.answer(rows), rtol=1e-5)
    assert {value: state.memory(value).ctypes.data for value in state.names} == places
    assert state.lengths == ({"keys": 24} if name == "cache" else {})


@pytest.mark.parametrize("name", MODELS)
def test_it_keeps_what_compiled_c_keeps(name: str) -> None:
    kept, shape = MODELS[name][0](), MODELS[name][1]
    models = (compiled(kept), opweld.compile(kept.model, states=kept.states))
    states = [model.new_state(capacity=10 if name == "cache" else None) for model in models]
    for number in range(4):
        for model, state in zip(models, states, strict=True):
            model.run({"x": fed(shape, number)}, state)
    ours, theirs = (state.arrays() for state in states)
    assert ours.keys() == theirs.keys() and states[0].lengths == states[1].lengths
    for value, array in ours.items():
        assert array.dtype == theirs[value].dtype
        np.testing.assert_allclose(array, theirs[value], rtol=1e-5)
    # What one backend kept, the other goes on with.
    states[0].load(theirs)
    (y,), (expected,) = (
        model.run({"x": fed(shape, 4)}, state).values() for model, state in zip(models, states, strict=True)
    )
    np.testing.assert_allclose(y, expected, rtol=1e-5)


def test_states_are_independent_and_are_saved_loaded_and_reset() -> None:
    kept, rows = cache(), [fed((2, 3), number) for number in range(3)]
    model = compiled(kept)
    first, second = model.new_state(capacity=8), model.new_state(capacity=20)
    for row in rows[:2]:
        model.run({"x": row}, first)
    second.load(first.arrays())
    larger, expected = first.copy(capacity=100), kept.answer(rows)
    for state in (first, second, larger):
        np.testing.assert_allclose(model.run({"x": rows[2]}, state)["y"], expected, rtol=1e-5)
        assert state["keys"].shape == (2, 6, 3)
    assert larger.memory("keys").shape == (2, 100, 3)
    first.reset()
    np.testing.assert_allclose(model.run({"x": rows[0]}, first)["y"], kept.answer(rows[:1]), rtol=1e-5)
    with pytest.raises(InputError):
        second.load({"keys": np.zeros((2, 21, 3), np.float32)})
    assert second.lengths == {"keys": 6}


def test_an_answer_is_no_part_of_a_state() -> None:
    """A value that is both an output and what a state becomes stays as it was answered."""
    model = opweld.compile(
        parse_program(PROGRAM.replace("output y = total", "output y = total\noutput again = longer")),
        target="interpret",
    )
    state = model.new_state(capacity=9)
    before = model.run({"x": np.ones(2, np.float32)}, state)["again"]
    state.reset()
    np.testing.assert_array_equal(before, np.ones(2))


def test_a_full_state_says_so_and_stays_as_it_was() -> None:
    kept, rows = cache(), [fed((2, 3), 0), fed((1, 3), 1)]
    model = compiled(kept)
    state = model.new_state(capacity=3)
    model.run({"x": rows[0]}, state)
    with pytest.raises(AssumptionError) as caught:
        model.run({"x": rows[0]}, state)
    assert "keys 2 of 3" in str(caught.value)
    np.testing.assert_allclose(model.run({"x": rows[1]}, state)["y"], kept.answer(rows), rtol=1e-5)


def test_a_run_that_fails_changes_nothing() -> None:
    model = opweld.compile(failing_counter(), states={"count": "next"}, target="interpret")
    state, x = model.new_state(), np.ones(3, np.float32)
    model.run({"x": x, "index": np.array([0])}, state)
    with pytest.raises(OpweldError):
        model.run({"x": x, "index": np.array([5])}, state)
    assert model.run({"x": x, "index": np.array([0])}, state)["y"] == 2


def test_one_run_at_a_time_uses_a_state() -> None:
    model, x = compiled(counter()), np.ones(4, np.float32)
    state = model.new_state()
    assert isinstance(state, KeptState)
    with state.taken():
        for other in (lambda: model.run({"x": x}, state), state.reset, lambda: state.load({})):
            with pytest.raises(StateError) as caught:
                other()
            assert "count" in str(caught.value)
    assert model.run({"x": x}, state)["y"][0] == 1


def test_a_state_of_another_session_is_refused() -> None:
    x = {"x": np.ones(4, np.float32)}
    ours, theirs = compiled(counter()), opweld.compile(counter().model, states=counter().states)
    for model, other in ((ours, theirs), (theirs, ours), (ours, compiled(counter()))):
        with pytest.raises(InputError):
            model.run(x, other.new_state())


def test_more_than_there_is_memory_for_is_refused() -> None:
    with pytest.raises(InputError):
        compiled(cache()).new_state(capacity=1 << 60)

"""States: a counter, a ring buffer and a cache, from Python and from C."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

import opweld
from benchmarks.decode import Decoder, Shape, feeds_of
from opweld.errors import AssumptionError, InputError, OptionError, OpweldError, StateError, UnsupportedError
from opweld.runtime import library
from opweld.runtime.library import SOURCE_FOLDER
from opweld.runtime.native_state import NativeState
from opweld.tensor.parse import parse_program
from tests.patience import PATIENCE_S
from tests.unit.frontend.models import model_of, node
from tests.unit.runtime.files import native
from tests.unit.runtime.kept_models import MODELS, Kept, cache, counter, failing_counter

Array = np.ndarray[Any, Any]


def fed(shape: tuple[int, ...], number: int) -> Array:
    """What the program in C feeds in a run."""
    return (number + np.arange(int(np.prod(shape)), dtype=np.float32) / 4).reshape(shape)


def compiled(kept: Kept, **options: Any) -> opweld.Model:
    return opweld.compile(kept.model, states=kept.states, **options)


@pytest.mark.parametrize("level", ["none", "all"])
@pytest.mark.parametrize("name", MODELS)
def test_runs_find_what_those_before_them_kept(name: str, level: Any) -> None:
    kept, shape = MODELS[name][0](), MODELS[name][1]
    model = compiled(kept, level=level)
    assert [info.name for info in model.inputs] == ["x"]
    assert [info.name for info in model.outputs] == ["y"]
    state = model.new_state(capacity=40 if name == "cache" else None)
    places = {value: state.memory(value).ctypes.data for value in state.names}
    rows: list[Array] = []
    for number in range(12):
        rows.append(fed(shape, number))
        (y,) = model.run({"x": rows[-1]}, state).values()
        np.testing.assert_allclose(y, kept.answer(rows), rtol=1e-5)
    assert {value: state.memory(value).ctypes.data for value in state.names} == places
    assert state.plans == 1


@pytest.mark.parametrize("name", MODELS)
def test_a_bound_run_reads_what_its_inputs_hold_and_leaves_outputs_that_are_in_use(name: str) -> None:
    kept, shape = MODELS[name][0](), MODELS[name][1]
    model, x = compiled(kept), np.empty(shape, np.float32)
    state = model.new_state(capacity=12 if name == "cache" else None)
    run = model.session.bind({"x": x}, state)
    rows: list[Array] = []
    answers: list[Array] = []
    places: list[int] = []
    for number in range(6):
        rows.append(fed(shape, number))
        x[...] = rows[-1]
        (y,) = run()
        places.append(y.ctypes.data)
        np.testing.assert_allclose(y, kept.answer(rows), rtol=1e-5)
        if number < 4:
            answers.append(y[..., :1])
        del y
    for number, answer in enumerate(answers):
        np.testing.assert_allclose(answer, kept.answer(rows[: number + 1])[..., :1], rtol=1e-5)
    assert len(set(places[:5])) == 5, "parts of four are in use"
    assert name == "cache" or places[5] == places[4], "and nothing of the fifth"
    if name == "cache":
        with pytest.raises(AssumptionError, match="in use: keys 12 of 12"):
            run()
    for wrong in (x.astype(np.float64), np.stack([x, x], -1)[..., 0]):
        with pytest.raises(InputError, match=r"contiguous|float64"):
            model.session.bind({"x": wrong}, state)
    with pytest.raises(InputError, match="another session"):
        model.session.bind({"x": x}, compiled(kept, level="none").new_state(capacity=12 if name == "cache" else None))


def test_a_run_with_a_state_tells_the_time_of_its_steps() -> None:
    kept, shape = MODELS["cache"][0](), MODELS["cache"][1]
    model, rows = compiled(kept), [fed(shape, number) for number in range(3)]
    state = model.new_state(capacity=6)
    for number, row in enumerate(rows):
        profile = model.session.profile({"x": row}, state)
        np.testing.assert_allclose(profile.outputs[0], kept.answer(rows[: number + 1]), rtol=1e-5)
        assert [step.name for step in profile.plan.steps]
        assert profile.parts
        assert all(0 <= part.begin <= part.end <= profile.wall for part in profile.parts)
    with pytest.raises(InputError, match="make a state"):
        model.session.profile({"x": rows[0]})
    with pytest.raises(AssumptionError, match="in use: keys 6 of 6"):
        for row in rows:
            model.session.profile({"x": row}, state)
    assert state.lengths["keys"] == 6


def test_an_older_runtime_runs_what_it_cannot_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(library._PROTOTYPES, "opw_of_tomorrow", (None, ()))  # pyright: ignore[reportPrivateUsage]
    monkeypatch.setattr(library, "_NEWER", frozenset({"opw_of_tomorrow"}))
    model = compiled(counter())
    older = library._open(model.path / "runtime.so")  # pyright: ignore[reportPrivateUsage]
    assert not hasattr(older, "opw_of_tomorrow")
    state = model.new_state()
    assert isinstance(state, NativeState)
    monkeypatch.setattr(state._module, "library", Untimed(state._module.library))  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(UnsupportedError, match="compile the model again"):
        model.session.profile({"x": fed(MODELS["counter"][1], 0)}, state)
    model.run({"x": fed(MODELS["counter"][1], 0)}, state)


class Untimed:
    """A runtime that times no runs with a state."""

    def __init__(self, library: Any) -> None:
        self._library = library

    def __getattr__(self, name: str) -> Any:
        if name == "opw_state_run_timed":
            raise AttributeError(name)
        return getattr(self._library, name)


def test_rows_are_written_into_a_table_where_it_lies() -> None:
    """Only what is written is moved: as ScatterND says it, the table is copied and then written."""
    nodes = [node("ScatterND", ["table", "places", "x"], "written"), node("Gather", ["written", "asked"], "y", axis=0)]
    kinds = {"places": TensorProto.INT64, "asked": TensorProto.INT64}
    inputs = {"table": ["rows", 3], "places": ["n", 1], "x": ["n", 3], "asked": ["n"]}
    model = opweld.compile(model_of(nodes, inputs, ["y", "written"], {}, kinds=kinds), states={"table": "written"})
    assert [d.taken for d in model.explain().account.ledger if d.rule == "place.state"] == ["in-place"]
    state = model.new_state(dims={"rows": 7})
    right = np.zeros((7, 3), np.float32)
    for number, places in enumerate(([5, 0], [1, 5], [6, 2])):
        x, asked = fed((2, 3), number), np.array([5, places[1]])
        right[places] = x
        (y,) = model.run({"places": np.array(places)[:, None], "x": x, "asked": asked}, state).values()
        np.testing.assert_array_equal(y, right[asked])
    np.testing.assert_array_equal(state["table"], right)
    with pytest.raises(OpweldError, match="out of range"):
        model.run({"places": np.array([[0], [7]]), "x": fed((2, 3), 9), "asked": np.array([0, 1])}, state)
    with pytest.raises(StateError, match="lost"):
        model.run({"places": np.array([[0], [1]]), "x": fed((2, 3), 9), "asked": np.array([0, 1])}, state)


def built(source: str, folder: Path, headers: Path, place: Path) -> Path:
    """The program of a C file, linked with an artifact's runtime."""
    command = [sys.executable, "-m", "ziglang", "cc", "-O1", "-std=gnu11", "-Wall", "-Wextra", "-Werror"]
    command += [f"-I{headers}", str(Path(__file__).with_name(source)), str(folder / "runtime.so")]
    command += [f"-Wl,-rpath,{folder}", "-o", str(place / "program")]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S)
    assert answer.returncode == 0, answer.stderr
    return place / "program"


def test_a_plan_that_a_late_thread_looks_at_is_left_alone(tmp_path: Path) -> None:
    folder = compiled(cache()).save(tmp_path / "m.opweld")
    program = built("late_state.c", folder, SOURCE_FOLDER, tmp_path)
    answer = subprocess.run([str(program), str(folder)], capture_output=True, text=True, timeout=PATIENCE_S)
    assert answer.returncode == 0, answer.stderr
    same, another, untouched, plans, length = map(int, answer.stdout.split())
    assert (same, another, untouched, plans, length) == (1, 1, 1, 1, 5)


@pytest.mark.parametrize("name", MODELS)
def test_the_same_from_c(name: str, tmp_path: Path) -> None:
    kept, shape = MODELS[name][0](), MODELS[name][1]
    folder = compiled(kept).save(tmp_path / "m.opweld")
    program = built("state.c", folder, folder / "include", tmp_path)
    arguments = [str(program), str(folder), "12", "40", *map(str, shape)]
    answer = subprocess.run(arguments, capture_output=True, text=True, timeout=PATIENCE_S)
    assert answer.returncode == 0, answer.stderr
    *lines, second, told, again = (line.split() for line in answer.stdout.splitlines())
    rows = [fed(shape, number) for number in range(12)]
    assert len(lines) == 12
    for number, line in enumerate(lines):
        expected = kept.answer(rows[: number + 1]).reshape(-1)
        np.testing.assert_allclose([float(x) for x in line[1:]], expected, rtol=1e-5)
    assert second == again == ["second", *lines[0][1:]]
    length = "24" if name == "cache" else "-1"
    assert told == [next(iter(kept.states)), "stays", "plans", "1", "length", length]


@pytest.mark.parametrize("level", ["none", "all"])
def test_a_new_length_is_no_new_plan_and_moves_nothing(level: Any) -> None:
    """At level none, intermediate values grow with it."""
    kept = cache()
    model = compiled(kept, level=level, threads=2)
    state = model.new_state(capacity=200)
    place, rows = state.memory("keys").ctypes.data, [fed((7, 3), 0)]
    np.testing.assert_allclose(model.run({"x": rows[0]}, state)["y"], kept.answer(rows), rtol=1e-5)
    for number in range(1, 150):
        rows.append(fed((1, 3), number % 5))
        np.testing.assert_allclose(model.run({"x": rows[-1]}, state)["y"], kept.answer(rows), rtol=1e-4)
    assert state.lengths == {"keys": 156}
    assert state["keys"].shape == (2, 156, 3)
    assert state.memory("keys").shape == (2, 200, 3)
    assert state["keys"].ctypes.data == place
    assert state.plans == 2  # of seven rows, and of one


def test_outputs_of_equal_shapes_find_memory_of_earlier_ones() -> None:
    nodes = [
        node("Concat", ["past", "x"], "all", axis=0),
        node("ReduceSum", ["all"], "sum"),
        node("Add", ["big", "sum"], "y"),
    ]
    model = opweld.compile(
        model_of(nodes, {"x": [1], "past": ["n"], "big": [1 << 16]}, ["y", "all"]), states={"past": "all"}
    )
    state, big = model.new_state(capacity=64), np.zeros(1 << 16, np.float32)
    places: set[int] = set()
    for _ in range(20):
        y = model.run({"x": np.ones(1, np.float32), "big": big}, state)["y"]
        places.add(y.ctypes.data)
        del y
    assert len(places) == 1


def test_states_are_independent_and_are_saved_and_loaded() -> None:
    kept = cache()
    model = compiled(kept)
    first, second = model.new_state(capacity=8), model.new_state(capacity=20)
    rows = [fed((2, 3), number) for number in range(3)]
    for row in rows[:2]:
        model.run({"x": row}, first)
    expected = kept.answer(rows)
    saved = first.arrays()
    second.load(saved)
    larger = first.copy(capacity=100)
    for state in (first, second, larger):
        np.testing.assert_allclose(model.run({"x": rows[2]}, state)["y"], expected, rtol=1e-5)
        assert state.lengths == {"keys": 6}
    first.reset()
    np.testing.assert_allclose(model.run({"x": rows[0]}, first)["y"], kept.answer(rows[:1]), rtol=1e-5)
    assert saved["keys"].shape == (2, 4, 3)
    with pytest.raises(InputError):
        second.load({"keys": np.zeros((2, 21, 3), np.float32)})
    with pytest.raises(InputError):
        second.load({"keys": np.zeros((2, 4, 3))})
    with pytest.raises(InputError):
        second.load({"other": np.zeros(1)})
    assert second.lengths == {"keys": 6}


def test_large_states_begin_where_a_large_page_does() -> None:
    kept = cache()
    model = compiled(kept)
    row = fed((2, 3), 1)
    for capacity, alignment in ((8, 64), (1 << 18, 2 << 20)):  # 24 bytes a place: 192 bytes, 6 MB
        state = model.new_state(capacity=capacity)
        assert state.memory("keys").ctypes.data % alignment == 0
        np.testing.assert_allclose(model.run({"x": row}, state)["y"], kept.answer([row]), rtol=1e-5)


def test_an_array_keeps_the_memory_of_its_state() -> None:
    model = compiled(counter())
    state = model.new_state()
    model.run({"x": np.ones(1, np.float32)}, state)
    count = state["count"]
    del state, model
    gc.collect()
    assert count == 1


def test_a_full_state_says_so_and_stays_as_it_was() -> None:
    kept = cache()
    model = compiled(kept)
    state = model.new_state(capacity=3)
    rows = [fed((2, 3), 0), fed((1, 3), 1)]
    model.run({"x": rows[0]}, state)
    with pytest.raises(AssumptionError) as caught:
        model.run({"x": rows[0]}, state)
    assert "keys 2 of 3" in str(caught.value)
    np.testing.assert_allclose(model.run({"x": rows[1]}, state)["y"], kept.answer(rows), rtol=1e-5)


def test_what_grows_is_as_it_was_when_a_run_fails() -> None:
    kept = cache(checked=True)
    model = compiled(kept)
    state = model.new_state(capacity=9)
    rows = [fed((2, 3), 0), fed((2, 3), 1)]
    model.run({"x": rows[0], "index": np.array([1])}, state)
    with pytest.raises(OpweldError):
        model.run({"x": rows[0], "index": np.array([7])}, state)
    assert state.lengths == {"keys": 2}
    y = model.run({"x": rows[1], "index": np.array([0, 1])}, state)["y"]
    np.testing.assert_allclose(y, kept.answer(rows), rtol=1e-5)


def test_what_is_replaced_is_lost_when_a_run_fails() -> None:
    model = opweld.compile(failing_counter(), states={"count": "next"})
    state, x = model.new_state(), np.ones(3, np.float32)
    assert model.run({"x": x, "index": np.array([0])}, state)["y"] == 1
    with pytest.raises(InputError):
        model.run({"x": x}, state)  # before anything is computed
    assert model.run({"x": x, "index": np.array([0])}, state)["y"] == 2
    with pytest.raises(OpweldError):
        model.run({"x": x, "index": np.array([5])}, state)
    with pytest.raises(StateError):
        model.run({"x": x, "index": np.array([0])}, state)
    state.load({"count": np.array(2, np.float32)})
    assert model.run({"x": x, "index": np.array([0])}, state)["y"] == 3


def test_one_run_at_a_time_uses_a_state() -> None:
    model = compiled(counter())
    state, x = model.new_state(), np.ones(4, np.float32)
    session = model.session
    assert isinstance(state, NativeState)
    state.begin([x], 1)
    for other in (lambda: model.run({"x": x}, state), state.reset, lambda: state.load({})):
        with pytest.raises(StateError) as caught:
            other()
        assert "count" in str(caught.value)
    state.cancel()
    assert model.run({"x": x}, state)["y"][0] == 1
    assert session.run({"x": x}, session.new_state())[0][0] == 1


def test_runs_with_states_of_their_own_go_side_by_side() -> None:
    kept = cache()
    model, answers = compiled(kept, threads=2), dict[int, list[Array]]()

    def work(number: int) -> None:
        state = model.new_state(capacity=64)
        answers[number] = [model.run({"x": fed((1, 3), number + k)}, state)["y"] for k in range(40)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, made in answers.items():
        rows = [fed((1, 3), number + k) for k in range(40)]
        for k, y in enumerate(made):
            np.testing.assert_allclose(y, kept.answer(rows[: k + 1]), rtol=1e-4)
    assert len(answers) == 4


def test_what_is_not_said_is_asked_for() -> None:
    model = compiled(cache())
    x = {"x": fed((1, 3), 0)}
    for wrong in (
        lambda: model.new_state(),
        lambda: model.new_state(capacity={"other": 3}),
        lambda: model.new_state(capacity=4, dims={"batch": 1}),
        lambda: model.new_state(capacity=4).memory("x"),
        lambda: model.run(x),
        lambda: model.run(x, compiled(counter()).new_state()),
        lambda: model.session.plan(x),
        lambda: opweld.compile(cache().model).new_state(),
    ):
        with pytest.raises(InputError):
            wrong()


def test_dims_of_states_beside_what_grows() -> None:
    nodes = [node("Concat", ["past", "x"], "all", axis=1), node("ReduceSum", ["all", "axes"], "y", keepdims=0)]
    inputs = {"x": ["batch", "n"], "past": ["batch", "length"]}
    model = opweld.compile(model_of(nodes, inputs, ["y", "all"], {"axes": np.array([1])}), states={"past": "all"})
    with pytest.raises(InputError):
        model.new_state(capacity=5)
    state = model.new_state(capacity=5, dims={"batch": 3})
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    for k in (1, 2):
        np.testing.assert_array_equal(model.run({"x": x}, state)["y"], k * x.sum(1))
    with pytest.raises(InputError):
        model.run({"x": x[:2]}, state)


@pytest.mark.parametrize(
    "states", [{"other": "next"}, {"count": "other"}, {"x": "next", "count": "next"}, {"c*": "n"}, {"a*": "b*"}, 3]
)
def test_states_that_the_model_has_not(states: Any) -> None:
    with pytest.raises(OptionError):
        opweld.compile(counter().model, states=states)


def test_patterns_name_many() -> None:
    nodes = [node("Add", [f"past.{i}.k", "x"], f"present.{i}.k") for i in range(3)]
    inputs: dict[str, Any] = {"x": [2], **{f"past.{i}.k": [2] for i in range(3)}}
    model = model_of(nodes, inputs, [f"present.{i}.k" for i in range(3)])
    state = opweld.compile(model, states={"past.*": "present.*"}).new_state()
    assert state.names == ("past.0.k", "past.1.k", "past.2.k")


def test_what_cannot_be_a_state_is_refused() -> None:
    turned = [node("Concat", ["x", "past"], "all", axis=0)]
    fixed = [node("Concat", ["past", "x"], "all", axis=0)]
    for nodes, length in ((turned, "n"), (fixed, 4)):
        with pytest.raises(UnsupportedError):
            opweld.compile(model_of(nodes, {"x": [1], "past": [length]}, ["all"]), states={"past": "all"})


PROGRAM = """program kept
symbol n >= 1 = dim 0 of x
symbol past >= 0 = value 1 of lengths
symbol room >= 1 = dim 0 of rows
guard room - past - n >= 0 because "there is room"
input lengths i64[2]
input rows f32[room]
input count i64[]
input x f32[n]
tensor more i64[]
  = add(count[], 1)
tensor longer f32[i0: past + n]
  = select(ge(index(i0 - past), 0:i64), x[i0 - past], rows[i0])
tensor total f32[]
  over r0: past + n
  = sum<r0>(longer[r0])
output y = total
output next = more
output all = longer
state count becomes next
state rows becomes all along axis 0 behind past
"""


def test_a_program_names_its_own_states() -> None:
    model = opweld.compile(parse_program(PROGRAM))
    assert [info.name for info in model.inputs] == ["x"]
    state = model.new_state(capacity=9)
    assert state.names == ("count", "rows")
    for number in range(1, 5):
        (y,) = model.run({"x": np.ones(2, np.float32)}, state).values()
        assert (y, state["count"], state.lengths) == (2 * number, number, {"rows": 2 * number})
    with pytest.raises(UnsupportedError):
        opweld.compile(parse_program(PROGRAM.replace("value 1 of", "value 0 of")))
    with pytest.raises(UnsupportedError):
        opweld.compile(parse_program(PROGRAM), states={"x": "y"})


def test_a_decoder_keeps_its_cache_as_a_state() -> None:
    shape = Shape(layers=2, heads=3, head=16, inner=96, words=200)
    decoder = Decoder(shape, 1)
    model = decoder.step("past")
    kept, plain = opweld.compile(model, states=decoder.states), opweld.compile(model)
    fed = feeds_of(shape, 1)
    caches = {name: fed.pop(name) for name in decoder.cached}
    state = kept.new_state(capacity=64)
    state.load(caches)
    places = [state.memory(name).ctypes.data for name in state.names]
    for token in range(40):
        fed["token"][:] = token
        made = plain.run({**fed, **caches})
        (logits,) = kept.run(fed, state).values()
        np.testing.assert_allclose(logits, made[next(iter(made))], rtol=1e-4, atol=1e-4)
        caches = {name: made[output] for name, output in decoder.states.items()}
    assert state.lengths == dict.fromkeys(decoder.cached, 41)
    assert state.plans == 1
    assert [state.memory(name).ctypes.data for name in state.names] == places
    assert len(native(plain.session)._module._plans) == 40
    for name, fed_back in caches.items():
        np.testing.assert_allclose(state[name], fed_back, rtol=1e-5, atol=1e-5)

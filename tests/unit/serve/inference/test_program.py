"""Programs of several models: what they are handed, what they share, and what becomes of their errors."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from opweld.errors import ClosedError, InputError, LateError, ModelError, QueueFull, RunError
from opweld.serve.inference import repository as repository_module
from opweld.serve.inference.model import Array, Call, Run, TensorModel
from opweld.serve.inference.program import check_no_circle
from opweld.serve.inference.program_model import ProgramModel
from opweld.serve.inference.repository import ModelRepository
from opweld.serve.inference.settings import Settings
from opweld.serve.inference.workers import Workers
from opweld.serve.refusal import Refusal
from tests.unit.serve.tensor_models import FakeModel, same

HEAD = """
import asyncio
import numpy as np
from opweld.errors import InputError
from opweld.serve.inference.program import program

@program(inputs={"x": ("float32", ("n",))}, outputs={"y": ("float32", ("n",)), "t": (str, ())}, models=("inner",))
async def answer(models, x):
"""

X = np.arange(3, dtype=np.float32)


class Loaded:
    """Models by name."""

    def __init__(self, *models: FakeModel) -> None:
        self.models: dict[str, TensorModel] = {model.name: model for model in models}

    def get(self, name: str) -> TensorModel:
        if name not in self.models:
            raise Refusal(404, f"there is no model {name!r}")
        return self.models[name]


def inner(held: bool = False) -> FakeModel:
    model = same("inner", np.float32)
    model.held = held
    return model


def loaded(folder: Path, code: str, models: Loaded | None = None, queue: int = 8) -> ProgramModel:
    (folder / "program.py").write_text(HEAD + code)
    given = models or Loaded(inner())
    return ProgramModel("outer", "1", folder / "program.py", Settings(queue=queue), Workers(1), given.get)


def infer(model: ProgramModel, call: Call | None = None, **feeds: Array) -> Mapping[str, Array]:
    return asyncio.run(model.infer(feeds or {"x": X}, call or Call()))


PASSES = """    found = await models["inner"](x=x)
    return {"y": found["y"] * 2, "t": "done"}
"""


def test_a_program_is_a_model(tmp_path: Path) -> None:
    model = loaded(tmp_path, PASSES)
    assert [(spec.name, spec.dtype, spec.shape) for spec in model.inputs] == [("x", np.float32, ("n",))]
    assert [spec.name for spec in model.outputs] == ["y", "t"]
    made = infer(model)
    assert np.array_equal(made["y"], X * 2)
    assert made["t"].item() == "done"
    assert list(infer(model, Call(outputs=["t"]))) == ["t"]
    assert (model.statistics.calls, model.statistics.running, model.statistics.failures) == (2, 0, 0)


def test_arrays_are_handed_on_as_they_are(tmp_path: Path) -> None:
    given = inner()
    seen: list[Array] = []

    def compute(feeds: Mapping[str, Array]) -> Mapping[str, Array]:
        seen.append(feeds["x"])
        return {"y": feeds["x"]}

    given.compute = compute
    code = """    found = await models["inner"]({"x": x})
    return {"y": found["y"], "t": ""}
"""
    made = infer(loaded(tmp_path, code, Loaded(given)))
    assert seen[0] is X
    assert made["y"] is X


def test_calls_of_one_request_are_there_together(tmp_path: Path) -> None:
    given = inner(held=True)
    code = """    found = await asyncio.gather(*(models["inner"](x=x[i:i+1]) for i in range(3)))
    return {"y": np.concatenate([one["y"] for one in found]), "t": ""}
"""
    model = loaded(tmp_path, code, Loaded(given))

    async def scenario() -> Mapping[str, Array]:
        task = asyncio.create_task(model.infer({"x": X}, Call()))
        while given.statistics.running < 3:
            await asyncio.sleep(0)
        given.release()
        return await task

    assert np.array_equal(asyncio.run(scenario())["y"], X)


class Seen:
    """Follows a call."""

    wants_kernels = False

    def __init__(self) -> None:
        self.runs: list[Run] = []

    def ran(self, run: Run) -> None:
        self.runs.append(run)


def test_deadline_and_observer_are_those_of_the_call(tmp_path: Path) -> None:
    given, seen = inner(), Seen()
    call = Call("7", deadline=time.monotonic() + 1000, observer=seen)
    infer(loaded(tmp_path, PASSES, Loaded(given)), call)
    assert (given.calls[0].id, given.calls[0].deadline) == ("7", call.deadline)
    assert len(seen.runs) == 1


def test_the_deadline_ends_code_that_waits(tmp_path: Path) -> None:
    model = loaded(tmp_path, "    await asyncio.sleep(3600)\n")
    with pytest.raises(LateError, match="'outer' could not answer by the deadline"):
        infer(model, Call(deadline=time.monotonic() + 0.01))
    assert model.statistics.refused == 1


def test_giving_up_gives_up_the_calls_of_models(tmp_path: Path) -> None:
    given = inner(held=True)
    model = loaded(tmp_path, PASSES, Loaded(given))

    async def scenario() -> None:
        task = asyncio.create_task(model.infer({"x": X}, Call()))
        while given.statistics.running < 1:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
    assert given.gone == 1
    assert model.statistics.running == 0


@pytest.mark.parametrize("queue", [0, 1])
def test_no_more_calls_are_answered_at_once_than_may(tmp_path: Path, queue: int) -> None:
    given = inner(held=True)
    model = loaded(tmp_path, PASSES, Loaded(given), queue=queue)

    async def scenario() -> None:
        first = asyncio.create_task(model.infer({"x": X}, Call()))
        while given.statistics.running < 1:
            await asyncio.sleep(0)
        with pytest.raises(QueueFull, match="1 calls of 'outer' are being answered already"):
            await model.infer({"x": X}, Call())
        given.release()
        await first

    asyncio.run(scenario())
    assert (model.statistics.calls, model.statistics.refused) == (1, 1)


def test_work_is_done_on_the_threads_of_models(tmp_path: Path) -> None:
    code = """    import threading
    name = await models.compute(lambda: threading.current_thread().name)
    return {"y": x, "t": name}
"""
    assert str(infer(loaded(tmp_path, code))["t"]).startswith("opweld-run")


FAILING = {
    "its own mistake": ("    return {}[1]\n", r"program.py:9: KeyError: 1"),
    "a model that is fed wrongly": (
        '    await models["inner"](\n        x=x.astype(np.float64))\n',
        r"program.py:9: model 'inner': x has dtype float64",
    ),
    "a model that it does not declare": (
        '    await models["other"](x=x)\n',
        r"program.py:9: .*'other', which is not one",
    ),
    "work that stops an iteration": (
        "    await models.compute(lambda: next(iter([])))\n",
        r"program.py:9: RuntimeError: StopIteration: ",
    ),
    "work that ends the process": (
        "    await asyncio.gather(models.compute(exit, 3))\n",
        r"program.py:9: RuntimeError: SystemExit: 3",
    ),
    "an end of the process": ("    exit(3)\n", r"program.py:9: SystemExit: 3"),
    "no output": ('    return {"y": x}\n', r"returns no 't'"),
    "no string": ('    return {"y": x, "t": 0}\n', r"returns int in 't', expected str or bytes"),
    "another output": ('    return {"y": x[None], "t": ""}\n', r"returns float32\[1, 3\] as 'y', .* float32\[n\]"),
}


@pytest.mark.parametrize("case", FAILING)
def test_a_fault_of_the_program_names_its_line(tmp_path: Path, case: str) -> None:
    code, message = FAILING[case]
    model = loaded(tmp_path, code)
    with pytest.raises(RunError, match=message):
        infer(model)
    assert model.statistics.failures == 1


def test_a_fault_of_the_client_is_its_own(tmp_path: Path) -> None:
    model = loaded(tmp_path, '    raise InputError("x is no picture")\n')
    with pytest.raises(InputError, match="x is no picture"):
        infer(model)
    with pytest.raises(InputError, match="input 'x': expected dtype float32"):
        infer(model, x=X.astype(np.int32))
    with pytest.raises(InputError, match="'z' is no output of 'outer'"):
        infer(model, Call(outputs=["z"]))


def test_a_full_queue_of_a_model_is_one_of_the_program(tmp_path: Path) -> None:
    given = inner()
    given.most = 0
    with pytest.raises(QueueFull, match="'outer': 0 calls wait for inner already"):
        infer(loaded(tmp_path, PASSES, Loaded(given)))


def test_a_model_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="'outer' needs 'inner': there is no model 'inner'") as caught:
        infer(loaded(tmp_path, PASSES, Loaded()))
    assert caught.value.status == 503


def test_a_model_that_is_loaded_anew_answers_instead(tmp_path: Path) -> None:
    before, now = inner(), inner()
    before.closing = True
    models = Loaded(before)

    def get(name: str) -> TensorModel:
        found = models.models[name]
        models.models[name] = now
        return found

    (tmp_path / "program.py").write_text(HEAD + PASSES)
    model = ProgramModel("outer", "1", tmp_path / "program.py", Settings(), Workers(1), get)
    infer(model)
    assert len(now.calls) == 1


def test_a_model_that_is_being_unloaded_ends_the_call(tmp_path: Path) -> None:
    given = inner()
    given.closing = True
    with pytest.raises(ClosedError):
        infer(loaded(tmp_path, PASSES, Loaded(given)))


INPUTS = '{"x": ("float32", ("n",))}'
UNREADABLE = {
    "an input named models": (
        HEAD.replace(INPUTS, INPUTS.replace("x", "models")) + PASSES,
        r"program.py:7: OptionError: the program cannot be called with models and the inputs 'models': ",
    ),
    "an input that it does not take": (
        HEAD.replace(INPUTS, INPUTS.replace("x", "z")) + PASSES,
        r"program.py:7: OptionError: .* the inputs 'z': missing a required argument: 'x'",
    ),
    "syntax": ("return =", r"program.py:1: SyntaxError"),
    "import": ("import nothing_of_this_name", r"program.py:1: ModuleNotFoundError"),
    "exit": ("exit(3)", r"program.py:1: SystemExit: 3"),
    "none": ("x = 1", r"declares no programs"),
    "dtype": (HEAD.replace("float32", "float31") + PASSES, r"program.py:7: OptionError: 'x' is declared as 'float31'"),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_a_file_that_is_no_program_is_named(tmp_path: Path, case: str) -> None:
    code, message = UNREADABLE[case]
    (tmp_path / "program.py").write_text(code)
    with pytest.raises(ModelError, match=message):
        ProgramModel("outer", "1", tmp_path / "program.py", Settings(), Workers(1), Loaded().get)


def test_a_program_imports_what_lies_beside_it(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("def twice(x):\n    return x * 2\n")
    code = "    from .beside import twice\n    return {'y': twice(x), 't': ''}\n"
    assert np.array_equal(infer(loaded(tmp_path, code))["y"], X * 2)


def test_circles_are_found() -> None:
    check_no_circle("a", {"a": ["b", "c"], "b": ["c"], "c": []})
    with pytest.raises(ModelError, match="in a circle: a -> b -> c -> a"):
        check_no_circle("a", {"a": ["b"], "b": ["c"], "c": ["a"]})


def modules() -> list[str]:
    """Of programs that are loaded."""
    return [name for name in sys.modules if name.startswith("opweld_program_")]


def test_code_that_is_not_served_any_more_is_forgotten(tmp_path: Path) -> None:
    before = modules()
    (tmp_path / "beside.py").write_text("")
    code = """    from . import beside
    await models["inner"](x=x)
    from .beside import __name__ as name
    return {"y": x, "t": name}
"""
    given = inner(held=True)
    model = loaded(tmp_path, code, Loaded(given))

    async def scenario() -> None:
        task = asyncio.create_task(model.infer({"x": X}, Call()))
        while given.statistics.running < 1:
            await asyncio.sleep(0)
        model.close()
        assert len(modules()) == len(before) + 2  # a call goes on
        given.release()
        await task

    asyncio.run(scenario())
    assert modules() == before
    (tmp_path / "program.py").write_text("x = 1")
    with pytest.raises(ModelError):
        ProgramModel("outer", "1", tmp_path / "program.py", Settings(), Workers(1), Loaded().get)
    assert modules() == before


def test_a_program_that_is_refused_is_forgotten(tmp_path: Path) -> None:
    before = modules()
    (tmp_path / "outer" / "1").mkdir(parents=True)
    (tmp_path / "outer" / "2").mkdir()
    (tmp_path / "outer" / "opweld.toml").write_text('versions = "all"')
    (tmp_path / "outer" / "1" / "program.py").write_text(HEAD.replace('("inner",)', '("outer",)') + PASSES)
    for second in ("x = 1", HEAD + PASSES):  # the first is opened before it; then they call each other
        (tmp_path / "outer" / "2" / "program.py").write_text(second)
        with pytest.raises(ModelError, match="no model could be loaded"):
            ModelRepository([(None, tmp_path)]).load_all()
        assert modules() == before


def test_a_repository_loads_programs_and_unloads_them(tmp_path: Path) -> None:
    (tmp_path / "outer" / "1").mkdir(parents=True)
    (tmp_path / "inner").mkdir()
    plus = HEAD.replace('("inner",)', "()").replace('("n",)', '("n", 3)') + '    return {"y": x + 1, "t": ""}\n'
    (tmp_path / "inner" / "program.py").write_text(plus)
    program = tmp_path / "outer" / "1" / "program.py"
    code = HEAD.replace('("n",)', '("n", 3)') + PASSES
    program.write_text(code)

    async def scenario() -> None:
        repository = ModelRepository([(None, tmp_path)])
        repository.load_all()
        x = np.zeros((2, 3), np.float32)

        async def first() -> float:
            return float((await repository.get("outer").infer({"x": x}, Call()))["y"][0, 0])

        assert [(one.name, one.state) for one in repository.index()] == [("inner", "READY"), ("outer", "READY")]
        assert await first() == 2
        (tmp_path / "inner" / "program.py").write_text(plus.replace("x + 1", "x + 5"))
        await repository.load("inner")
        assert await first() == 10
        program.write_text(code.replace("* 2", "* 3"))
        await repository.load("outer")
        assert await first() == 15
        program.write_text(code.replace('("inner",)', '("outer",)'))
        with pytest.raises(ModelError, match="in a circle: outer -> outer"):
            await repository.load("outer")
        assert await first() == 15
        await repository.unload("inner")
        with pytest.raises(Refusal, match="'outer' needs 'inner': the model 'inner' is not loaded"):
            await first()
        await repository.close()

    asyncio.run(scenario())


ENDLESS = """
import threading
by, begun, end = threading.current_thread(), threading.Event(), threading.Event()

def wait():
    begun.set()
    end.wait()
"""


def test_a_repository_is_closed_though_something_does_not_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does the process wait for it: the threads are daemons."""
    monkeypatch.setattr(repository_module, "_END", 0.01)
    (tmp_path / "a").mkdir()
    (tmp_path / "a/program.py").write_text(
        ENDLESS + HEAD.replace('("inner",)', "()") + "    await models.compute(wait)"
    )

    async def scenario() -> None:
        repository = ModelRepository([(None, tmp_path)])
        repository.load_all()
        await repository.load("a")
        model = repository.get("a")
        assert isinstance(model, ProgramModel)
        held = model._program.answer.__globals__
        assert held["by"].daemon
        call = asyncio.create_task(model.infer({"x": X}, Call()))
        await asyncio.to_thread(held["begun"].wait)
        call.cancel()
        await repository.close()
        assert all(thread.daemon for thread in repository._workers._threads)
        held["end"].set()

    asyncio.run(scenario())

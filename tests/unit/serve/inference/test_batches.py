"""Calls of a model that run together: their answers, their faults, and how they end."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opweld.errors import ClosedError, LateError, OpweldError, QueueFull, RunError
from opweld.serve.inference.batcher import Batch, Waiting
from opweld.serve.inference.dispatcher import Dispatcher
from opweld.serve.inference.examined import Examined
from opweld.serve.inference.joined import Rows
from opweld.serve.inference.loaded import LoadedModel
from opweld.serve.inference.model import Array, Call, Run, TensorSpec
from opweld.serve.inference.settings import Settings
from opweld.serve.inference.workers import Workers
from tests.patience import PATIENCE_S

F32 = np.dtype(np.float32)


class Doubling:
    """y = 2 x; runs wait for `open`, and a row of -1 fails them."""

    inputs = (TensorSpec("x", F32, ("n", 2)),)
    outputs = (TensorSpec("y", F32, ("n", 2)), TensorSpec("z", F32, ("n", 2)))
    artifact = Path("doubling.opweld")

    def __init__(self) -> None:
        self.open, self.began = threading.Event(), threading.Event()
        self.rows: list[int] = []

    def run(self, feeds: Mapping[str, Array], threads: int | None = None) -> list[Array]:
        self.rows.append(len(feeds["x"]))
        self.began.set()
        assert self.open.wait(PATIENCE_S)
        if (feeds["x"] == -1).any():
            raise RunError("a bad row")
        return [2 * feeds["x"], feeds["x"]]

    def timed(self, feeds: Mapping[str, Array], threads: int | None = None) -> tuple[list[Array], list[Any]]:
        return self.run(feeds), []


class Serving:
    """A model of `Doubling`."""

    def __init__(self, beside: Serving | None = None, processors: int = 1, **settings: Any) -> None:
        """beside: whose processors it shares, else it has so many."""
        self.tensors = Doubling()
        self.dispatcher = Dispatcher(Workers(processors)) if beside is None else beside.dispatcher
        found = Examined(Rows(8), "", (1,), {})
        tensors: Any = self.tensors
        self.model = LoadedModel("d", "1", tensors, Settings(**settings), found, self.dispatcher)

    def ask(self, number: float, rows: int = 1, **call: Any) -> asyncio.Task[Mapping[str, Array]]:
        feeds = {"x": np.full((rows, 2), number, np.float32)}
        return asyncio.create_task(self.model.infer(feeds, Call(**call)))

    async def begun(self, *calls: asyncio.Task[Any]) -> None:
        """The first call runs, and others have come."""
        assert await asyncio.to_thread(self.tensors.began.wait, PATIENCE_S)
        while len(self.model.batcher) < len(calls):
            await asyncio.sleep(0)


def answers(found: Sequence[Any]) -> list[Any]:
    return [one if isinstance(one, Exception) else one["y"][:, 0].tolist() for one in found]


def test_calls_that_come_during_a_run_share_the_next() -> None:
    async def scenario() -> None:
        serving = Serving()
        first = serving.ask(1)
        others = [serving.ask(number, rows) for number, rows in ((2, 1), (3, 2), (4, 1))]
        await serving.begun(*others)
        told = serving.model.statistics
        assert (told.waiting, told.running) == (3, 1)
        serving.tensors.open.set()
        assert answers(await asyncio.gather(first, *others)) == [[2], [4], [6, 6], [8]]
        assert serving.tensors.rows == [1, 4]
        told = serving.model.statistics
        assert (told.calls, told.runs, told.rows, told.waiting, told.running) == (4, 2, 5, 0, 0)
        assert dict(serving.model.tally.reasons) == {"idle": 1, "worker": 1}

    asyncio.run(scenario())


def test_who_is_at_fault_has_the_error() -> None:
    async def scenario() -> None:
        serving = Serving()
        calls = [serving.ask(number) for number in (1, 2, 3, 4, -1, 5, 6, 7, 8)]
        await serving.begun(*calls[1:])
        serving.tensors.open.set()
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(found.pop(4), RunError)
        assert answers(found) == [[2], [4], [6], [8], [10], [12], [14], [16]]
        assert serving.tensors.rows == [1, 8, 4, 2, 2, 1, 1, 4]
        told = serving.model.statistics
        assert (told.calls, told.failures, told.runs, told.rows) == (8, 1, 8, 23)
        assert serving.model.tally.reasons.total() == 2

    asyncio.run(scenario())


def test_calls_whose_rows_are_not_those_of_the_outputs_run_alone() -> None:
    async def scenario() -> None:
        serving = Serving()
        run = serving.tensors.run
        serving.tensors.run = lambda feeds, threads=None: [array[array[:, 0] != 4] for array in run(feeds)]
        calls = [serving.ask(number) for number in (1, 2, 3)]
        await serving.begun(*calls[1:])
        serving.tensors.open.set()
        assert answers(await asyncio.gather(*calls)) == [[2], [], [6]]

    asyncio.run(scenario())


def test_a_call_that_is_given_up_does_not_run_again() -> None:
    async def scenario() -> None:
        serving = Serving()
        calls = [serving.ask(number) for number in (1, 2, -1, 3)]
        await serving.begun(*calls[1:])
        batch = serving.model.batcher.next(time.monotonic())
        assert isinstance(batch, Batch)
        calls[1].cancel()
        calls[2].cancel()
        await asyncio.gather(*calls[1:3], return_exceptions=True)
        serving.tensors.open.set()
        outcome = serving.model.run(batch)
        assert [one.rows for one in outcome.results] == [1] and len(outcome.runs) == 2
        assert serving.tensors.rows[1:] == [3, 1]

    asyncio.run(scenario())


def test_a_call_that_is_given_up_leaves_its_place() -> None:
    async def scenario() -> None:
        serving = Serving(queue=2)
        first, second, third = serving.ask(1), serving.ask(2), serving.ask(3)
        await serving.begun(second, third)
        with pytest.raises(QueueFull, match="2 calls wait for 'd' already"):
            await serving.ask(4)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        fourth = serving.ask(4)
        await serving.begun(third, fourth)
        serving.tensors.open.set()
        assert answers(await asyncio.gather(first, third, fourth)) == [[2], [6], [8]]
        assert serving.tensors.rows == [1, 2] and serving.model.statistics.refused == 1

    asyncio.run(scenario())


def test_a_call_whose_deadline_comes_while_it_waits() -> None:
    async def scenario() -> None:
        serving = Serving()
        first, late = serving.ask(1), serving.ask(2, deadline=time.monotonic() + 0.01)
        with pytest.raises(LateError, match="'d' cannot answer by the deadline"):
            await late
        serving.tensors.open.set()
        assert answers([await first]) == [[2]]
        assert (serving.model.statistics.refused, serving.tensors.rows) == (1, [1])

    asyncio.run(scenario())


def test_a_call_whose_deadline_comes_while_it_runs() -> None:
    async def scenario() -> None:
        serving = Serving()
        late = serving.ask(1, deadline=time.monotonic() + 0.01)
        with pytest.raises(LateError, match="'d' cannot answer by the deadline"):
            await late
        assert serving.model.statistics.running == 1  # what was begun goes on
        serving.tensors.open.set()
        await serving.dispatcher.drain()
        told = serving.model.statistics
        assert (told.calls, told.failures, told.running) == (0, 1, 0)

    asyncio.run(scenario())


def test_what_waits_is_answered_when_the_model_is_unloaded() -> None:
    async def scenario() -> None:
        serving = Serving()
        first, second = serving.ask(1), serving.ask(2)
        await serving.begun(second)
        serving.model.close()
        with pytest.raises(ClosedError):
            await serving.ask(3)
        serving.tensors.open.set()
        assert answers(await asyncio.gather(first, second)) == [[2], [4]]

    asyncio.run(scenario())


def test_who_drains_waits_for_all_answers() -> None:
    async def scenario() -> None:
        serving = Serving()
        first, second = serving.ask(1), serving.ask(2)
        await serving.begun(second)
        serving.model.close()
        draining = asyncio.create_task(serving.dispatcher.drain())
        await asyncio.sleep(0)
        assert not draining.done()
        serving.tensors.open.set()
        await draining
        assert answers(await asyncio.gather(first, second)) == [[2], [4]]

    asyncio.run(scenario())


def test_who_drains_is_told_of_the_last_call_that_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        serving = Serving()
        held = Waiting("kind", 1, 1, 0.0, 1.0)
        monkeypatch.setattr(serving.model.batcher, "next", lambda now, free: math.inf)  # it waits, though nothing runs
        serving.dispatcher.submit(serving.model, held)
        draining = asyncio.create_task(serving.dispatcher.drain())
        await asyncio.sleep(0)
        serving.dispatcher.withdraw(serving.model, held)
        await draining

    asyncio.run(scenario())


def test_a_run_that_takes_no_longer_than_to_hand_it_over_is_done_in_place() -> None:
    async def scenario() -> None:
        serving = Serving()
        serving.tensors.open.set()
        where: list[str] = []
        run = serving.tensors.run

        def noted(feeds: Mapping[str, Array], threads: int | None = None) -> list[Array]:
            where.append(threading.current_thread().name)
            return run(feeds, threads)

        serving.tensors.run = noted
        kind = ("x", (2,))
        for seconds in (20e-6, 200e-6):
            for _ in range(32):
                serving.model.batcher.cost(kind).observe(1, seconds)
            assert answers(await asyncio.gather(serving.ask(1), serving.ask(2))) == [[2], [4]]
        assert where[0] == threading.current_thread().name and where[-1].startswith("opweld-run")

    asyncio.run(scenario())


def test_the_clock_rings_after_whole_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """As uvloop has no others, it would ring at once where less than half of one is to be waited for."""
    delays: list[float] = []

    async def scenario() -> None:
        def later(delay: float, woken: Callable[[], None]) -> asyncio.TimerHandle:
            delays.append(delay)
            return asyncio.get_running_loop().call_at(math.inf, woken)

        serving = Serving()
        waits = [0.0002, 0.0031]
        monkeypatch.setattr(serving.model.batcher, "next", lambda now, free: now + waits[len(delays)])
        monkeypatch.setattr(asyncio.get_running_loop(), "call_later", later)
        for now in (0.0, 1.0):
            serving.dispatcher.submit(serving.model, Waiting("kind", 1, 1, now, now + 1))

    asyncio.run(scenario())
    assert delays == [0.001, 0.004]


def test_observers_see_the_run_that_they_share() -> None:
    class Watching:
        wants_kernels = False

        def __init__(self) -> None:
            self.runs: list[Run] = []

        def ran(self, run: Run) -> None:
            self.runs.append(run)

    async def scenario() -> None:
        serving, watching = Serving(), Watching()
        calls = [serving.ask(1), serving.ask(2, id="a", observer=watching), serving.ask(3, 3, id="b")]
        await serving.begun(*calls[1:])
        serving.tensors.open.set()
        await asyncio.gather(*calls)
        (run,) = watching.runs
        assert ([one.id for one in run.calls], run.rows) == (["a", "b"], 4)

    asyncio.run(scenario())


def test_outputs_that_are_asked_for() -> None:
    async def scenario() -> None:
        serving = Serving()
        serving.tensors.open.set()
        assert list(await serving.ask(1, outputs=["z"])) == ["z"]

    asyncio.run(scenario())


def test_a_fault_that_is_no_error_of_ours_ends_the_call() -> None:
    async def scenario() -> None:
        serving = Serving()

        def run(feeds: Mapping[str, Array], threads: int | None = None) -> list[Array]:
            raise MemoryError("no room")

        serving.tensors.run = run
        with pytest.raises(OpweldError, match="the run failed: MemoryError: no room"):
            await serving.ask(1)

    asyncio.run(scenario())

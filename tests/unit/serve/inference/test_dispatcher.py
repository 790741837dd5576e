"""Who begins runs: the event loop when calls come, and threads whose runs have ended."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opweld.errors import LateError, OpweldError, QueueFull, RunError
from opweld.serve.inference.dispatcher import Dispatcher
from opweld.serve.inference.examined import Examined
from opweld.serve.inference.joined import Rows
from opweld.serve.inference.loaded import LoadedModel
from opweld.serve.inference.model import Array, Call, TensorSpec
from opweld.serve.inference.settings import Settings
from opweld.serve.inference.workers import Workers
from tests.patience import PATIENCE_S

F32 = np.dtype(np.float32)


class Machine:
    """Processors, and how many threads were in runs at once."""

    def __init__(self, processors: int) -> None:
        self.workers = Workers(processors)
        self.dispatcher = Dispatcher(self.workers)
        self.most = 0
        self._running, self._lock = 0, threading.Lock()

    def change(self, threads: int) -> None:
        with self._lock:
            self._running += threads
            self.most = max(self.most, self._running)


class Echo:
    """y = x. A run ends when it is allowed to, and fails with a row of -1."""

    inputs = (TensorSpec("x", F32, ("n", 1)),)
    outputs = (TensorSpec("y", F32, ("n", 1)),)
    artifact = Path("echo.opweld")

    def __init__(self, machine: Machine, allowed: int = 10**6) -> None:
        """allowed: how many runs may end."""
        self.began, self.allowed = threading.Semaphore(0), threading.Semaphore(allowed)
        self._machine = machine

    def run(self, feeds: Mapping[str, Array], threads: int = 1) -> list[Array]:
        self._machine.change(threads)
        self.began.release()
        assert self.allowed.acquire(timeout=PATIENCE_S)
        self._machine.change(-threads)
        if (feeds["x"] == -1).any():
            raise RunError("a bad row")
        return [feeds["x"]]


def model(machine: Machine, tensors: Any, threads: tuple[int, ...] = (1,), **settings: Any) -> LoadedModel:
    # What runs take is known, and longer than what is done in place.
    found = Examined(Rows(4), "", threads, {(("x", (1,)), 1, count): 1e-3 for count in threads})
    return LoadedModel("echo", "1", tensors, Settings(**settings), found, machine.dispatcher)


def ask(of: LoadedModel, number: float, **call: Any) -> asyncio.Task[Mapping[str, Array]]:
    return asyncio.create_task(of.infer({"x": np.full((1, 1), number, np.float32)}, Call(**call)))


async def until_waiting(of: LoadedModel, calls: int) -> None:
    while len(of.batcher) < calls:
        await asyncio.sleep(0)


def test_what_waits_begins_while_the_event_loop_is_busy() -> None:
    async def scenario() -> None:
        machine = Machine(1)
        tensors = Echo(machine, 0)
        echo = model(machine, tensors)
        calls = [ask(echo, 1), ask(echo, 2)]
        await until_waiting(echo, 1)
        tensors.allowed.release(2)
        for _ in calls:  # the loop does nothing else meanwhile
            assert tensors.began.acquire(timeout=PATIENCE_S)
        assert [float((await call)["y"][0, 0]) for call in calls] == [1, 2]
        assert echo.statistics.running == 0

    asyncio.run(scenario())


def test_a_job_that_waits_for_a_thread_has_it_before_the_next_run() -> None:
    async def scenario() -> None:
        machine = Machine(1)
        tensors = Echo(machine, 0)
        echo = model(machine, tensors)
        order: list[str] = []
        run = tensors.run

        def noted(feeds: Mapping[str, Array], threads: int = 1) -> list[Array]:
            order.append("run")
            return run(feeds, threads)

        tensors.run = noted
        first, second = ask(echo, 1), ask(echo, 2)
        await until_waiting(echo, 1)
        job = asyncio.create_task(machine.workers.run(lambda: order.append("job")))
        await asyncio.sleep(0)
        tensors.allowed.release(2)
        await asyncio.gather(first, second, job)
        assert order == ["run", "job", "run"]

    asyncio.run(scenario())


def test_a_run_that_fails_when_nobody_waits_any_more_ends_no_thread() -> None:
    async def scenario() -> None:
        machine = Machine(1)
        tensors = Echo(machine, 0)
        echo = model(machine, tensors)
        first, given_up = ask(echo, 1), [ask(echo, number) for number in (-1, 2, 3)]
        await until_waiting(echo, 3)
        tensors.allowed.release()
        for _ in range(2):
            assert tensors.began.acquire(timeout=PATIENCE_S)
        for call in given_up:
            call.cancel()
        await asyncio.gather(first, *given_up, return_exceptions=True)
        tensors.allowed.release(2)
        assert float((await ask(echo, 4))["y"][0, 0]) == 4
        told = echo.statistics
        assert (told.runs, told.calls, told.failures) == (3, 2, 3)

    asyncio.run(scenario())


def test_calls_that_a_thread_finds_late_are_told_so() -> None:
    async def scenario() -> None:
        machine = Machine(1)
        tensors = Echo(machine, 0)
        echo = model(machine, tensors)
        deadline = time.monotonic() + 0.01
        first, late = ask(echo, 1), ask(echo, 2, deadline=deadline)
        await until_waiting(echo, 1)
        time.sleep(max(0.0, deadline - time.monotonic()))  # the loop, which tells calls at their deadline, is busy
        tensors.allowed.release()
        while len(echo.batcher) and time.monotonic() < deadline + PATIENCE_S:
            time.sleep(1e-3)
        with pytest.raises(LateError):
            await late
        assert float((await first)["y"][0, 0]) == 1
        assert (echo.statistics.refused, echo.statistics.runs) == (1, 1)

    asyncio.run(scenario())


def test_many_calls_of_two_models_at_once() -> None:
    """Some fail, some are given up, some are late, some find the queue full: none is lost, and the processors are never
    used twice."""

    async def scenario() -> None:
        chance, machine = random.Random(0), Machine(4)
        models = [model(machine, Echo(machine), threads, queue=16) for threads in ((1,), (1, 2, 4))]
        counts = dict.fromkeys(("answers", "failures", "refused", "given up"), 0)

        async def caller(number: int) -> None:
            for turn in range(20):
                of = chance.choice(models)
                value = -1 if chance.random() < 0.1 else number * 100 + turn
                options: dict[str, Any] = {}
                if chance.random() < 0.2:
                    options["deadline"] = time.monotonic() + chance.random() * 0.01
                call = ask(of, value, **options)
                if chance.random() < 0.2:
                    if chance.random() < 0.8:  # else it has not even begun: some are given up whatever runs take
                        await asyncio.sleep(chance.random() * 2e-3)
                    call.cancel()
                try:
                    assert float((await call)["y"][0, 0]) == value
                    counts["answers"] += 1
                except RunError:
                    assert value == -1
                    counts["failures"] += 1
                except (QueueFull, LateError):
                    counts["refused"] += 1
                except asyncio.CancelledError:
                    counts["given up"] += 1

        await asyncio.wait_for(asyncio.gather(*map(caller, range(40))), PATIENCE_S)
        await asyncio.wait_for(machine.dispatcher.drain(), PATIENCE_S)
        assert sum(counts.values()) == 800 and min(counts.values()) > 0
        assert machine.most <= 4
        for one in models:
            told = one.statistics
            assert (told.waiting, told.running) == (0, 0)
        assert sum(one.statistics.calls for one in models) >= counts["answers"]
        for one in models:
            one.close()
        assert not machine.dispatcher._runners

    asyncio.run(scenario())


def test_who_drains_waits_for_runs_that_threads_begin() -> None:
    async def scenario() -> None:
        machine = Machine(2)
        echo = model(machine, Echo(machine))
        for _ in range(100):
            calls = [ask(echo, number) for number in range(6)]
            await asyncio.sleep(0)
            await machine.dispatcher.drain()
            assert (echo.statistics.waiting, echo.statistics.running) == (0, 0)
            found = await asyncio.gather(*calls, return_exceptions=True)
            assert not [one for one in found if isinstance(one, OpweldError)]

    asyncio.run(scenario())


def test_a_thread_outlives_the_loop_that_it_worked_for() -> None:
    workers, gate = Workers(1), threading.Event()
    loop = asyncio.new_event_loop()
    job = loop.create_task(workers.run(lambda: gate.wait(PATIENCE_S)))
    loop.run_until_complete(asyncio.sleep(0))
    job.cancel()
    loop.run_until_complete(asyncio.gather(job, return_exceptions=True))
    loop.close()
    gate.set()
    assert asyncio.run(workers.run(lambda: 1)) == 1

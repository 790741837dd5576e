"""Callers that come and go while a thread steps the engine. Nothing here waits for time to pass."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from random import Random

import pytest

from opweld.errors import ClosedError, InputError, OptionError, QueueFull, RunError
from opweld.llm.async_engine import AsyncEngine
from opweld.llm.engine import Engine
from opweld.llm.requests import Delta, Finish, Grammar, Request
from opweld.llm.settings import Settings
from opweld.llm.step import Span
from tests.patience import PATIENCE_S
from tests.unit.llm.fake import FakeRunner, alone, letters, request

LETTERS = letters()


def run(coroutine: Coroutine[object, object, None]) -> None:
    async def patiently() -> None:
        await asyncio.wait_for(coroutine, PATIENCE_S)

    asyncio.run(patiently())


async def answer(engine: AsyncEngine, one: Request) -> list[Delta]:
    return [delta async for delta in engine.generate(one)]


def tokens(deltas: Sequence[Delta]) -> list[int]:
    return [chosen.token for delta in deltas for chosen in delta.chosen]


class Gate:
    """Lets a runner's steps through one by one."""

    def __init__(self, runner: FakeRunner) -> None:
        self.came, self.open = threading.Semaphore(0), threading.Semaphore(0)
        runner.before = self.wait

    def wait(self, spans: Sequence[Span]) -> None:
        self.came.release()
        assert self.open.acquire(timeout=PATIENCE_S)

    async def arrival(self) -> None:
        assert await asyncio.to_thread(self.came.acquire, timeout=PATIENCE_S)


def test_many_callers_get_their_own_answers() -> None:
    several = [request(str(at), [at % 39 + 1] * (at % 17 + 1), limit=at % 9 + 1) for at in range(60)]

    async def main() -> None:
        engine = AsyncEngine(Engine(FakeRunner(blocks=24), LETTERS, Settings(budget=32, rows=16)))
        answers = await asyncio.gather(*(answer(engine, one) for one in several))
        for one, deltas in zip(several, answers, strict=True):
            assert (tokens(deltas), "".join(delta.text for delta in deltas)) == alone(one, LETTERS)
            assert [delta.finish is not None for delta in deltas] == [False] * (len(deltas) - 1) + [True]
        assert engine.unfinished == 0
        await engine.close()
        assert engine.statistics.blocks_in_use == 0

    run(main())


def test_callers_that_leave_at_random_take_nothing_from_others() -> None:
    chance = Random(5)
    several = [request(str(at), [at % 39 + 1] * 9, limit=20, to_the_limit=True) for at in range(60)]
    leaving = {one.id: chance.randrange(20) for one in several if chance.random() < 0.5}

    async def call(engine: AsyncEngine, one: Request) -> list[Delta]:
        got: list[Delta] = []
        async with aclosing(engine.generate(one)) as deltas:
            async for delta in deltas:
                got.append(delta)
                if len(got) > leaving.get(one.id, 99):
                    break
        return got

    async def main() -> None:
        engine = AsyncEngine(Engine(FakeRunner(blocks=24), LETTERS, Settings(budget=32, rows=16)))
        answers = await asyncio.gather(*(call(engine, one) for one in several))
        for one, deltas in zip(several, answers, strict=True):
            expected = alone(one, LETTERS)[0]
            assert tokens(deltas) == expected[: leaving.get(one.id, 99) + 1]
        await engine.close(PATIENCE_S)
        assert engine.unfinished == 0
        assert engine.statistics.blocks_in_use == 0

    run(main())


def test_a_cancelled_task_aborts_its_request() -> None:
    async def main() -> None:
        runner = FakeRunner()
        gate = Gate(runner)
        engine = AsyncEngine(Engine(runner, LETTERS))
        task = asyncio.create_task(answer(engine, request("a", [1], to_the_limit=True)))
        await gate.arrival()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.open.release()
        # The same id again: what the step before it told is not for it.
        again = asyncio.create_task(answer(engine, request("a", [2, 3], limit=1)))
        await gate.arrival()
        assert [span.tokens for span in runner.steps[-1]] == [(2, 3)]
        gate.open.release()
        assert tokens(await again) == alone(request("a", [2, 3], limit=1), LETTERS)[0]
        await engine.close()
        assert engine.statistics.blocks_in_use == 0

    run(main())


def test_a_caller_who_leaves_late_does_not_end_the_next_of_its_id() -> None:
    async def main() -> None:
        runner = FakeRunner()
        gate = Gate(runner)
        engine = AsyncEngine(Engine(runner, LETTERS))
        gate.open.release()
        first = engine.generate(request("a", [1], limit=1))
        assert (await anext(first)).finish is not None  # it has ended, and nobody has closed it
        await gate.arrival()
        one = request("a", [2, 3], limit=4, to_the_limit=True)
        second = asyncio.create_task(answer(engine, one))
        await gate.arrival()
        await first.aclose()
        gate.open.release(99)
        assert tokens(await second) == alone(one, LETTERS)[0]
        await engine.close()

    run(main())


def test_a_full_queue_refuses_until_there_is_room() -> None:
    async def main() -> None:
        runner = FakeRunner()
        gate = Gate(runner)
        engine = AsyncEngine(Engine(runner, LETTERS, Settings(rows=1, queue=1)))
        tasks = [asyncio.create_task(answer(engine, request(id, [1], limit=1))) for id in "ab"]
        await gate.arrival()
        with pytest.raises(QueueFull, match="1 requests wait already"):
            await answer(engine, request("c", [1]))
        gate.open.release()
        await tasks[0]
        gate.open.release(99)
        assert tokens(await answer(engine, request("c", [1], limit=1)))
        await tasks[1]
        await engine.close()

    run(main())


def test_what_cannot_be_answered_is_refused_and_takes_no_place() -> None:
    async def main() -> None:
        engine = AsyncEngine(Engine(FakeRunner(), LETTERS, Settings(rows=1, queue=0)))
        for _ in range(3):
            with pytest.raises(InputError, match="empty"):
                await answer(engine, request("a", []))
            with pytest.raises(OptionError, match="regex"):
                await answer(engine, request("a", [1], grammar=Grammar("regex", "(")))
        assert engine.unfinished == 0
        await engine.close()

    run(main())


def test_an_id_in_use_is_refused_and_its_first_caller_goes_on() -> None:
    async def main() -> None:
        runner = FakeRunner()
        gate = Gate(runner)
        engine = AsyncEngine(Engine(runner, LETTERS))
        one = request("a", [1], limit=3, to_the_limit=True)
        first = asyncio.create_task(answer(engine, one))
        await gate.arrival()
        second = asyncio.create_task(answer(engine, one))
        await asyncio.sleep(0)  # it runs until it waits
        gate.open.release(99)
        with pytest.raises(OptionError, match="already"):
            await second
        assert tokens(await first) == alone(one, LETTERS)[0]
        assert engine.unfinished == 0
        await engine.close()

    run(main())


def test_a_model_that_fails_is_told_to_its_callers_and_the_next_are_answered() -> None:
    async def main() -> None:
        runner = FakeRunner()

        def fail(spans: Sequence[Span]) -> None:
            raise ValueError("bad weights")

        runner.before = fail
        engine = AsyncEngine(Engine(runner, LETTERS))
        with pytest.raises(RunError, match="ValueError: bad weights"):
            await answer(engine, request("a", [1]))
        runner.before = lambda spans: None
        assert tokens(await answer(engine, request("a", [1], limit=1)))
        await engine.close()

    run(main())


def test_closing_waits_for_answers_and_refuses_new_ones() -> None:
    async def main() -> None:
        runner = FakeRunner()
        gate = Gate(runner)
        engine = AsyncEngine(Engine(runner, LETTERS))
        one = request("a", [1], limit=3, to_the_limit=True)
        task = asyncio.create_task(answer(engine, one))
        await gate.arrival()
        closing = asyncio.create_task(engine.close(PATIENCE_S))
        while not engine.closing:
            await asyncio.sleep(0)
        with pytest.raises(ClosedError):
            await answer(engine, request("b", [1]))
        gate.open.release(99)
        assert tokens(await task) == alone(one, LETTERS)[0]
        await closing

    run(main())


def test_closing_without_patience_ends_answers_with_an_abort() -> None:
    async def main() -> None:
        runner = FakeRunner()
        gate = Gate(runner)
        engine = AsyncEngine(Engine(runner, LETTERS))
        task = asyncio.create_task(answer(engine, request("a", [1], limit=100, to_the_limit=True)))
        await gate.arrival()
        closing = asyncio.create_task(engine.close())
        while not engine.closing:
            await asyncio.sleep(0)
        gate.open.release(99)
        deltas = await task
        assert deltas[-1].finish == "abort"
        assert len(tokens(deltas)) < 100
        await closing
        await engine.close()
        assert engine.unfinished == 0
        assert engine.statistics.blocks_in_use == 0

    run(main())


def test_an_event_loop_that_ends_leaves_no_request() -> None:
    runner = FakeRunner()
    gate = Gate(runner)
    engine = AsyncEngine(Engine(runner, LETTERS))
    loop = asyncio.new_event_loop()
    deltas = engine.generate(request("a", [1], to_the_limit=True))
    waiting = loop.create_task(anext(deltas))
    loop.run_until_complete(gate.arrival())
    waiting.cancel()  # its abort comes after the step that is under way
    loop.run_until_complete(asyncio.gather(waiting, return_exceptions=True))
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    gate.open.release(999)

    async def main() -> None:
        assert tokens(await answer(engine, request("b", [1], limit=2, to_the_limit=True)))
        await engine.close()
        assert engine.statistics.blocks_in_use == 0

    run(main())


@dataclass
class Seen:
    """An observer that writes down what it is told."""

    events: list[tuple[object, ...]] = field(default_factory=list)

    def first_token(self, seconds: float) -> None:
        self.events.append(("first", seconds))

    def next_tokens(self, seconds: float, count: int) -> None:
        self.events.append(("next", seconds, count))

    def finished(self, seconds: float, prompt: int, answer: int, finish: Finish | None) -> None:
        self.events.append(("finished", seconds, prompt, answer, finish))


def test_an_observer_is_told_times() -> None:
    async def main() -> None:
        runner = FakeRunner()
        now = [100.0]
        engine = AsyncEngine(Engine(runner, LETTERS), clock=lambda: now[0])
        engine.subscribe(seen := Seen())

        def later(spans: Sequence[Span]) -> None:
            now[0] += 2.0 if len(runner.steps) == 1 else 0.5

        runner.before = later
        await answer(engine, request("a", [1, 2, 3], limit=3, to_the_limit=True))
        await engine.close()
        assert seen.events == [
            ("first", 2.0),
            ("next", 0.5, 1),
            ("next", 0.5, 1),
            ("finished", 3.0, 3, 3, "length"),
        ]

    run(main())


def test_the_thread_sleeps_while_there_is_nothing_to_do() -> None:
    async def main() -> None:
        engine = Engine(FakeRunner(), LETTERS)
        steps: list[int] = []
        step = engine.step
        engine.step = lambda: steps.append(1) or step()
        served = AsyncEngine(engine)
        await answer(served, request("a", [1], limit=3, to_the_limit=True))
        await answer(served, request("b", [1], limit=3, to_the_limit=True))
        await served.close()
        assert len(steps) == 6

    run(main())

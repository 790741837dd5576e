"""How a request comes to an end."""

from __future__ import annotations

import asyncio

import pytest

from opweld.serve.refusal import stopping
from opweld.serve.visits import Cut, Visit, Visits


def visit() -> Visit:
    return Visit("client", "POST", "/")


def test_a_visit_is_ended_from_outside() -> None:
    async def scenario() -> None:
        one = visit()
        asyncio.get_running_loop().call_soon(one.end, stopping())
        with pytest.raises(Cut), Visits().endable(one):
            await asyncio.Event().wait()
        task = asyncio.current_task()
        assert task is not None and task.cancelling() == 0
        assert one.outcome == 503
        await asyncio.sleep(0)  # nobody cancels it any more

    asyncio.run(scenario())


def test_a_visit_takes_too_long() -> None:
    async def scenario() -> None:
        one = visit()
        with pytest.raises(Cut), Visits(seconds=0.001).endable(one):
            await one.wait()
        assert one.why is not None and one.why.code == "timeout"

    asyncio.run(scenario())


def test_a_task_is_cancelled_by_somebody_else() -> None:
    async def answer(one: Visit) -> None:
        with Visits().endable(one):
            await asyncio.Event().wait()

    async def scenario() -> None:
        one = visit()
        task = asyncio.create_task(answer(one))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert one.outcome == 499

    asyncio.run(scenario())


def test_a_visit_that_was_over_before_is_not_cancelled() -> None:
    async def scenario() -> None:
        one = visit()
        with Visits().endable(one):
            one.status, one.complete = 200, True
        one.end(stopping())
        await asyncio.sleep(0)
        assert one.outcome == 200

    asyncio.run(scenario())

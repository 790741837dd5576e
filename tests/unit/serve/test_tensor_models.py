"""The models that other tests stand on keep the contract of `serve.inference.model`."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from opweld.errors import InputError, LateError, QueueFull
from opweld.serve.inference.model import Call, Repository
from opweld.serve.refusal import Refusal
from tests.unit.serve.tensor_models import FakeRepository, slow


def test_sum_and_difference() -> None:
    repository: Repository = FakeRepository()
    model = repository.get("simple")
    assert (model.version, repository.versions("simple")) == ("3", ["1", "3"])
    ones = np.ones((2, 16), np.int32)
    feeds = {"INPUT0": ones * 3, "INPUT1": ones}
    found = asyncio.run(model.infer(feeds, Call(outputs=["OUTPUT1"])))
    assert list(found) == ["OUTPUT1"] and (found["OUTPUT1"] == 2).all()
    assert (model.statistics.calls, model.statistics.rows) == (1, 2)
    with pytest.raises(InputError, match="INPUT1 has shape"):
        asyncio.run(model.infer(feeds | {"INPUT1": ones[:1]}, Call()))


def test_what_waits_is_refused_late_or_gives_up_its_place() -> None:
    async def scenario() -> None:
        model = slow(most=1)
        feeds = {"x": np.ones(1, np.float32)}
        first = asyncio.create_task(model.infer(feeds, Call()))
        await asyncio.sleep(0)
        with pytest.raises(QueueFull):
            await model.infer(feeds, Call())
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert (model.gone, model.statistics.running) == (1, 0)
        with pytest.raises(LateError):
            await model.infer(feeds, Call(deadline=0.0))

    asyncio.run(scenario())


def test_loading() -> None:
    async def scenario() -> None:
        repository = FakeRepository()
        with pytest.raises(Refusal, match="not loaded") as refused:
            repository.get("asleep")
        assert refused.value.status == 400
        await repository.load("asleep")
        assert repository.get("asleep").name == "asleep"
        await repository.unload("asleep")
        assert next(one for one in repository.index() if one.name == "asleep").state == "UNAVAILABLE"
        with pytest.raises(Refusal) as refused:
            await repository.load("nobody")
        assert refused.value.status == 404

    asyncio.run(scenario())

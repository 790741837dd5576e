"""A run with timed kernels, and what a fake model tells of it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import numpy as np

from opweld.runtime.plan import PlanDescription, Step
from opweld.runtime.profile import profile_of
from opweld.serve.inference.model import Call, KernelTime, Run
from opweld.serve.inference.timed import timed_run
from tests.unit.serve.tensor_models import KERNEL, simple


def test_kernels_are_named_as_profiles_name_them() -> None:
    steps = (
        Step("k1_map", "Add", 0, 1, 64, 16, 10),
        Step("k2_rows", "", 1, 0, 0, 0, 0),
        Step("k3_map", "", 1, 1, 8, 2, 9),
    )
    plan = PlanDescription((), "main", 0, 0, 0, 0, 2, steps)
    timings = np.zeros((2, 3, 4), np.int64)
    timings[0, 0], timings[1, 0], timings[1, 2] = (100, 300, 200, 2), (90, 250, 160, 1), (400, 500, 100, 1)
    made = [np.ones(2)]
    session: Any = SimpleNamespace(profile=lambda feeds: profile_of(made, plan, 600, timings))
    outputs, kernels = timed_run(session, {})
    assert outputs is made
    assert kernels == [KernelTime("k1_map", 0, 90, 300, 16, 64), KernelTime("k3_map", 1, 400, 500, 2, 8)]


class Observer:
    wants_kernels = True

    def __init__(self) -> None:
        self.runs: list[Run] = []

    def ran(self, run: Run) -> None:
        self.runs.append(run)


def test_an_observer_is_told_of_the_run() -> None:
    call = Call(observer=Observer())
    rows = np.ones((2, 16), np.int32)
    asyncio.run(simple().infer({"INPUT0": rows, "INPUT1": rows}, call))
    assert isinstance(call.observer, Observer)
    (run,) = call.observer.runs
    assert (run.rows, run.calls, run.kernels) == (2, [call], [KERNEL]) and run.begun <= run.ended

"""No test depends on time: how fast models are is counted, or said by the test."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest

from opweld.compress import timing
from opweld.tune.trial import Gain

Measure = Callable[[onnx.ModelProto, onnx.ModelProto], float]
"""How many times as fast one model is as another."""


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Measure]:
    """The last one says how fast models are: by their weights, unless a test appends another."""
    rules: list[Measure] = [lambda before, after: cost(before).seconds / cost(after).seconds]

    def cost(part: onnx.ModelProto) -> timing.Cost:
        count = sum(int(np.prod(tensor.dims)) for tensor in part.graph.initializer)
        return timing.Cost(4 * count, 2 * count, count * 1e-9)

    def race(before: onnx.ModelProto, after: onnx.ModelProto, *_: object) -> Gain:
        ratio = rules[-1](before, after)
        return Gain(ratio, ratio, 1e-3, 1e-3 / ratio)

    monkeypatch.setattr(timing, "cost_of", cost)
    monkeypatch.setattr(timing, "race", race)
    return rules

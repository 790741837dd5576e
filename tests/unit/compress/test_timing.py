"""What parts of a model cost, and which are of the same shape."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opweld.calibration.graph import Graph
from opweld.compress import timing
from opweld.compress.low_rank import LowRank
from opweld.compress.matrix import as_matrix, dense_layers
from opweld.tune.trial import Gain
from tests.unit.compress.models import network


def test_a_part_costs_what_its_layers_do(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph(network())
    layer = dense_layers(graph)[1]
    axes = np.linalg.svd(as_matrix(layer, graph.array(layer.weights)), full_matrices=False)[2].astype(np.float64)
    change = LowRank(layer, axes, 16)
    timer = timing.Timer(graph, {"z": (2, 96), "h": (2, 112), "x": (2, 64, 5, 5)})
    before, after = timer.cost([layer.node]), timer.cost([layer.node], [change])
    assert before.flops == 2 * 2 * 96 * 112 and after.flops == 2 * 2 * 16 * (96 + 112)
    assert 4 * 96 * 112 < before.bytes < 4 * 96 * 112 + 100 and after.bytes < before.bytes and after.seconds > 0
    raced: list[Any] = []

    def race(one: Any, other: Any, feeds: Any, _: object) -> Gain:
        raced.append((len(one.graph.node), len(other.graph.node), {name: a.shape for name, a in feeds.items()}))
        return Gain(2.0, 2.0, 1.0, 0.5)

    monkeypatch.setattr(timing, "race", race)
    assert timer.gain(change) == timer.gain(change)
    assert raced == [(1, 2, {"z": (2, 96)})]


def test_two_models_are_timed_in_turns() -> None:
    graph = Graph(network())
    layer = dense_layers(graph)[1]
    model = timing.Timer(graph, {"z": (2, 96)}).part([layer.node])
    gain = timing.race(model, model, timing.random_feeds(model), timing.Blocks(rounds=1, block_s=1e-3, runs=3))
    assert gain.before > 0 and gain.after > 0 and gain.ratio > 0


def test_faster_is_more_than_noise() -> None:
    assert timing.faster(Gain(1.2, 1.1, 1.2, 1.0))
    assert not timing.faster(Gain(1.02, 1.01, 1.02, 1.0)) and not timing.faster(Gain(1.2, 0.99, 1.2, 1.0))

"""Weights that become zeros, where a pattern has them, and what is told of them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import opweld
from opweld.calibration.graph import Graph
from opweld.compress.matrix import as_matrix, dense_layers
from opweld.compress.zeros import Pattern, blocks, two_of_four, zeros_of
from tests.unit.compress.models import network, samples


def test_two_of_four_inputs_of_each_result_stay() -> None:
    scores = np.random.default_rng(0).random((10, 3))
    gone = two_of_four(scores)
    assert gone[:8].reshape(2, 4, 3).sum(axis=1).tolist() == [[2] * 3] * 2
    for column in range(3):
        assert set(np.argsort(scores[:4, column])[:2]) == set(np.flatnonzero(gone[:4, column]))
    assert not gone[8:].any()  # of the two at the end both stay


def test_blocks_are_whole_and_of_one_tap() -> None:
    scores = np.ones((8, 20 * 2))
    scores.reshape(8, 20, 2)[:4, 16:, 1] = 0.1
    gone = blocks(scores, 1 / 8, 20).reshape(8, 20, 2)
    assert gone[:4, 16:, 1].all() and gone.sum() == 4 * 4


@pytest.mark.parametrize("method", ["2:4", "blocks", "unstructured"])
def test_what_is_left_makes_up_for_the_zeros(method: Pattern) -> None:
    graph = Graph(network())
    layer = dense_layers(graph)[1]
    weights = as_matrix(layer, graph.array(layer.weights))
    random = np.random.default_rng(2)
    rows = random.standard_normal((400, 30)) @ random.standard_normal((30, 96)) + random.standard_normal((400, 96)) / 3
    found = zeros_of(graph, layer, method, (rows.T @ rows).astype(np.float32))
    assert len(found) == (1 if method == "2:4" else 6)
    made = as_matrix(layer, found[0].weights(graph)[layer.node])
    assert (made == 0).mean() == pytest.approx(found[0].zeros, abs=0.02)
    lost = np.linalg.norm(rows @ (weights - made))
    assert lost < 0.8 * np.linalg.norm(rows @ (weights * (made == 0)))
    errors = [np.linalg.norm(rows @ (weights - as_matrix(layer, z.weights(graph)[layer.node]))) for z in found]
    assert errors == sorted(errors)


@pytest.mark.usefixtures("measured")
def test_zeros_are_told_of_and_kept_only_where_no_speed_is_asked_for() -> None:
    told = opweld.compress(network(), samples(), methods=["unstructured"], max_error=0.2)
    assert [layer.methods for layer in told.layers] == [()] * 3
    assert all(
        "zeros alone moves the outputs by" in layer.reason and "no kernel" in layer.reason for layer in told.layers
    )
    done = opweld.compress(network(), samples(), methods=["unstructured"], max_error=0.2, without_speedup=True)
    onnx.checker.check_model(done.model, full_check=True)
    changed = [layer for layer in done.layers if layer.methods]
    assert changed and all(layer.zeros >= 0.49 and layer.after == layer.before for layer in changed)
    assert done.error <= 0.2 and "no kernel skips zeros" in done.notes[-1]

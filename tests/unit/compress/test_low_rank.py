"""Ranks by what data excite: the results are as near as any of that rank, and nearer than by the weights alone."""

from __future__ import annotations

import numpy as np
import pytest

from opweld.calibration.graph import Graph
from opweld.compress.low_rank import low_ranks, ranks_of
from opweld.compress.matrix import LANES, as_matrix, as_stored, dense_layers
from tests.unit.compress.models import EXCITED, network, samples


@pytest.mark.parametrize("place", range(3))
def test_the_results_are_as_near_as_their_singular_values_allow(place: int) -> None:
    graph = Graph(network())
    layer = dense_layers(graph)[place]
    stored = graph.array(layer.weights)
    weights = as_matrix(layer, stored)
    rows = np.random.default_rng(2).standard_normal((300, len(weights))) * np.geomspace(1, 1e-3, len(weights))
    found, why = low_ranks(graph, layer, (rows.T @ rows).astype(np.float32))
    assert found and not why
    sizes = np.linalg.svd(rows @ weights, compute_uv=False)
    for change in found:
        rank = int(change.amount.split()[1])
        made = as_matrix(layer, change.weights(graph)[layer.node])
        assert np.linalg.matrix_rank(made, tol=1e-4) == rank
        least = float(np.sqrt((sizes[rank:] ** 2).sum()))
        assert np.linalg.norm(rows @ (weights - made)) == pytest.approx(least, rel=1e-2)
    u, s, v = np.linalg.svd(weights)
    rank = int(found[-1].amount.split()[1])
    plain = (u[:, :rank] * s[:rank]) @ v[:rank]
    made = as_matrix(layer, found[-1].weights(graph)[layer.node])
    assert np.linalg.norm(rows @ (weights - made)) < 0.7 * np.linalg.norm(rows @ (weights - plain))


def test_moments_may_be_singular() -> None:
    graph = Graph(network())
    layer = next(layer for layer in dense_layers(graph) if graph.nodes[layer.node].op_type == "MatMul")
    rows = np.concatenate([one["z"] for one in samples(40)])
    thin = np.linalg.svd(rows, full_matrices=False)
    rows = (thin[0][:, :EXCITED] * thin[1][:EXCITED]) @ thin[2][:EXCITED]
    found, _ = low_ranks(graph, layer, (rows.T @ rows).astype(np.float32))
    made = found[0].weights(graph)[layer.node]
    right = rows @ graph.array(layer.weights)
    assert np.linalg.norm(rows @ made - right) < 1e-3 * np.linalg.norm(right)


def test_ranks_are_whole_vectors_and_have_fewer_weights() -> None:
    sizes = np.geomspace(1, 1e-6, 200)
    found = ranks_of(sizes, 100)
    assert found == sorted(found, reverse=True) and found[0] <= 100
    assert all(rank % LANES == 0 for rank in found if rank >= LANES)
    assert ranks_of(np.ones(200), 100) == []
    assert ranks_of(np.array([1.0, 0.0, 0.0]), 1) == [1]


def test_a_convolution_of_several_taps_is_told() -> None:
    import onnx
    from onnx import numpy_helper

    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 13]>
        g (float[1, 4, 8, 8] x) => (float[1, 8, 6, 6] y) { y = Conv (x, w) }""")
    model.graph.initializer.append(numpy_helper.from_array(np.ones((8, 4, 3, 3), np.float32), "w"))
    graph = Graph(model)
    (layer,) = dense_layers(graph)
    assert low_ranks(graph, layer, np.eye(4, dtype=np.float32)) == (
        [], "a convolution of several taps is no product of two matrices",
    )  # fmt: skip
    matrix = as_matrix(layer, graph.array("w"))
    assert matrix.shape == (4, 72)
    np.testing.assert_array_equal(as_stored(layer, matrix, (8, 4, 3, 3)), graph.array("w"))

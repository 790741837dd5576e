"""A layer as two smaller ones: of all products of two matrices of a rank, the one whose results are nearest.

The results X W of a layer are nearest, of a rank, where they are projected on their own principal axes: those of the
singular value decomposition of R W, for any R with R'R = X'X. So what data never excite costs no rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import NodeProto, helper

from opweld.calibration.edits import Edits
from opweld.calibration.graph import Graph, Layer
from opweld.compress.change import Change, Method
from opweld.compress.matrix import LANES, as_matrix, as_stored, pointwise

Array = NDArray[Any]

LOST = (1e-4, 1e-3, 3e-3, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4)
"""Of the results, the root of the squares' part that ranks which are compared lose."""


class LowRank(Change):
    """A layer as two; see `Change`.

    Args:
        axes: the principal axes of the layer's results, orthonormal rows float64 [at least rank, results].
    """

    def __init__(self, layer: Layer, axes: NDArray[np.float64], rank: int) -> None:
        self._layer, self._axes, self._rank = layer, axes, rank

    @property
    def method(self) -> Method:
        """See `Change`."""
        return "low-rank"

    @property
    def layer(self) -> Layer:
        """See `Change`."""
        return self._layer

    @property
    def amount(self) -> str:
        """See `Change`."""
        return f"rank {self._rank} of {len(self._axes)}"

    def weights(self, graph: Graph) -> Mapping[int, Array]:
        """See `Change`."""
        stored = graph.array(self._layer.weights)
        first, second = self._factors(stored)
        return {self._layer.node: as_stored(self._layer, first @ second, stored.shape)}

    def write(self, edits: Edits) -> None:
        """See `Change`."""
        layer, graph = self._layer, edits.graph
        node = graph.nodes[layer.node]
        first, second = (made.astype(np.float32) for made in self._factors(graph.array(layer.weights)))
        within = edits.fresh(f"{layer.name}_low_rank")
        names = [f"{layer.weights}_first", f"{layer.weights}_second"]
        if node.op_type == "Conv":
            taps = (1,) * (len(graph.stored[layer.weights].dims) - 2)
            first, second = (made.T.reshape(*made.T.shape, *taps) for made in (first, second))
            one = NodeProto()
            one.CopyFrom(node)
            del one.input[:], one.output[:]
            one.name = within
            one.input.extend([layer.data, edits.store(first, names[0])])
            one.output.append(within)
        else:
            one = helper.make_node("MatMul", [layer.data, edits.store(first, names[0])], [within], name=within)
        bias = [layer.bias] if layer.bias else []
        other = helper.make_node(
            node.op_type, [within, edits.store(second, names[1]), *bias], list(node.output), name=node.name
        )
        edits.instead[layer.node] = [one, other]

    def _factors(self, stored: Array) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        axes = self._axes[: self._rank]
        return as_matrix(self._layer, stored) @ axes.T, axes


def low_ranks(graph: Graph, layer: Layer, moments: NDArray[np.float32]) -> tuple[list[LowRank], str]:
    """A layer of ranks at which it has fewer weights, the highest first; or why there is none.

    `moments`: the second moments of the layer's inputs, [inputs, inputs]."""
    if not pointwise(graph, layer):
        return [], "a convolution of several taps is no product of two matrices"
    weights = as_matrix(layer, graph.array(layer.weights))
    inputs, results = weights.shape
    most = (inputs * results - 1) // (inputs + results)
    if not most:
        return [], f"no rank of a {inputs} x {results} matrix has fewer weights"
    _, sizes, axes = np.linalg.svd(_root(moments) @ weights, full_matrices=False)
    found = [LowRank(layer, axes.astype(np.float64), rank) for rank in ranks_of(sizes, most)]
    return (
        found,
        "" if found else f"of rank {most}, with as many weights, it loses {_lost(sizes)[most]:.0%} of its results",
    )


def ranks_of(sizes: Array, most: int) -> list[int]:
    """Ranks of at most `most`, in descending order, that lose about as much as is compared.

    `sizes`: the singular values of the results, in descending order."""
    found: dict[int, None] = {}
    for lost in LOST:
        rank = max(1, int((_lost(sizes) > lost).sum()))
        rank = -(-rank // LANES) * LANES if rank >= LANES else rank
        if rank <= most:
            found[rank] = None
    return list(found)


def _lost(sizes: Array) -> NDArray[np.float64]:
    """By rank, from 0 on, the root of the squares' part that is lost."""
    squares = np.append(np.cumsum((sizes**2)[::-1])[::-1], 0.0)
    return np.sqrt(squares / max(float(squares[0]), np.finfo(np.float64).tiny))


def _root(moments: NDArray[np.float32]) -> NDArray[np.float64]:
    """A matrix R with R'R the moments, which may be singular."""
    values, vectors = np.linalg.eigh(moments.astype(np.float64))
    return np.sqrt(np.maximum(values, 0))[:, None] * vectors.T

"""Whole channels removed: the layers that add up the others make up for them.

The channel whose removal adds least to the squared error of the consumers' results goes first, and the weights of those
that are left are changed as adds least: the optimal brain surgeon (Hassibi and Stork, 1992) for rows of weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opweld.calibration.compensation import inverse
from opweld.calibration.edits import Edits
from opweld.calibration.graph import Graph, Layer
from opweld.compress.chains import Chain, cut_axis, depthwise
from opweld.compress.change import Change, Claim, Method
from opweld.compress.matrix import LANES, as_matrix, as_stored, results_axis

Array = NDArray[Any]
Numbers = NDArray[np.float64]

KEPT = (15 / 16, 7 / 8, 3 / 4, 5 / 8, 1 / 2, 3 / 8, 1 / 4, 1 / 8)
"""Of all channels, the parts that are left."""

AT_ONCE = 1 / 128
"""Of all channels, the part that is removed before the scores of the others are looked at again."""


class Cut(Change):
    """Channels of a chain removed; see `Change`.

    Args:
        kept: the places of the others, in order. rows: by consumer's node, its weights [kept inputs, results].
    """

    def __init__(self, chain: Chain, kept: NDArray[np.intp], rows: Mapping[int, Numbers]) -> None:
        self._chain, self._kept, self._rows = chain, kept, rows

    @property
    def method(self) -> Method:
        """See `Change`."""
        return "channels"

    @property
    def layer(self) -> Layer:
        """See `Change`."""
        return self._chain.producer

    @property
    def nodes(self) -> tuple[int, ...]:
        """See `Change`."""
        return self._chain.nodes

    @property
    def claims(self) -> frozenset[Claim]:
        """See `Change`."""
        inputs: list[Claim] = [(layer.node, "inputs") for layer in self._chain.consumers]
        return frozenset([(self._chain.producer.node, "results"), *inputs])

    @property
    def amount(self) -> str:
        """See `Change`."""
        return f"{len(self._kept)} of {self._chain.count} channels"

    @property
    def told(self) -> Mapping[int, str]:
        """See `Change`."""
        inputs = f"{len(self._kept)} of {self._chain.count} inputs"
        return {**{layer.node: inputs for layer in self._chain.consumers}, self.layer.node: self.amount}

    def weights(self, graph: Graph) -> Mapping[int, Array]:
        """See `Change`."""
        found: dict[int, Array] = {}
        for layer in self._chain.consumers:
            rows = self._rows[layer.node]
            whole = np.zeros((self._chain.count, rows.shape[1]))
            whole[self._kept] = rows
            found[layer.node] = as_stored(layer, whole, graph.stored[layer.weights].dims)
        return found

    def write(self, edits: Edits) -> None:
        """See `Change`."""
        graph, chain, producer = edits.graph, self._chain, self._chain.producer
        self._take(edits, producer.node, producer.weights, results_axis(producer))
        if producer.bias:
            self._take(edits, producer.node, producer.bias, 0)
        for i in chain.between:
            node = graph.nodes[i]
            if depthwise(graph, node, chain.count):
                for name in filter(None, node.input[1:]):
                    self._take(edits, i, name, 0)
                edits.attributes[i] = {"group": len(self._kept)}
                continue
            for name in dict.fromkeys(node.input):
                axis = cut_axis(graph, name, chain.axis, chain.count) if name in graph.stored else None
                if axis is not None:
                    self._take(edits, i, name, axis)
        for layer in chain.consumers:
            shape = graph.stored[layer.weights].dims
            edits.replace(layer.node, layer.weights, as_stored(layer, self._rows[layer.node], shape))
        edits.resized |= {name: (chain.axis, len(self._kept)) for name in chain.values}

    def _take(self, edits: Edits, node: int, name: str, axis: int) -> None:
        edits.replace(node, name, np.take(edits.array(node, name), self._kept, axis))


def cuts(graph: Graph, chain: Chain, moments: Mapping[int, NDArray[np.float32]]) -> list[Cut]:
    """A chain with fewer and fewer channels, the most first.

    `moments`: by consumer's node, the second moments of what it reads, [channels, channels]."""
    parts: list[tuple[Numbers, Numbers]] = []
    dead = np.ones(chain.count, np.bool_)
    for layer in chain.consumers:
        weights, inverted = as_matrix(layer, graph.array(layer.weights)), inverse(moments[layer.node])
        if inverted is None:
            return []
        dead &= (np.diagonal(moments[layer.node]) == 0) | ~weights.any(axis=1)
        parts.append((weights, inverted))
    nodes = [layer.node for layer in chain.consumers]
    found: list[Cut] = []
    for kept, rows in _left(parts, dead, _counts(chain.count, int(dead.sum()))):
        found.append(Cut(chain, kept, dict(zip(nodes, rows, strict=True))))
    return found


def _counts(count: int, dead: int) -> list[int]:
    """How many channels are left, in descending order."""
    wanted = [int(part * count) for part in KEPT]
    whole = {n - n % LANES if n >= LANES else n for n in (*wanted, -(-(count - dead) // LANES) * LANES)}
    return sorted((n for n in {*whole, count - dead} if 1 <= n < count), reverse=True)


def _left(
    parts: Sequence[tuple[Numbers, Numbers]], dead: NDArray[np.bool_], counts: Sequence[int]
) -> list[tuple[NDArray[np.intp], list[Numbers]]]:
    """What is left where channels are removed until there are so many: their places, and each consumer's weights.

    `parts`: of each consumer its weights [channels, results] and the inverse of its second moments, both changed.
    `dead`: channels that nobody misses."""
    there = np.ones(len(dead), np.bool_)
    most = max(1, int(len(dead) * AT_ONCE))
    found: list[tuple[NDArray[np.intp], list[Numbers]]] = []
    for count in counts:
        while (left := int(there.sum())) > count:
            scores = np.zeros(len(dead))
            for weights, inverted in parts:
                scores += (weights**2).sum(axis=1) / np.maximum(np.diagonal(inverted), np.finfo(np.float64).tiny)
            scores[dead] = 0
            scores[~there] = np.inf
            gone = np.argsort(scores, kind="stable")[: min(most, left - count)]
            there[gone] = False
            for weights, inverted in parts:
                _remove(weights, inverted, gone)
        kept = np.flatnonzero(there)
        found.append((kept, [weights[kept].copy() for weights, _ in parts]))
    return found


def _remove(weights: Numbers, inverted: Numbers, gone: NDArray[np.intp]) -> None:
    """Removes channels of a consumer, in place: the others make up for them as far as they can."""
    across = np.linalg.solve(inverted[np.ix_(gone, gone)], inverted[gone])
    weights -= across.T @ weights[gone]
    weights[gone] = 0
    inverted -= inverted[:, gone] @ across
    inverted[gone] = 0
    inverted[:, gone] = 0

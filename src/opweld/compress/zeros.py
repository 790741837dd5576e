"""Weights that become zeros, one by one, two of four, or in blocks; those that are left make up for them.

A weight's score is its square by what its removal lets the others make up for: w^2 / d^2, d the diagonal of the factor
of the inverse second moments (SparseGPT, Frantar and Alistarh, 2023). No kernel skips the zeros: a layer has as many
bytes and operations as before."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from opweld.calibration.compensation import PANEL, inverse_factor, settle_in_order
from opweld.calibration.edits import Edits
from opweld.calibration.graph import Graph, Layer
from opweld.compress.change import Change, Method
from opweld.compress.matrix import as_matrix, as_stored, results_axis

Array = NDArray[Any]
Numbers = NDArray[np.float64]
Mask = NDArray[np.bool_]

PARTS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""Of a layer's weights, the parts that become zeros."""

BLOCK = (4, 16)
"""Inputs and results of a block: some steps of a contraction's innermost loop, and a vector or two of its results."""

GROUP = (2, 4)
"""Of so many neighbouring inputs' weights of a result, so many stay, as sparse tensor cores have it."""

Pattern = Literal["2:4", "blocks", "unstructured"]
PATTERNS: dict[Pattern, str] = {
    "2:4": "two of four", "blocks": f"in blocks of {BLOCK[0]} x {BLOCK[1]}", "unstructured": "",
}  # fmt: skip
"""Where the zeros are, by method."""


class Zeros(Change):
    """A layer some of whose weights are zeros; see `Change`.

    Args:
        part: of the weights, that become zeros. made: the weights, as the layer stores them.
    """

    def __init__(self, layer: Layer, method: Pattern, part: float, made: NDArray[np.float32]) -> None:
        self._layer, self._part, self._made = layer, part, made
        self._method: Pattern = method

    @property
    def method(self) -> Method:
        """See `Change`."""
        return self._method

    @property
    def layer(self) -> Layer:
        """See `Change`."""
        return self._layer

    @property
    def amount(self) -> str:
        """See `Change`."""
        return f"{self._part:.0%} zeros {PATTERNS[self._method]}".rstrip()

    @property
    def zeros(self) -> float:
        """See `Change`."""
        return self._part

    def weights(self, graph: Graph) -> Mapping[int, Array]:
        """See `Change`."""
        return {self._layer.node: self._made}

    def write(self, edits: Edits) -> None:
        """See `Change`."""
        edits.replace(self._layer.node, self._layer.weights, self._made)


def zeros_of(graph: Graph, layer: Layer, method: Pattern, moments: NDArray[np.float32]) -> list[Zeros]:
    """A layer with more and more zeros; none where the moments have no inverse.

    `moments`: the second moments of the layer's inputs, [inputs, inputs]."""
    factor = inverse_factor(moments)
    if factor is None:
        return []
    stored = graph.array(layer.weights)
    matrix, results = as_matrix(layer, stored), stored.shape[results_axis(layer)]
    found: list[Zeros] = []
    for part in (1 - GROUP[0] / GROUP[1],) if method == "2:4" else PARTS:
        made = matrix.copy()
        _prune(made, factor, _chooser(method, part, results))
        found.append(Zeros(layer, method, part, as_stored(layer, made, stored.shape)))
    return found


def _prune(left: Numbers, factor: Numbers, choose: Callable[[Numbers], Mask]) -> None:
    """Makes zeros of what is chosen of a panel's scores [inputs, results], in place."""
    squares = np.diagonal(factor)[:, None] ** 2
    gone = np.zeros(left.shape, np.bool_)

    def settled(i: int) -> Numbers:
        if i % PANEL == 0:
            panel = slice(i, i + PANEL)
            gone[panel] = choose(left[panel] ** 2 / squares[panel])
        return np.where(gone[i], 0.0, left[i])

    settle_in_order(left, factor, settled)


def _chooser(method: Pattern, part: float, results: int) -> Callable[[Numbers], Mask]:
    """What of the scores of a panel goes: so large a part of the weights, of layers of so many results."""
    if method == "2:4":
        return two_of_four
    if method == "blocks":
        return lambda scores: blocks(scores, part, results)
    return lambda scores: _lowest(scores, part)


def two_of_four(scores: Numbers) -> Mask:
    """All but the two largest of each four neighbouring inputs' scores, of each result; of fewer all but two too."""
    stay, of = GROUP
    padded = _padded(scores, of, 1, -np.inf)
    groups = padded.reshape(-1, of, scores.shape[1])
    order = np.argsort(groups, axis=1, kind="stable")
    gone = np.zeros(groups.shape, np.bool_)
    np.put_along_axis(gone, order[:, : of - stay], True, axis=1)
    return gone.reshape(padded.shape)[: len(scores)]


def blocks(scores: Numbers, part: float, results: int) -> Mask:
    """Whole blocks whose sums of scores are the smallest; the taps of a convolution have blocks of their own."""
    inputs, taps = len(scores), scores.shape[1] // results
    by_tap = scores.reshape(inputs, results, taps).transpose(2, 0, 1)
    sums = [
        _padded(one, *BLOCK, 0.0).reshape(-(-inputs // BLOCK[0]), BLOCK[0], -(-results // BLOCK[1]), BLOCK[1])
        for one in by_tap
    ]
    gone = _lowest(np.stack([one.sum(axis=(1, 3)) for one in sums]), part)
    whole = gone.repeat(BLOCK[0], axis=1).repeat(BLOCK[1], axis=2)[:, :inputs, :results]
    return whole.transpose(1, 2, 0).reshape(scores.shape)


def _padded(array: Numbers, rows: int, columns: int, value: float) -> Numbers:
    """To whole multiples of rows and columns."""
    return np.pad(array, [(0, -array.shape[0] % rows), (0, -array.shape[1] % columns)], constant_values=value)


def _lowest(scores: Numbers, part: float) -> Mask:
    """The lowest of them, so large a part."""
    gone = np.zeros(scores.size, np.bool_)
    gone[np.argsort(scores, axis=None, kind="stable")[: round(part * scores.size)]] = True
    return gone.reshape(scores.shape)

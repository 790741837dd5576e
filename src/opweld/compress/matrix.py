"""A layer's weights as a matrix whose rows are the layer's inputs, however the layer stores them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opweld.calibration.graph import Graph, Layer, attributes_of

Array = NDArray[Any]


LANES = 16
"""Numbers of channels and ranks, where there are so many, are multiples of it: kernels compute whole vectors."""


def dense_layers(graph: Graph) -> list[Layer]:
    """The layers each of whose results is a sum over all inputs: MatMul and Gemm of matrices, Conv without groups."""
    found: list[Layer] = []
    for layer in graph.layers():
        node, rank = graph.nodes[layer.node], len(graph.stored[layer.weights].dims)
        matrix = node.op_type in ("MatMul", "Gemm") and rank == 2
        if matrix or (node.op_type == "Conv" and attributes_of(node).get("group", 1) == 1):
            found.append(layer)
    return found


def inputs_axis(layer: Layer) -> int:
    """Of the layer's weights, the axis that is summed over; of a convolution that of its channels."""
    return 1 if layer.sums is None else layer.sums


def results_axis(layer: Layer) -> int:
    """Of the layer's weights, the axis of its results."""
    return 0 if layer.axis is None else layer.axis


def as_matrix(layer: Layer, weights: Array) -> NDArray[np.float64]:
    """Weights as float64 [inputs, results]; the taps of a convolution count as results."""
    moved = np.moveaxis(weights, inputs_axis(layer), 0)
    return np.ascontiguousarray(moved.reshape(len(moved), -1), np.float64)


def as_stored(layer: Layer, matrix: Array, shape: Sequence[int]) -> NDArray[np.float32]:
    """A matrix as the layer's weights of this shape, but for its number of inputs, which may be another one."""
    axis = inputs_axis(layer)
    others = [size for i, size in enumerate(shape) if i != axis]
    moved = matrix.reshape(len(matrix), *others)
    return np.ascontiguousarray(np.moveaxis(moved, 0, axis), np.float32)


def pointwise(graph: Graph, layer: Layer) -> bool:
    """Whether a layer multiplies by one matrix: a linear layer or a convolution of one tap."""
    return all(size == 1 for size in graph.stored[layer.weights].dims[2:])

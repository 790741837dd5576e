"""Weights as integers, and biases that make up for what rounding them adds to the mean of a layer's results.

Rounding weights moves the mean of a channel by the sum of its weights' errors times the means of what they multiply
(Nagel et al., Data-Free Quantization Through Weight Equalization and Bias Correction, 2019)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from opweld.quantize.calibrate import Observed
from opweld.quantize.graph import Graph, Layer
from opweld.quantize.scales import Weights, quantize_blocks, quantize_weights

Array = NDArray[Any]
Precision = Literal["int8", "int8-weights", "int4-weights"]

BLOCK = 32
"""Weights of int4 that share a scale, along what is summed over."""


def weights_of(graph: Graph, layer: Layer, precision: Precision) -> Weights:
    """A layer's weights as integers: int4 in blocks where they are a matrix and that is asked for, else int8 by
    channel."""
    weights = graph.array(layer.weights)
    if precision == "int4-weights" and layer.sums is not None and weights.ndim == 2:
        return quantize_blocks(weights, layer.sums, BLOCK)
    return quantize_weights(weights, layer.axis)


def unusable(graph: Graph, layers: Iterable[Layer]) -> dict[int, str]:
    """Why a layer's weights or bias cannot be integers, by its node."""
    found: dict[int, str] = {}
    for layer in layers:
        for name in (layer.weights, layer.bias):
            if name and not np.isfinite(graph.array(name)).all():
                found[layer.node] = f"{name!r} holds NaN or infinity"
    return found


def corrected_bias(graph: Graph, layer: Layer, weights: Weights, observed: Observed) -> Array | None:
    """The bias, float32, less what rounding the weights adds; None where a layer takes none, or its channels have no
    means."""
    mean = observed.means.get((layer.data, layer.channels))
    means = None if mean is None else mean.means()
    op = graph.nodes[layer.node].op_type
    if means is None or not layer.biased or op == "ConvTranspose":
        return None
    stored = graph.array(layer.weights)
    wrong = weights.values().astype(np.float64) - stored
    if op == "Gemm":
        shift = wrong @ means if layer.axis == 0 else means @ wrong
    else:
        taps = wrong.reshape(*wrong.shape[:2], -1).sum(axis=-1)
        groups = len(means) // taps.shape[1]
        each = means.reshape(groups, 1, taps.shape[1])
        shift = (taps.reshape(groups, -1, taps.shape[1]) * each).sum(axis=-1).reshape(-1)
    bias = graph.array(layer.bias) if layer.bias else np.zeros(len(shift), np.float32)
    return (bias - shift).astype(np.float32)

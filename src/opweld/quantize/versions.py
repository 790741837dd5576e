"""A layer at a precision: its weights as integers, and a bias that makes up for what rounding them adds.

Rounding weights moves the mean of a channel by the sum of its weights' errors times the means of what they multiply
(Nagel et al., Data-Free Quantization Through Weight Equalization and Bias Correction, 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from opweld.calibration.graph import Graph, Layer
from opweld.calibration.windows import reads_of
from opweld.quantize.calibrate import Observed
from opweld.quantize.rounding import rounded_by_channel, rounded_in_order
from opweld.quantize.scales import Affine
from opweld.tensor.integer_weights import Weights, block_length, quantize_blocks, quantize_weights

Array = NDArray[Any]
Precision = Literal["int8", "int8-weights", "int4-weights"]
Rounding = Literal["nearest", "gptq"]


@dataclass(frozen=True)
class Version:
    """A layer at a precision.

    Attributes:
        precision: `int8` where what it reads is integer too. weights: as integers.
        bias: float32, where it is another one than the model's. rounding: how the weights were rounded.
    """

    precision: Precision
    weights: Weights
    bias: Array | None = None
    rounding: Rounding = "nearest"


@dataclass(frozen=True)
class Setting:
    """An assignment: the layers that are integers, by node, and the ranges of values. Other layers are floats."""

    versions: Mapping[int, Version]
    ranges: Mapping[str, Affine]

    @property
    def integer(self) -> set[int]:
        """The layers that read integers."""
        return {node for node, version in self.versions.items() if version.precision == "int8"}


def codes_of(graph: Graph, layer: Layer, reduced: bool, least: NDArray[np.float64] | float = 0.0) -> Weights:
    """Weights of int8 by channel, no scale below `least`. `reduced`: neighbours of what is summed, which an instruction
    multiplies and adds, are as small as it takes that their sums fit 16 bits."""
    weights = graph.array(layer.weights)
    paired = layer.sums if layer.sums is not None or layer.axis is None else 1 - layer.axis
    return quantize_weights(weights, layer.axis, least, paired=paired if reduced and layer.data else None)


def version_of(
    graph: Graph,
    layer: Layer,
    precision: Precision,
    rounding: Rounding = "nearest",
    observed: Observed | None = None,
    reduced: bool = False,
) -> Version:
    """A layer at a precision: int4 in blocks where its weights are a matrix of whole blocks, else int8 by channel;
    gathered rows are stored weights at any precision."""
    weights, reads = graph.array(layer.weights), reads_of(graph, layer)
    moments = None
    if rounding == "gptq" and observed is not None and reads is not None:
        moments = observed.moments.get(reads)
    block = block_of(layer, weights) if precision == "int4-weights" else 0
    if block and layer.sums is not None:
        if moments is not None:
            made = rounded_in_order(weights, layer.sums, block, moments.sums)
            return Version(precision, made, None, rounding)
        return Version(precision, quantize_blocks(weights, layer.sums, block))
    alone = precision if precision == "int8" and layer.data else "int8-weights"
    made = codes_of(graph, layer, reduced and alone == "int8")
    if moments is None:
        return Version(alone, made)
    return Version(alone, rounded_by_channel(weights, made, layer.sums, moments.sums), None, rounding)


def block_of(layer: Layer, weights: Array) -> int:
    """Weights of int4 of a scale; 0 where a layer has none of int4."""
    if layer.sums is None or weights.ndim != 2:
        return 0
    return block_length(weights.shape[layer.sums])


def corrected(graph: Graph, layer: Layer, version: Version, observed: Observed) -> Version:
    """With a bias that is less what rounding the weights adds; as it is where the layer takes none, or its channels
    have no means."""
    mean = observed.means.get((layer.data, layer.channels))
    means = None if mean is None else mean.means()
    if means is None or not layer.biased:
        return version
    wrong = version.weights.values().astype(np.float64) - graph.array(layer.weights)
    if graph.nodes[layer.node].op_type == "Gemm":
        shift = wrong @ means if layer.axis == 0 else means @ wrong
    else:
        taps = wrong.reshape(*wrong.shape[:2], -1).sum(axis=-1)
        groups = len(means) // taps.shape[1]
        each = means.reshape(groups, 1, taps.shape[1])
        shift = (taps.reshape(groups, -1, taps.shape[1]) * each).sum(axis=-1).reshape(-1)
    bias = graph.array(layer.bias) if layer.bias else np.zeros(len(shift), np.float32)
    return replace(version, bias=(bias - shift).astype(np.float32))

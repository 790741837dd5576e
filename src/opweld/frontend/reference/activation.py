"""Activations, some with a bias on the last axis, and the activations of fused operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from opweld.frontend.reference.standard import MICROSOFT, Array, erf, sigmoid
from opweld.ops.registry import computes

HUGE = 3.4028235e38


def gelu(x: Array) -> Array:
    """x / 2 * (1 + erf(x / sqrt 2))"""
    return x / 2 * (1 + erf(x / math.sqrt(2)))


@computes("Gelu", "BiasGelu", domain=MICROSOFT)
def gelu_of(x: Array, bias: Array | None = None) -> Array:
    """gelu(x + bias)"""
    return gelu(x if bias is None else x + bias)


@computes("FastGelu", domain=MICROSOFT)
def fast_gelu(x: Array, bias: Array | None = None) -> Array:
    """The approximation by a tanh."""
    x = x if bias is None else x + bias
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


@computes("QuickGelu", domain=MICROSOFT)
def quick_gelu(x: Array, alpha: float = 1.702) -> Array:
    """x * sigmoid(alpha * x)"""
    return x * sigmoid(alpha * x)


@computes("BiasAdd", domain=MICROSOFT)
def bias_add(x: Array, bias: Array, skip: Array) -> Array:
    """x + bias + skip"""
    return x + bias + skip


@computes("BiasSplitGelu", domain=MICROSOFT)
def bias_split_gelu(x: Array, bias: Array) -> Array:
    """The first half of x + bias times gelu of the second."""
    first, second = np.split(x + bias, 2, axis=-1)
    return first * gelu(second)


@computes("Trilu", domain=MICROSOFT)
def trilu(x: Array, k: Array | None = None, upper: int = 1) -> Array:
    """The upper or lower triangle of the last two axes."""
    return (np.triu if upper else np.tril)(x, 0 if k is None else int(k.reshape(-1)[0]))


def activated(x: Array, name: str | None, parameters: Sequence[float] = ()) -> Array:
    """The activation of a fused operator's result; the parameters are those of the activation, in ONNX's order."""

    def number(place: int, default: float) -> float:
        return float(parameters[place]) if place < len(parameters) else default

    formulas: Mapping[str, Callable[[], Array]] = {
        "": lambda: x,
        "Relu": lambda: np.maximum(x, 0),
        "Tanh": lambda: np.tanh(x),
        "Sigmoid": lambda: sigmoid(x),
        "LeakyRelu": lambda: np.where(x < 0, number(0, 0.01) * x, x),
        "Clip": lambda: np.clip(x, number(0, -HUGE), number(1, HUGE)),
        "HardSigmoid": lambda: np.clip(number(0, 0.2) * x + number(1, 0.5), 0, 1),
        "Gelu": lambda: gelu(x),
        "Silu": lambda: x * sigmoid(x),
    }
    return formulas[name or ""]()

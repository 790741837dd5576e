# pyright: basic, reportUnknownParameterType=false, reportMissingParameterType=false, reportUnknownVariableType=false
"""Activations, as epilogues apply them, and their derivatives.

| name | a(x) |
|---|---|
| none | x |
| relu | max(x, 0); NaN stays |
| silu | x / (1 + exp(-x)) |
| gelu | x (1 + erf(x / sqrt 2)) / 2 |
| gelu_tanh | x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2 |
"""

from __future__ import annotations

import triton
import triton.language as tl

from opweld.errors import InputError

ACTIVATIONS = ("none", "relu", "silu", "gelu", "gelu_tanh")

HALF_ROOT = tl.constexpr(0.7071067811865476)  # 1 / sqrt 2
INVERSE_ROOT = tl.constexpr(0.3989422804014327)  # 1 / sqrt(2 pi)
TANH_ROOT = tl.constexpr(1.5957691216057308)  # 2 sqrt(2 / pi): tanh u is 2 sigmoid(2 u) - 1
TANH_CUBE = tl.constexpr(0.044715)


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x)), in the type of x."""
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def activate(x, ACTIVATION: tl.constexpr):
    """a(x); x is float32 or float64."""
    if ACTIVATION == "relu":
        return tl.where(x < 0.0, 0.0, x)  # not max, which loses NaN
    elif ACTIVATION == "silu":
        return x * sigmoid(x)
    elif ACTIVATION == "gelu":
        return 0.5 * x * (1.0 + tl.erf(x * HALF_ROOT))
    elif ACTIVATION == "gelu_tanh":
        return x * sigmoid(TANH_ROOT * (x + TANH_CUBE * x * x * x))
    else:
        tl.static_assert(ACTIVATION == "none")
        return x


@triton.jit
def derivative(x, ACTIVATION: tl.constexpr):
    """a'(x); x is float32 or float64. relu's is 0 at 0, as PyTorch's."""
    if ACTIVATION == "relu":
        return tl.where(x > 0.0, 1.0, 0.0).to(x.dtype)
    elif ACTIVATION == "silu":
        s = sigmoid(x)
        return s * (1.0 + x * (1.0 - s))
    elif ACTIVATION == "gelu":
        return 0.5 * (1.0 + tl.erf(x * HALF_ROOT)) + x * INVERSE_ROOT * tl.exp(-0.5 * x * x)
    elif ACTIVATION == "gelu_tanh":
        s = sigmoid(TANH_ROOT * (x + TANH_CUBE * x * x * x))
        return s + x * s * (1.0 - s) * TANH_ROOT * (1.0 + 3.0 * TANH_CUBE * x * x)
    else:
        tl.static_assert(ACTIVATION == "none")
        return tl.full(x.shape, 1.0, x.dtype)


def check_activation(activation: str) -> None:
    """The activation is one of `ACTIVATIONS`.

    Raises:
        InputError: it is not.
    """
    if activation not in ACTIVATIONS:
        raise InputError(f"activation is {activation!r}, expected one of {', '.join(ACTIVATIONS)}")

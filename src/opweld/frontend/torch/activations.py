"""Activation functions."""

from __future__ import annotations

from functools import partial

from opweld.frontend.torch.arithmetic import clamp
from opweld.frontend.torch.builder import Builder, Scalar, Value
from opweld.frontend.torch.rows import aten
from opweld.ops.aten.elementwise import DOMAIN
from opweld.tensor.dtype import DType


def _plain(op_type: str, b: Builder, x: Value) -> Value:
    return b.op(op_type, x)


for _name, _operator in {"hardswish": "HardSwish", "mish": "Mish"}.items():
    aten(f"{_name}.default")(partial(_plain, _operator))


@aten("relu.default")
def relu(b: Builder, x: Value) -> Value:
    """max(x, 0)"""
    return b.op("Relu", x) if b.dtype.is_float else b.op("Max", x, b.cast(0, b.dtype))


@aten("relu6.default")
def relu6(b: Builder, x: Value) -> Value:
    """x between 0 and 6."""
    return clamp(b, x, 0, 6)


@aten("silu.default")
def silu(b: Builder, x: Value) -> Value:
    """x sigmoid(x)"""
    return b.op("Swish", x)


@aten("gelu.default")
def gelu(b: Builder, x: Value, approximate: str = "none") -> Value:
    """x times the normal distribution's integral up to x."""
    return b.op("Gelu", x, approximate=approximate)


@aten("leaky_relu.default")
def leaky_relu(b: Builder, x: Value, negative_slope: float = 0.01) -> Value:
    """x, or a part of it where it is negative."""
    return b.op("LeakyRelu", x, alpha=float(negative_slope))


@aten("_prelu_kernel.default")
def prelu(b: Builder, x: Value, weight: Value) -> Value:
    """x, or a part of it where it is negative, told by a tensor that broadcasts to x."""
    return b.op("PRelu", x, weight)


@aten("hardtanh.default")
def hardtanh(b: Builder, x: Value, min_val: Scalar = -1, max_val: Scalar = 1) -> Value:
    """x between limits."""
    return clamp(b, x, min_val, max_val)


@aten("hardsigmoid.default")
def hardsigmoid(b: Builder, x: Value) -> Value:
    """x / 6 + 1/2 between 0 and 1."""
    return b.op("HardSigmoid", x, alpha=1 / 6, beta=0.5)


@aten("elu.default")
def elu(b: Builder, x: Value, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Value:
    """scale x, or scale alpha (exp(input_scale x) - 1) where x is not positive."""
    scaled = x if input_scale == 1 else b.op("Mul", x, b.cast(input_scale, b.dtype))
    low = b.op("Mul", b.op("Expm1", scaled, domain=DOMAIN), b.cast(float(alpha) * float(scale), b.dtype))
    high = x if scale == 1 else b.op("Mul", x, b.cast(scale, b.dtype))
    positive = b.op("Greater", x, b.cast(0, b.dtype), dtype=DType.BOOL)
    return b.op("Where", positive, high, low, dtype=b.dtype)


@aten("softplus.default")
def softplus(b: Builder, x: Value, beta: float = 1, threshold: float = 20) -> Value:
    """log(1 + exp(beta x)) / beta, and x where beta x is beyond the threshold."""
    scaled = x if beta == 1 else b.op("Mul", x, b.cast(beta, b.dtype))
    soft = b.op("Softplus", scaled)
    soft = soft if beta == 1 else b.op("Div", soft, b.cast(beta, b.dtype))
    beyond = b.op("Greater", scaled, b.cast(threshold, b.dtype), dtype=DType.BOOL)
    return b.op("Where", beyond, x, soft, dtype=b.dtype)


@aten("glu.default")
def glu(b: Builder, x: Value, dim: int = -1) -> Value:
    """The first half times the sigmoid of the second."""
    axis = b.axis(dim, b.rank(x))
    first, second = b.ops("Split", x, None, dtypes=[None, None], axis=axis, num_outputs=2)
    return b.op("Mul", first, b.op("Sigmoid", second))


@aten("log_sigmoid.default", "log_sigmoid_forward.default")
def log_sigmoid(b: Builder, x: Value) -> Value:
    """-log(1 + exp(-x))"""
    found = b.op("Neg", b.op("Softplus", b.op("Neg", x)))
    return (found, None) if isinstance(b.made, list | tuple) else found  # type: ignore[return-value]

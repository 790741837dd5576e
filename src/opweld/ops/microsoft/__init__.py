"""Operators that ONNX Runtime and its tools write: `com.microsoft`. Importing the package registers every family."""

from opweld.ops.microsoft import (
    activation,
    attention,
    fused,
    normalization,
    quantized,
    recurrent,
    rotary,
    standard,
    standing,
)

__all__ = [
    "activation",
    "attention",
    "fused",
    "normalization",
    "quantized",
    "recurrent",
    "rotary",
    "standard",
    "standing",
]

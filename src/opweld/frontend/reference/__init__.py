"""What operators of `com.microsoft`, and those of ONNX that its own evaluator gets wrong, mean in NumPy: integers
exactly, floats in the precision of what they are given.

They are what compiled code is compared with, computed from the definitions, with nothing of how they are lowered."""

from opweld.frontend.reference import (
    activation,
    attention,
    fused,
    normalization,
    pooling,
    quantized,
    recurrent,
    resizing,
    rotary,
    sampling,
    weights,
)

__all__ = [
    "activation",
    "attention",
    "fused",
    "normalization",
    "pooling",
    "quantized",
    "recurrent",
    "resizing",
    "rotary",
    "sampling",
    "weights",
]

"""Reference semantics in NumPy of operators of `com.microsoft`, and of those that ONNX's evaluator computes wrong:
integers exactly, floats in the precision of the operands.

Compiled code is compared with them; they follow the definitions, independently of the lowering."""

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

"""What operators of `com.microsoft` mean in NumPy: integers exactly, floats in the precision of what they are given.

They are what compiled code is compared with, computed from the definitions, with nothing of how they are lowered."""

from opweld.frontend.reference import (
    activation,
    attention,
    fused,
    normalization,
    quantized,
    recurrent,
    rotary,
    sampling,
    weights,
)

__all__ = [
    "activation",
    "attention",
    "fused",
    "normalization",
    "quantized",
    "recurrent",
    "rotary",
    "sampling",
    "weights",
]

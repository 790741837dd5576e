"""Operators that ONNX Runtime and its tools write: `com.microsoft`. Importing the package registers every family."""

from opweld.ops.microsoft import activation, fused, normalization

__all__ = ["activation", "fused", "normalization"]

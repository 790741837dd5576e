"""Operators of PyTorch that no operator of ONNX says: domain `aten`. Importing the package registers every family."""

from opweld.ops.aten import assertion, elementwise

__all__ = ["assertion", "elementwise"]

"""Operators of classical machine learning: `ai.onnx.ml`. Importing the package registers every family."""

__all__: list[str] = []

"""Operators of classical machine learning: `ai.onnx.ml`. Importing the package registers every family."""

from opweld.ops.ml import features, linear, svm, trees

__all__ = ["features", "linear", "svm", "trees"]

"""Models of a few nodes for datasets."""

from __future__ import annotations

from pathlib import Path

import onnx
import onnx.parser

HEAD = '<ir_version: 9, opset_import: ["" : 17]>\n'

ROWS = """m (float[batch, 3] x) => (float[batch, 2] y) <float[3, 2] w = {1, 2, 3, 4, 5, 6}>
{ z = MatMul(x, w) y = Relu(z) }"""
"""Whole numbers in, whole numbers out."""

PAIRS = """m (float[2, 3] x, float s) => (float[2, 3] y, float[3] total) <int64[1] a = {0}>
{ y = Mul(x, s) total = ReduceSum<keepdims = 0>(x, a) }"""
"""Two rows a run, an input that is no row, an output that is no row."""


def write_model(text: str, folder: Path) -> Path:
    """The model as a file."""
    path = folder / "model.onnx"
    onnx.save(onnx.parser.parse_model(HEAD + text), path)
    return path

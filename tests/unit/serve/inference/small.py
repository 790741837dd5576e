"""Small models, compiled once for a test run's cache."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import parser

import opweld

_HEAD = '<ir_version: 10, opset_import: ["": 23, "ai.onnx.ml": 3]>'


def graph(text: str) -> onnx.ModelProto:
    return parser.parse_model(f"{_HEAD} g {text}")


def plus(number: int) -> onnx.ModelProto:
    """y = x + number, by rows."""
    return graph(f"(float[N, 3] x) => (float[N, 3] y) {{ c = Constant<value_float = {number}.0>() y = Add(x, c) }}")


def saved(model: onnx.ModelProto, folder: Path) -> Path:
    """The artifact of a model."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    return opweld.compile(model).save(folder)

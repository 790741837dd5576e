"""A run-time index that no lane wants is neither read nor checked."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

import opweld
from opweld.options import LevelName

PADDED = """<ir_version: 8, opset_import: ["" : 17]>
g (int64[S, N] x, float[2, 3, 9] v) => (float[?, ?, ?] y) <float one = {1}, int64[6] pads = {0, 1, 1, 1, 1, 0}> {
    rows = Gather(table, x)
    small = Clip(rows, "", one)
    padded = Pad(small, pads)
    y = Concat <axis = 1> (v, padded)
}"""


@pytest.mark.parametrize("level", ["none", "basic", "all"])
def test_padding_around_gathered_rows(level: LevelName) -> None:
    model = onnx.parser.parse_model(PADDED)
    table = np.arange(48, dtype=np.float32).reshape(6, 8) / 50
    model.graph.initializer.append(onnx.numpy_helper.from_array(table, "table"))
    # What lies before and after the index is none.
    around: Any = np.full(3, 10**12, np.int64)
    around[1] = 3
    first = np.ones((2, 3, 9), np.float32)
    made = opweld.compile(model, level=level).run({"x": around[1:2].reshape(1, 1), "v": first})["y"]
    expected = np.concatenate([first, np.pad(table[[[3]]], ((0, 1), (1, 1), (1, 0)))], axis=1)
    np.testing.assert_array_equal(made, expected)


TWICE = """<ir_version: 8, opset_import: ["" : 17]>
g (int64[1, 2] x, float[2, 1, 1] v) => (float[?, ?, ?, ?] y) {
    wide = Pad(v, inner)
    rows = Gather(wide, x)
    y = Pad(rows, outer)
}"""
"""Whether a row of `v` is read is said by an index, and whether there is an index by padding around it."""


@pytest.mark.parametrize("level", ["none", "basic", "all"])
@pytest.mark.parametrize("target", ["native", "sm_90"])
def test_padding_around_rows_gathered_from_padding(level: LevelName, target: str) -> None:
    inner, outer = ((0, 2), (0, 1), (2, 2)), ((1, 0), (2, 0), (1, 2), (2, 0))
    model = onnx.parser.parse_model(TWICE)
    for name, pads in (("inner", inner), ("outer", outer)):
        values = np.array(pads).T.ravel()
        model.graph.initializer.append(onnx.numpy_helper.from_array(values, name))
    around: Any = np.full(6, 10**12, np.int64)
    around[2:4] = 1, 3
    v = np.array([[[5]], [[7]]], np.float32)
    made = opweld.compile(model, level=level, target=target).run({"x": around[2:4].reshape(1, 2), "v": v})["y"]
    np.testing.assert_array_equal(made, np.pad(np.pad(v, inner)[[[1, 3]]], outer))

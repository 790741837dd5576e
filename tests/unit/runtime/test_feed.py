"""Lists of Python's numbers as feeds, against what onnxruntime makes of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from opweld.errors import InputError
from opweld.runtime.feed import prepare

KINDS = {
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "int64": TensorProto.INT64,
    "uint8": TensorProto.UINT8,
    "bool": TensorProto.BOOL,
}


def theirs(value: Any, dtype: str) -> Any:
    interface = [helper.make_tensor_value_info(name, KINDS[dtype], None) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", interface[:1], interface[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": value})[0]


@pytest.mark.parametrize(
    "dtype, value",
    [
        ("float32", [1, 2]),
        ("float32", [[1, 2.5], [True, -3]]),
        ("float32", [2**24 + 1]),
        ("float32", [np.array([1, 2])]),
        ("float16", [1, 300]),
        ("int64", [1.0, -2.0]),
        ("int64", [True, 2]),
        ("uint8", [255, 0]),
        ("bool", [0, 1, 1.0]),
    ],
)
def test_numbers_become_the_declared_dtype(dtype: str, value: Any) -> None:
    expected = theirs(value, dtype)
    found = prepare("x", value, np.dtype(dtype))
    assert (found.dtype, found.tolist()) == (expected.dtype, expected.tolist())


@pytest.mark.parametrize(
    "dtype, value",
    [
        ("int64", [1.5]),  # there it becomes 1
        ("int64", [float("nan")]),
        ("uint8", [256]),
        ("uint8", [-1]),
        ("bool", [2]),
        ("float32", [1j]),
        ("float32", ["1"]),
        ("float32", [None]),
        ("float32", [np.datetime64(1, "s")]),
    ],
)
def test_what_the_declared_dtype_cannot_hold_is_refused(dtype: str, value: Any) -> None:
    with pytest.raises(InputError, match=f"input 'x': expected an array of dtype {dtype}, got list of"):
        prepare("x", value, np.dtype(dtype))


def test_arrays_keep_their_dtype() -> None:
    for value in (np.arange(3), np.int64(3), np.arange(3.0)):
        with pytest.raises(InputError, match=r"convert it with .astype\('float32'\)"):
            prepare("x", value, np.dtype(np.float32))

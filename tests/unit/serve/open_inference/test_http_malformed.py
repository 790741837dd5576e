"""Requests over HTTP that are wrong: each is answered by an error that names the tensor and what to do."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from opweld.errors import InputError
from opweld.serve.inference.model import TensorSpec
from opweld.serve.open_inference.tensors import Declared
from tests.unit.serve.open_inference.running import Running, tensor

X = tensor("x", "FP32", [2], [1, 2])


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "no inputs"),
        (b"{", "no JSON"),
        (b"[]", "no JSON object"),
        (b"\xff\xfe", "no JSON"),
        (b"[" * 100_000, "no JSON"),
        (b'{"inputs": ' + b"[" * 100_000, "nested too deeply"),
        (b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [NaN]}]}', "NaN is no JSON"),
        (b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [-Infinity]}]}', "no JSON"),
        (b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1e999]}]}', "too large for float32"),
        ({}, "no inputs"),
        ({"inputs": {}}, "inputs is not an array"),
        ({"inputs": [1]}, "not an array of objects"),
        ({"inputs": []}, "x is not given; the model takes x"),
        ({"inputs": [X], "id": 5}, "id is not a string"),
        ({"inputs": [X], "parameters": []}, "parameters is not an object"),
        ({"inputs": [X], "outputs": [{}]}, "an output has no name"),
        ({"inputs": [X], "outputs": [{"name": "z"}]}, "z is no output of same_FP32; it gives y"),
        ({"inputs": [X], "outputs": [{"name": "y"}, {"name": "y"}]}, "asked for twice"),
        ({"inputs": [X, X]}, "x is given twice"),
        ({"inputs": [{**X, "name": "z"}]}, "z is no input of the model; it takes x"),
        ({"inputs": [{**X, "name": None}]}, "an input has no name"),
        ({"inputs": [{**X, "datatype": "FP64"}]}, "x is sent as FP64; the model takes FP32"),
        ({"inputs": [{**X, "datatype": "fp32"}]}, "none of BOOL, UINT8"),
        ({"inputs": [{**X, "shape": None}]}, "input x has no shape"),
        ({"inputs": [{**X, "shape": [2.0]}]}, "shape is not an array of integers"),
        ({"inputs": [{**X, "shape": [True, 2]}]}, "shape is not an array of integers"),
        ({"inputs": [{**X, "shape": [1, 2]}]}, "x has shape [1, 2], the model takes [n]"),
        ({"inputs": [{**X, "shape": [-2]}]}, "dims of a request are 0 or more"),
        ({"inputs": [{**X, "shape": [3]}]}, "2 values in its data, its shape [3] asks for 3"),
        ({"inputs": [{**X, "shape": [1 << 62]}]}, "larger than any memory"),
        ({"inputs": [{**X, "shape": [1 << 33, 1 << 33, 0]}]}, "larger than any memory"),
        ({"inputs": [{**X, "shape": [1] * 65}]}, "65 dims"),
        ({"inputs": [{**X, "data": None}]}, "has its values in one of data"),
        ({"inputs": [{**X, "data": 5}]}, "1 values in its data"),
        ({"inputs": [{**X, "data": [[1], [2, 3]]}]}, "its data is no tensor"),
        ({"inputs": [{**X, "data": ["1", "2"]}]}, "other values than numbers"),
        ({"inputs": [{**X, "data": [None, 1]}]}, "other values than numbers"),
        ({"inputs": [{**X, "data": [{}, {}]}]}, "other values than numbers"),
        ({"inputs": [{**X, "data": [10**400, 1]}]}, "other values than numbers"),
        ({"inputs": [{**X, "data": [1e39, 1]}]}, "too large for float32"),
        ({"inputs": [tensor("x", "FP32", [2], [1, 2], binary_data_size=8)]}, "in one of data"),
        ({"inputs": [tensor("x", "FP32", [2], binary_data_size="8")]}, "binary_data_size is '8'"),
        ({"inputs": [tensor("x", "FP32", [2], binary_data_size=-8)]}, "0 or more"),
        ({"inputs": [tensor("x", "FP32", [2], binary_data_size=8)]}, "but 0 bytes of the body are left"),
    ],
)  # fmt: skip
def test_json(running: Running, body: Any, said: str) -> None:
    status, answer = running.post("/v2/models/same_FP32/infer", body)
    assert status == 400 and said in answer["error"]


@pytest.mark.parametrize(
    ("datatype", "data", "said"),
    [
        ("INT8", [128], "not from -128 to 127"),
        ("UINT8", [-1], "not from 0 to 255"),
        ("UINT64", [1 << 64], "other values than integers"),
        ("UINT64", [-1], "not from 0"),
        ("INT64", [1 << 63], "not from -9223372036854775808"),
        ("INT32", [1.0], "other values than integers"),
        ("INT32", [True, 7], "other values than integers"),
        ("FP32", [[1.0], ["2"]], "other values than numbers"),
        ("BOOL", [1], "other values than true and false"),
        ("FP16", [1e5], "too large for float16"),
        ("BF16", [True], "other values than numbers"),
        ("BYTES", [1], "other values than strings"),
        ("BYTES", ["\ud800"], "no tensor of strings"),
        ("BYTES", [["a"], ["b", "c"]], "other values than strings"),
    ],
)
def test_values(running: Running, datatype: str, data: list[Any], said: str) -> None:
    inputs = [tensor("x", datatype, [1], data)]
    status, answer, _ = running.infer(f"same_{datatype}", {"inputs": inputs})
    assert status == 400 and "x" in answer["error"] and said in answer["error"]


def test_strings_for_numbers_take_no_memory() -> None:
    declared = Declared(TensorSpec("x", np.dtype(np.float32), ("n",)), "FP32", [1])
    data = ["x" * 40_000, *("y" * 200)]
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match="other values than numbers"):
            declared.of_values(data, finite=True)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("datatype", "shape", "data", "said"),
    [
        ("FP32", [2], bytes(7), "7 bytes of data, but [2] of float32 are 8"),
        ("BOOL", [2], b"\1\2", "neither 0 nor 1"),
        ("BYTES", [1], b"\1\0\0", "no length of a string"),
        ("BYTES", [1], b"\2\0\0\0a", "said to have 2 bytes, but 1 are left"),
        ("BYTES", [1], b"\xff\xff\xff\xffa", "said to have 4294967295 bytes"),
        ("BYTES", [2], b"\1\0\0\0a", "has 1 strings, its shape [2] asks for 2"),
        ("BYTES", [1], bytes(8), "more than 1 strings"),
        ("BYTES", [1 << 40], bytes(8), "has 2 strings"),
    ],
)
def test_bytes(running: Running, datatype: str, shape: list[int], data: bytes, said: str) -> None:
    inputs = [tensor("x", datatype, shape, binary_data_size=len(data))]
    status, answer, _ = running.infer(f"same_{datatype}", {"inputs": inputs}, data)
    assert status == 400 and "x: " in answer["error"] and said in answer["error"]


def test_bytes_that_belong_to_nobody(running: Running) -> None:
    inputs = [tensor("x", "FP32", [1], binary_data_size=4)]
    status, answer, _ = running.infer("same_FP32", {"inputs": inputs}, bytes(5))
    assert status == 400 and "1 bytes at the end of the body" in answer["error"]
    status, answer, _ = running.infer("same_FP32", {"inputs": [X]}, bytes(4))
    assert status == 400 and "4 bytes at the end of the body" in answer["error"]


@pytest.mark.parametrize(
    "length", ["-1", "1e3", "abc", "99999999999999999999", "1_0", "\u0661".encode().decode("latin-1")]
)
def test_lengths_that_are_none(running: Running, length: str) -> None:
    status, answer, _ = running.infer_raw("same_FP32", b"{}", length)
    assert status == 400 and "Inference-Header-Content-Length" in answer["error"]


def test_lengths_that_are_wrong(running: Running) -> None:
    for length, said in ((3, "the body has 2 bytes"), (1, "no JSON")):
        status, answer, _ = running.infer_raw("same_FP32", b"{}", length)
        assert status == 400 and said in answer["error"]

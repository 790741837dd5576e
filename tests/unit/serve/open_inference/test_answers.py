"""Bodies of answers over HTTP, and tensors as they lie in bodies of requests."""

from __future__ import annotations

import json

import numpy as np

from opweld.serve.inference.model import TensorSpec
from opweld.serve.open_inference.http_infer import answer
from opweld.serve.open_inference.infer import Output
from opweld.serve.open_inference.parameters import Place
from opweld.serve.open_inference.tensors import Declared
from tests.unit.serve.tensor_models import same

ODD = 'a "b"\\\n\U0001f600\x07{}'


def test_an_answer_is_json_whatever_its_names_are() -> None:
    model = same(ODD, np.float32)
    model.version = "7"
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    outputs = [
        Output(ODD, "FP32", x.shape, x),
        Output("bytes", "FP32", x.shape, x, binary=True),
        Output("shared", "FP32", x.shape, None, Place(ODD, 4, 24)),
        Output("texts", "BYTES", (2,), np.array([ODD, b"\xff"], object)),
        Output("scalar", "FP32", (), x[0, 1]),
    ]
    for _ in range(2):
        body, header = answer(model, ODD, outputs, binary=False)
        assert header is not None and body[header:] == x.tobytes()
        where = {"shared_memory_region": ODD, "shared_memory_offset": 4, "shared_memory_byte_size": 24}
        assert json.loads(body[:header]) == {
            "model_name": ODD,
            "model_version": "7",
            "id": ODD,
            "outputs": [
                {"name": ODD, "datatype": "FP32", "shape": [2, 3], "data": [0, 1, 2, 3, 4, 5]},
                {"name": "bytes", "datatype": "FP32", "shape": [2, 3], "parameters": {"binary_data_size": 24}},
                {"name": "shared", "datatype": "FP32", "shape": [2, 3], "parameters": where},
                {"name": "texts", "datatype": "BYTES", "shape": [2], "data": [ODD, "\ufffd"]},
                {"name": "scalar", "datatype": "FP32", "shape": [], "data": [1]},
            ],
        }
    body, header = answer(model, "", [], binary=True)
    assert header is None and json.loads(body) == {"model_name": ODD, "model_version": "7", "outputs": []}


def test_bytes_are_viewed_where_a_run_can_read_them() -> None:
    x = np.arange(8, dtype=np.float32)
    declared = Declared(TensorSpec("x", x.dtype, ("n",)), "FP32", [8])
    memory = np.empty(64, np.uint8)
    for begin in range(8):
        raw = memory[begin : begin + 32]
        raw[:] = x.view(np.uint8)
        found = declared.of_bytes(raw.data)
        assert found.flags.aligned and found.tolist() == x.tolist()
        assert np.shares_memory(found, memory) == (raw.ctypes.data % 4 == 0)

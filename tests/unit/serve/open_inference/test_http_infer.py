"""Inference over HTTP, request by request."""

from __future__ import annotations

import gzip
import struct
import time
import zlib
from typing import Any

import numpy as np
import pytest

from opweld.serve.limits import Limits
from tests.unit.serve.fakes import eventually
from tests.unit.serve.open_inference.running import Running, counts, serving, tensor
from tests.unit.serve.raw import connect, post
from tests.unit.serve.tensor_models import DTYPES

FIRST, SECOND = counts()
SIMPLE = [tensor("INPUT0", "INT32", [1, 16], FIRST.tolist()), tensor("INPUT1", "INT32", [1, 16], [1] * 16)]


def test_json(running: Running) -> None:
    status, answer, rest = running.infer("simple", {"id": "four", "inputs": SIMPLE})
    assert (status, rest) == (200, b"")
    first, second = [*range(1, 17)], [*range(-1, 15)]
    assert answer == {
        "model_name": "simple",
        "model_version": "3",
        "id": "four",
        "outputs": [tensor("OUTPUT0", "INT32", [1, 16], first), tensor("OUTPUT1", "INT32", [1, 16], second)],
    }
    answer = running.infer("simple/versions/1", {"inputs": SIMPLE})[1]
    assert answer["model_version"] == "1" and "id" not in answer


def test_outputs_are_those_that_are_asked_for_in_their_order(running: Running) -> None:
    asked = [{"name": "OUTPUT1"}, {"name": "OUTPUT0"}]
    answer = running.infer("simple", {"inputs": SIMPLE, "outputs": asked})[1]
    assert [one["name"] for one in answer["outputs"]] == ["OUTPUT1", "OUTPUT0"]
    answer = running.infer("simple", {"inputs": SIMPLE, "outputs": asked[:1]})[1]
    assert [one["name"] for one in answer["outputs"]] == ["OUTPUT1"]
    assert running.repository.get("simple").calls[-1].outputs == ["OUTPUT1"]


def test_bytes_behind_the_json(running: Running) -> None:
    inputs = [tensor(name, "INT32", [1, 16], binary_data_size=64) for name in ("INPUT0", "INPUT1")]
    raw = FIRST.tobytes(), SECOND.tobytes()
    sums, differences = (FIRST + SECOND).tobytes(), (FIRST - SECOND).tobytes()
    every = {"inputs": inputs, "parameters": {"binary_data_output": True}}
    status, answer, rest = running.infer("simple", every, *raw)
    assert (status, rest) == (200, sums + differences)
    assert answer["outputs"][0] == tensor("OUTPUT0", "INT32", [1, 16], binary_data_size=64)
    one = {"name": "OUTPUT1", "parameters": {"binary_data": True}}
    _, answer, rest = running.infer("simple", {"inputs": inputs, "outputs": [{"name": "OUTPUT0"}, one]}, *raw)
    assert rest == differences and answer["outputs"][0]["data"] == (FIRST + SECOND).ravel().tolist()
    none = {"name": "OUTPUT1", "parameters": {"binary_data": False}}
    _, answer, rest = running.infer("simple", every | {"outputs": [none]}, *raw)
    assert rest == b"" and answer["outputs"][0]["data"] == (FIRST - SECOND).ravel().tolist()


VALUES: dict[str, list[Any]] = {
    "BOOL": [True, False, True],
    "FP16": [1.5, -2.0, 0.25],
    "BF16": [1.5, -2.0, 0.25],
    "FP32": [1.5, -2.0, 3.4e38],
    "FP64": [1.5, -2.0, 1e300],
    "BYTES": ["", "two", "dr\xe4i \U0001f600"],
}


def values(datatype: str) -> list[Any]:
    if datatype in VALUES:
        return VALUES[datatype]
    bounds = np.iinfo(DTYPES[datatype])
    return [int(bounds.min), int(bounds.max), 1]


def raw(datatype: str, given: list[Any]) -> bytes:
    if datatype == "BYTES":
        return b"".join(struct.pack("<I", len(one.encode())) + one.encode() for one in given)
    return np.array(given, DTYPES[datatype]).tobytes()


@pytest.mark.parametrize("datatype", DTYPES)
def test_each_datatype_in_json_and_in_bytes(running: Running, datatype: str) -> None:
    given = values(datatype)
    data, model = raw(datatype, given), f"same_{datatype}"
    status, answer, _ = running.infer(model, {"inputs": [tensor("x", datatype, [3], given)]})
    assert status == 200, answer
    (output,) = answer["outputs"]
    assert output["datatype"] == datatype and output["shape"] == [3]
    assert output["data"] == np.array(given, DTYPES[datatype]).tolist()
    request = {"inputs": [tensor("x", datatype, [3], binary_data_size=len(data))]}
    _, answer, rest = running.infer(model, request | {"parameters": {"binary_data_output": True}}, data)
    assert rest == data and answer["outputs"][0]["parameters"] == {"binary_data_size": len(data)}


@pytest.mark.parametrize("datatype", DTYPES)
def test_tensors_without_elements(running: Running, datatype: str) -> None:
    for given in (tensor("x", datatype, [0], []), tensor("x", datatype, [0], binary_data_size=0)):
        status, answer, _ = running.infer(f"same_{datatype}", {"inputs": [given]})
        assert (status, answer["outputs"][0]["data"], answer["outputs"][0]["shape"]) == (200, [], [0])


def test_any_rank(running: Running) -> None:
    for shape in ([], [1], [1, 1, 1]):
        _, answer, _ = running.infer("any_rank", {"inputs": [tensor("x", "FP32", shape, [2.5])]})
        assert answer["outputs"][0]["shape"] == shape and answer["outputs"][0]["data"] == [2.5]


def test_a_body_that_is_the_only_input(running: Running) -> None:
    x = np.array([1, 2, 3], np.float32)
    status, answer, rest = running.infer_raw("same_FP32", x.tobytes(), 0)
    assert (status, rest, answer["outputs"][0]["shape"]) == (200, x.tobytes(), [3])
    for model, said in (("simple", "has 2 inputs"), ("same_BYTES", "does not follow"), ("any_rank", "does not follow")):
        status, answer, _ = running.infer_raw(model, x.tobytes(), 0)
        assert status == 400 and said in answer["error"]
    assert "11 bytes of data" in running.infer_raw("same_FP32", x.tobytes()[:-1], 0)[1]["error"]


def test_a_compressed_body(running: Running) -> None:
    text = b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [2]}]}'
    for name, body in (("gzip", gzip.compress(text)), ("deflate", zlib.compress(text))):
        status, answer = running.post("/v2/models/same_FP32/infer", body, **{"Content-Encoding": name})
        assert (status, answer["outputs"][0]["data"]) == (200, [2])
        status, answer = running.post("/v2/models/same_FP32/infer", body[:-1], **{"Content-Encoding": name})
        assert status == 400 and "not compressed as" in answer["error"]
    status, answer = running.post("/v2/models/same_FP32/infer", text, **{"Content-Encoding": "br"})
    assert status == 415 and "gzip" in answer["error"]
    bomb = gzip.compress(bytes(5 << 20))
    status, answer = running.post("/v2/models/same_FP32/infer", bomb, **{"Content-Encoding": "gzip"})
    assert status == 413


def test_a_classification(running: Running) -> None:
    inputs = [tensor("x", "FP32", [4], [1.1, 3.3, 0.5, 3.3])]
    asked = [{"name": "y", "parameters": {"classification": 3}}]
    answer = running.infer("same_FP32", {"inputs": inputs, "outputs": asked})[1]
    assert answer["outputs"] == [tensor("y", "BYTES", [3], ["3.300000:1", "3.300000:3", "1.100000:0"])]
    asked = [{"name": "OUTPUT0", "parameters": {"classification": 2}}]
    answer = running.infer("simple", {"inputs": SIMPLE, "outputs": asked})[1]
    assert answer["outputs"] == [tensor("OUTPUT0", "BYTES", [1, 2], ["16:15", "15:14"])]
    inputs = [tensor("x", "BYTES", [1], ["a"])]
    status, answer, _ = running.infer("same_BYTES", {"inputs": inputs, "outputs": [{**asked[0], "name": "y"}]})
    assert status == 400 and "no numbers" in answer["error"]


def test_parameters(running: Running) -> None:
    model = running.repository.get("same_FP32")
    request: dict[str, Any] = {"inputs": [tensor("x", "FP32", [1], [2])], "id": "7"}

    def asked(**parameters: Any) -> tuple[int, Any]:
        return running.infer("same_FP32", request | {"parameters": parameters})[:2]

    before = time.monotonic()
    assert asked(timeout=5_000_000, priority=2, sequence_id=4, sequence_start=True, sequence_end=False)[0] == 200
    call = model.calls[-1]
    assert call.deadline is not None and call.deadline - call.begun == pytest.approx(5.0) and call.begun >= before
    assert call.id == "7"
    assert asked(timeout=0)[0] == 200 and model.calls[-1].deadline is None
    assert asked(mine=1.5, other="text", triton_enable_empty_final_response=True)[0] == 200
    wrong: list[tuple[str, Any]] = [("timeout", -1), ("timeout", "soon"), ("timeout", 1 << 63), ("timeout", True)]
    wrong += [("priority", "high"), ("triton_mine", 1), ("mine", [1]), ("binary_data_output", 1)]
    for name, value in wrong:
        status, answer = asked(**{name: value})
        assert status == 400 and name in answer["error"]


def test_a_deadline_that_passes_and_a_client_that_leaves() -> None:
    with serving(Limits(drain=0.0, seconds=600.0)) as running:
        model = running.repository.get("slow")
        request: Any = {"inputs": [tensor("x", "FP32", [1], [2])]}
        status, answer, _ = running.infer("slow", request | {"parameters": {"timeout": 1000}})
        assert status == 504 and "in time" in answer["error"]
        with connect(running) as connection:
            connection.sendall(post("/v2/models/slow/infer", request))
            eventually(lambda: model.statistics.running == 1)
        eventually(lambda: model.gone == 1)
        model.most = 0
        status, answer, _ = running.infer("slow", request)
        assert status == 429 and "wait for slow already" in answer["error"]


def test_a_model_that_is_unloaded_is_not_a_server_that_stops(running: Running) -> None:
    model = running.repository.get("any_rank")
    model.closing = True
    try:
        status, answer, _ = running.infer("any_rank", {"inputs": [tensor("x", "FP32", [1], [2])]})
    finally:
        model.closing = False
    assert (status, answer["error"]) == (503, "any_rank is being unloaded")


def test_a_fault_of_the_server_tells_nothing(running: Running) -> None:
    status, answer, _ = running.infer("failing", {"inputs": [tensor("x", "FP32", [1], [2])]})
    assert status == 500 and "secret" not in answer["error"]


def test_what_json_cannot_say(running: Running) -> None:
    data = np.array([1, np.inf], np.float32).tobytes()
    request: Any = {"inputs": [tensor("x", "FP32", [2], binary_data_size=8)]}
    status, answer, _ = running.infer("same_FP32", request, data)
    assert status == 400 and "binary_data" in answer["error"]
    status, answer, rest = running.infer("same_FP32", request | {"parameters": {"binary_data_output": True}}, data)
    assert (status, rest) == (200, data)

"""Requests made of valid ones by chance: the service goes on, each is answered, and memory stays flat."""

from __future__ import annotations

import copy
import http.client
import json
import os
import random
from collections import Counter
from typing import Any

import grpc
import pytest

from opweld.serve.limits import Limits
from opweld.serve.open_inference.grpc.descriptors import CLASSES
from opweld.serve.open_inference.grpc.messages import SERVICE
from tests.patience import PATIENCE_S
from tests.unit.serve.open_inference.running import Running, serving, tensor

Random = random.Random
_NUMBERS = (-1, 0, 1, 2, 3, 16, 1 << 31, 1 << 32, (1 << 62) - 1, 1 << 62, (1 << 63) - 1)
_ODD: tuple[Any, ...] = (None, True, "", "x", "NaN", [], {}, [[1]], 1.5, -1, 1 << 64, 1e400, float("nan"), "\ud800")
_MODELS = ("same_FP32", "same_BYTES", "same_BOOL", "simple", "any_rank", "nobody", "asleep")


def valid(chance: Random) -> tuple[dict[str, Any], bytes]:
    """A request for `same_FP32`, and the bytes behind it."""
    if chance.random() < 0.5:
        return {"inputs": [tensor("x", "FP32", [2], [1, 2])]}, b""
    return {"inputs": [tensor("x", "FP32", [2], binary_data_size=8)]}, bytes(8)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Each field and element of JSON: what holds it, and its key."""
    if isinstance(value, dict):
        return [(value, key) for key in value] + [one for inner in value.values() for one in places(inner)]
    if isinstance(value, list):
        return [(value, k) for k in range(len(value))] + [one for inner in value for one in places(inner)]
    return []


def spoilt(chance: Random) -> tuple[bytes, str]:
    """A body, and the length of its JSON that is told."""
    request, tail = valid(chance)
    for _ in range(chance.choice((0, 1, 1, 2, 3))):
        holder, key = chance.choice(places(request))
        what = chance.randrange(5)
        if what == 0 and isinstance(holder, dict):
            del holder[key]
            request = request or {"inputs": [{}]}
        elif what == 1:
            holder[key] = chance.choice(_NUMBERS)
        elif what == 2:
            holder[key] = [chance.choice(_NUMBERS) for _ in range(chance.randrange(70))]
        elif what == 3:
            region = {"shared_memory_region": chance.choice(("a", "")), "shared_memory_byte_size": 8}
            holder[key] = region | {"shared_memory_offset": chance.choice(_NUMBERS)}
        else:
            holder[key] = copy.deepcopy(chance.choice(_ODD))
    text = json.dumps(request).encode()
    if chance.random() < 0.1:
        text = b'{"inputs": ' + b"[" * chance.randrange(1, 20_000)
    length = chance.choice([len(text)] * 8 + [0, 1, len(text) + 1, len(text) - 1, -1, 1 << 63])
    body = text + tail
    if chance.random() < 0.2:
        body = body[: chance.randrange(len(body))]
    if chance.random() < 0.2:
        body = bytes(chance.randrange(256) if chance.random() < 0.05 else byte for byte in body)
    return body, str(length)


def over_http(running: Running, count: int, seed: int) -> Counter[int]:
    chance = Random(seed)
    found: Counter[int] = Counter()
    connection = http.client.HTTPConnection(running.host, running.port, timeout=PATIENCE_S)
    for _ in range(count):
        body, length = spoilt(chance)
        headers = {"Inference-Header-Content-Length": length} if chance.random() < 0.9 else {}
        connection.request("POST", f"/v2/models/{chance.choice(_MODELS)}/infer", body, headers)
        answer = connection.getresponse()
        raw = answer.read()
        found[answer.status] += 1
        if answer.status != 200:
            assert json.loads(raw)["error"], (body, length)
            assert 400 <= answer.status < 500, (answer.status, body, length)
    connection.close()
    return found


def over_grpc(running: Running, count: int, seed: int) -> Counter[str]:
    chance = Random(seed)
    found: Counter[str] = Counter()
    channel = grpc.insecure_channel(running.grpc_address)
    call = channel.unary_unary(f"/{SERVICE}/ModelInfer")
    for _ in range(count):
        request = CLASSES["ModelInferRequest"](model_name=chance.choice(_MODELS))
        for _ in range(chance.choice((1, 1, 1, 2))):
            given = request.inputs.add(name="x", datatype=chance.choice(("FP32", "BYTES", "BOOL", "fp32", "FP16")))
            given.shape.extend(chance.choice(_NUMBERS) for _ in range(chance.choice((1, 1, 1, 2, 70))))
            if chance.random() < 0.3:
                given.contents.fp32_contents.extend([1.0] * chance.randrange(4))
            if chance.random() < 0.1:
                given.parameters["shared_memory_region"].string_param = "a"
                given.parameters["shared_memory_byte_size"].int64_param = chance.choice(_NUMBERS)
        for _ in range(chance.randrange(3)):
            request.raw_input_contents.append(chance.randbytes(chance.choice((0, 1, 4, 8, 9))))
        raw = request.SerializeToString()
        if chance.random() < 0.3:
            raw = bytes(chance.randrange(256) if chance.random() < 0.05 else byte for byte in raw)
        try:
            call(raw, timeout=PATIENCE_S)
            found["OK"] += 1
        except grpc.RpcError as error:
            refused: Any = error
            assert refused.details(), raw
            found[refused.code().name] += 1
    channel.close()
    return found


def check(running: Running, count: int, seed: int) -> None:
    answered = over_http(running, count, seed)
    assert answered.total() == count and answered[400] > count // 2
    calls = over_grpc(running, count, seed)
    assert calls.total() == count and calls["INVALID_ARGUMENT"] > count // 4
    assert set(calls) <= {"OK", "INVALID_ARGUMENT", "NOT_FOUND"}, calls
    assert running.get("/v2/health/ready")[0] == 200
    assert running.infer("same_FP32", {"inputs": [tensor("x", "FP32", [1], [2])]})[0] == 200


def test_a_few_hundred() -> None:
    with serving(Limits(drain=0.0)) as running:
        check(running, 150, seed=7)


@pytest.mark.slow
def test_ten_thousand() -> None:
    with serving(Limits(drain=0.0)) as running:
        check(running, 1_000, seed=11)
        before = resident()
        check(running, 10_000, seed=12)
        assert resident() - before < 32 << 20


def resident() -> int:
    """Bytes of this process in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

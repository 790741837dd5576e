"""The calls that KServe's documentation shows of its clients: python kserve_program.py HTTP_ADDRESS GRPC_ADDRESS

For an interpreter that has kserve."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import numpy as np
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig

FIRST, SECOND = np.arange(16, dtype=np.int32).reshape(1, 16), np.ones((1, 16), np.int32)
GIVEN = {"INPUT0": FIRST, "INPUT1": SECOND}


def request(binary: bool) -> InferRequest:
    inputs: list[InferInput] = []
    for name, values in GIVEN.items():
        given = InferInput(name, [1, 16], "INT32")
        given.set_data_from_numpy(values, binary_data=binary)
        inputs.append(given)
    return InferRequest("simple", inputs, parameters={"binary_data_output": binary})


def check(answer: Any) -> None:
    found = {output.name: output.as_numpy() for output in answer.outputs}
    assert (found["OUTPUT0"] == FIRST + SECOND).all() and (found["OUTPUT1"] == FIRST - SECOND).all()


async def over_http(url: str) -> None:
    client = InferenceRESTClient(RESTConfig(protocol="v2", retries=0, timeout=None))
    assert await client.is_server_live(url) and await client.is_server_ready(url)
    assert await client.is_model_ready(url, "simple")
    for binary in (True, False):
        told: dict[str, str] = {}
        check(await client.infer(url, request(binary), model_name="simple", response_headers=told))
        assert ("inference-header-content-length" in told) == binary
    inputs = [
        {"name": name, "shape": [1, 16], "datatype": "INT32", "data": values.tolist()} for name, values in GIVEN.items()
    ]
    check(await client.infer(url, {"inputs": inputs}, "simple", {"Authorization": "Bearer YOUR_TOKEN"}))


async def over_grpc(address: str) -> None:
    async with InferenceGRPCClient(address, retries=0, timeout=None) as client:
        assert await client.is_server_live() and await client.is_server_ready()
        assert await client.is_model_ready("simple")
        for binary in (True, False):
            check(await client.infer(request(binary), headers=[("header-key", "header-value")]))


async def main(http: str, grpc: str) -> None:
    await over_http(f"http://{http}")
    await over_grpc(grpc)
    sys.stdout.write("all of it\n")


asyncio.run(main(*sys.argv[1:]))

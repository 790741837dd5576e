"""Models, and the requests that clients send, made once as the bytes that go over the wire."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import tritonclient.http as triton_http
from numpy.typing import NDArray
from tritonclient.grpc import service_pb2
from tritonclient.utils import np_to_triton_dtype

from benchmarks.zoo import fetch

Feed: TypeAlias = Mapping[str, NDArray[Any]]

LONGEST = 128
"""Tokens of a text, at most."""


_PADDED = """[pad]
dim = "sequence_length"
values = {input_ids = 0, attention_mask = 0}
"""


@dataclass(frozen=True)
class Load:
    """A model and what it is asked.

    Attributes:
        name: in every server.
        file: the ONNX file. settings: of opweld's server, beside the model.
        feed: makes the feeds of one request.
    """

    name: str
    file: Path
    feed: Callable[[np.random.Generator], Feed]
    settings: str = ""

    def feeds(self, count: int) -> list[Feed]:
        """The same ones in every run."""
        random = np.random.default_rng(0)
        return [self.feed(random) for _ in range(count)]


def loads() -> dict[str, Load]:
    """By name. Fetches the models that are not there yet."""

    def text(random: np.random.Generator) -> Feed:
        length = int(np.clip(random.lognormal(3.4, 0.6), 4, LONGEST))  # a median of 30, as queries and passages mix
        ids = random.integers(1000, 30000, (1, length))
        return {"input_ids": ids, "attention_mask": np.ones_like(ids)}

    def line(random: np.random.Generator) -> Feed:
        width = int(random.choice([160, 240, 320, 480]))
        return {"x": random.standard_normal((1, 3, 48, width)).astype(np.float32)}

    def picture(random: np.random.Generator) -> Feed:
        return {"pixel_values": random.standard_normal((1, 3, 224, 224)).astype(np.float32)}

    return {
        load.name: load
        for load in (
            Load("minilm", fetch.path("minilm"), text, _PADDED),
            Load("ppocrv4-rec", fetch.path("ppocrv4-rec"), line),
            Load("resnet50", fetch.path("resnet50"), picture),
        )
    }


def http_request(name: str, feed: Feed, host: str = "localhost", timeout: float | None = None) -> bytes:
    """POST of a feed in the binary form of the protocol, answered in the same.

    Args:
        timeout: seconds after which nobody wants the answer; the server is told.
    """
    inputs: list[Any] = []
    for key, array in feed.items():
        tensor = triton_http.InferInput(key, list(array.shape), np_to_triton_dtype(array.dtype))
        tensor.set_data_from_numpy(array, binary_data=True)
        inputs.append(tensor)
    limit = None if timeout is None else round(1e6 * timeout)
    made: Any = triton_http.InferenceServerClient.generate_request_body(inputs, timeout=limit)
    body, header = made
    return (
        f"POST /v2/models/{name}/infer HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/octet-stream\r\n"
        f"inference-header-content-length: {header}\r\ncontent-length: {len(body)}\r\n\r\n"
    ).encode() + body


def grpc_request(name: str, feed: Feed) -> bytes:
    """A ModelInferRequest with its tensors as bytes."""
    messages: Any = service_pb2  # generated when it is imported
    message = messages.ModelInferRequest(model_name=name)
    for key, array in feed.items():
        message.inputs.add(name=key, datatype=np_to_triton_dtype(array.dtype), shape=array.shape)
        message.raw_input_contents.append(array.tobytes())
    return message.SerializeToString()

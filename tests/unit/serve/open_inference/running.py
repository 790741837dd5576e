"""A server of the models of `tensor_models`, and requests to it."""

from __future__ import annotations

import json
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from opweld.serve.limits import Keys, Limits
from opweld.serve.open_inference.interface import OpenInference
from opweld.serve.open_inference.regions import Regions
from opweld.serve.server import Server, reserve
from opweld.serve.tls import Tls
from tests.unit.serve.fakes import listening
from tests.unit.serve.raw import ask, connect, head, until_closed
from tests.unit.serve.tensor_models import FakeRepository


@dataclass
class Running:
    """A server in a thread."""

    server: Server
    repository: FakeRepository
    host: str
    port: int
    grpc_port: int
    thread: threading.Thread

    @property
    def grpc_address(self) -> str:
        return f"{self.host}:{self.grpc_port}"

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def get(self, path: str) -> tuple[int, Any]:
        status, _, answer = ask(self, head(path, 0, "GET"))
        return status, answer

    def post(self, path: str, body: Any, **headers: str) -> tuple[int, Any]:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        status, _, answer = ask(self, head(path, len(raw), **headers) + raw)
        return status, answer

    def infer(self, model: str, body: Mapping[str, Any], *tensors: bytes, **headers: str) -> Any:
        """The answer's JSON and the bytes behind it."""
        text = json.dumps(body).encode()
        return self.infer_raw(model, text + b"".join(tensors), len(text), **headers)

    def infer_raw(self, model: str, raw: bytes, length: int | str | None, **headers: str) -> tuple[int, Any, bytes]:
        if length is not None:
            headers["Inference-Header-Content-Length"] = str(length)
        with connect(self) as connection:
            connection.sendall(head(f"/v2/models/{model}/infer", len(raw), Connection="close", **headers) + raw)
            got = until_closed(connection)
        lines, _, body = got.partition(b"\r\n\r\n")
        told = {n.lower(): v for n, _, v in (line.partition(": ") for line in lines.decode().split("\r\n")[1:])}
        size = int(told.get("inference-header-content-length", len(body)))
        return int(lines.split()[1]), json.loads(body[:size]), body[size:]


@contextmanager
def serving(
    limits: Limits | None = None, keys: Sequence[str] = (), *, shared_memory: bool = True, tls: Tls | None = None
) -> Generator[Running]:
    """A server at a free port, until the block ends."""
    repository = FakeRepository()
    protocol = OpenInference(repository, Regions(shared_memory))
    reserved = reserve("127.0.0.1", 0)
    grpc_port = reserved.getsockname()[1]
    server = Server(
        [repository],
        [protocol.interface],
        limits=limits or Limits(drain=0.0),
        keys=Keys(keys),
        listeners=[protocol.listener(reserved)],
        tls=tls,
    )
    with listening(server) as (host, port, thread):
        yield Running(server, repository, host, port, grpc_port, thread)


def tensor(name: str, datatype: str, shape: Sequence[int], data: Any = None, **parameters: Any) -> dict[str, Any]:
    """An input."""
    given: dict[str, Any] = {"name": name, "datatype": datatype, "shape": list(shape)}
    if data is not None:
        given["data"] = data
    if parameters:
        given["parameters"] = parameters
    return given


def counts() -> tuple[np.ndarray, np.ndarray]:
    """What `simple` of Triton's examples is given."""
    return np.arange(16, dtype=np.int32).reshape(1, 16), np.ones((1, 16), np.int32)

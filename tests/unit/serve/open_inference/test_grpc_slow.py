"""Clients of gRPC that take no answer, or send no request to its end. Libraries of clients do neither, so frames of
HTTP/2 are written by hand."""

from __future__ import annotations

import logging
import os
import socket
import struct
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

from opweld.serve.limits import Limits
from opweld.serve.open_inference.grpc.descriptors import CLASSES
from opweld.serve.open_inference.grpc.messages import SERVICE
from opweld.serve.open_inference.grpc.peers import cut_off, host_of
from tests.patience import PATIENCE_S
from tests.unit.serve.fakes import eventually
from tests.unit.serve.open_inference.running import Running, serving
from tests.unit.serve.open_inference.test_grpc import one, refused, stub_of

DATA, HEADERS, SETTINGS = 0, 1, 4
END_STREAM, END_HEADERS = 1, 4
INITIAL_WINDOW_SIZE = 4


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def literal(name: bytes, value: bytes) -> bytes:
    """A header that is neither compressed nor kept."""
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def begun(method: str, stream: int = 1) -> bytes:
    """The headers of a call."""
    told = {":method": "POST", ":scheme": "http", ":path": f"/{SERVICE}/{method}", ":authority": "here"}
    told |= {"content-type": "application/grpc", "te": "trailers"}
    block = b"".join(literal(name.encode(), value.encode()) for name, value in told.items())
    return frame(HEADERS, END_HEADERS, stream, block)


def call(size: int, **fields: Any) -> bytes:
    """A call of `same_FP32` with so many elements, as gRPC has messages."""
    inputs = [one(shape=(size,))]
    fields = {"model_name": "same_FP32", "inputs": inputs, "raw_input_contents": [bytes(4 * size)], **fields}
    raw = CLASSES["ModelInferRequest"](**fields).SerializeToString()
    return b"\0" + struct.pack(">I", len(raw)) + raw


@contextmanager
def taking_nothing(running: Running) -> Generator[socket.socket]:
    """A connection on which the server may send no byte of an answer."""
    with socket.create_connection((running.host, running.grpc_port), timeout=PATIENCE_S) as connection:
        settings = struct.pack(">HI", INITIAL_WINDOW_SIZE, 0)
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0, settings))
        yield connection


def is_cut_off(connection: socket.socket) -> bool:
    """Waits until the server ends it."""
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionResetError:
        pass
    return True


def infer(running: Running, size: int) -> Any:
    with stub_of(running) as stub:
        return stub(
            "ModelInfer", model_name="same_FP32", inputs=[one(contents={"fp32_contents": [1] * size}, shape=(size,))]
        )


def is_answered(running: Running, size: int) -> bool:
    try:
        infer(running, size)
    except grpc.RpcError:
        return False
    return True


def lines(caplog: pytest.LogCaptureFixture, method: str) -> list[str]:
    told = [record.getMessage() for record in caplog.records if record.name == "opweld.serve.access"]
    return [line.split('" ')[1][:3] for line in told if f"/{method}" in line]


def test_an_answer_that_nobody_takes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "opweld.serve")
    with serving(Limits(drain=0.0, seconds=1.0)) as running, taking_nothing(running) as connection:
        for stream in (1, 3):
            connection.sendall(begun("ModelInfer", stream) + frame(DATA, END_STREAM, stream, call(8)))
        model = running.repository.get("same_FP32")
        eventually(lambda: len(model.calls) == 2)
        assert not model.statistics.running  # it does not wait for its clients
        assert infer(running, 8).model_name == "same_FP32"
        assert is_cut_off(connection)
        eventually(lambda: len(lines(caplog, "ModelInfer")) == 3)
        assert sorted(lines(caplog, "ModelInfer")) == ["200", "499", "499"]
        told = [record for record in caplog.records if "does not take its answer" in record.getMessage()]
        assert told and not any(record.levelno > logging.INFO for record in caplog.records)
        assert infer(running, 8).model_name == "same_FP32"


def test_answers_that_nobody_takes_have_memory() -> None:
    with serving(Limits(drain=0.0, in_flight=10_000, seconds=2.0)) as running, taking_nothing(running) as connection:
        model = running.repository.get("same_FP32")
        for count in (1, 2):
            stream = 2 * count - 1
            connection.sendall(begun("ModelInfer", stream) + frame(DATA, END_STREAM, stream, call(500)))
            eventually(lambda: len(model.calls) == count)  # noqa: B023
        with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "all memory"):
            infer(running, 1000)
        assert is_cut_off(connection)
        # Others have it then.
        eventually(lambda: is_answered(running, 1000))


def test_a_stream_of_which_nobody_takes_an_answer(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "opweld.serve")
    with serving(Limits(drain=0.0, seconds=1.0)) as running, taking_nothing(running) as connection:
        connection.sendall(begun("ModelStreamInfer"))
        for _ in range(50):
            connection.sendall(frame(DATA, 0, 1, call(8)))
        model = running.repository.get("same_FP32")
        eventually(lambda: len(model.calls) >= 16)
        assert is_cut_off(connection)
        assert len(model.calls) == 16
        eventually(lambda: lines(caplog, "ModelStreamInfer") == ["499"])
        assert not any(record.levelno > logging.INFO for record in caplog.records)
        assert infer(running, 8).model_name == "same_FP32"


def test_a_request_without_end(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "opweld.serve.access")
    with serving(Limits(drain=0.0, seconds=0.1)) as running, taking_nothing(running) as connection:
        connection.sendall(begun("ModelInfer") + frame(DATA, 0, 1, call(8)[:-1]))
        eventually(lambda: lines(caplog, "ModelInfer") == ["503"])
        connection.sendall(begun("ModelInfer", 3) + frame(DATA, END_STREAM, 3, b""))
        eventually(lambda: lines(caplog, "ModelInfer") == ["503", "400"])


def test_a_server_ends_while_nobody_takes_an_answer() -> None:
    with serving(Limits(drain=0.05)) as running, taking_nothing(running) as connection:
        connection.sendall(begun("ModelInfer") + frame(DATA, END_STREAM, 1, call(8)))
        model = running.repository.get("same_FP32")
        eventually(lambda: len(model.calls) == 1)
        running.server.stop()
        running.thread.join(PATIENCE_S)
        assert not running.thread.is_alive()


@pytest.mark.parametrize(("family", "host"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_a_connection_is_cut_off_by_its_peer(family: int, host: str) -> None:
    with socket.socket(family) as listening:
        try:
            listening.bind((host, 0))
        except OSError:
            pytest.skip(f"{host} is no address of this machine")
        listening.listen()
        with socket.create_connection((host, listening.getsockname()[1])) as client, listening.accept()[0] as served:
            port = client.getsockname()[1]
            named = f"ipv4:{host}:{port}" if family == socket.AF_INET else f"ipv6:%5B{host}%5D:{port}"
            before = len(os.listdir("/dev/fd"))
            assert host_of(named) == host and cut_off(named)
            assert served.recv(1) == b"" and client.recv(1) == b""
            assert not cut_off("unix:/a/path") and not cut_off("ipv4:192.0.2.1:1")
            assert len(os.listdir("/dev/fd")) == before

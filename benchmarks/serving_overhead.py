"""What a server adds to a run: batch 1, one client, loopback.

    python -m benchmarks.serving_overhead                       a small product of matrices
    python -m benchmarks.serving_overhead model.opweld --rounds 200

The model runs in this process, and `opweld serve` in one of its own. All ways are measured in turns, so that what else
the machine does meets each of them: a run of the library, HTTP with binary tensors on a kept connection by a client
that does next to nothing, gRPC by a stub that converts nothing, and tritonclient over both; and the same requests sent
to uvicorn and to grpcio with nothing behind them, which answer what they are sent. Prints medians, and what each takes
beyond the library.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import onnx
import tritonclient.grpc
import tritonclient.http
from onnx import TensorProto, helper

import opweld
from benchmarks.serving.echoes import METHOD, echo
from opweld.runtime.session import Session
from opweld.serve.inference.tensors import Tensors
from opweld.serve.open_inference.datatypes import datatype_of
from opweld.serve.open_inference.grpc.descriptors import CLASSES
from opweld.serve.open_inference.grpc.messages import SERVICE

IN_TURN = 10
"""Calls of one way before the next has its turn."""


def small() -> onnx.ModelProto:
    """float32 [batch, 64] times [64, 64], some microseconds."""
    weights = np.random.default_rng(0).standard_normal((64, 64), np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 64])],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@contextmanager
def serving(artifact: Path) -> Generator[tuple[str, str]]:
    """`opweld serve` of a model: its addresses for HTTP and gRPC."""
    command = [sys.executable, "-m", "opweld", "serve", f"model={artifact}", "--port", "0", "--grpc-port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            line = ""
            while "Ctrl-C" not in line:
                line = process.stderr.readline()
                if not line:
                    sys.exit("the server did not start")
            # Whoever does not read its log stops the server.
            threading.Thread(target=process.stderr.read, daemon=True).start()
            http = line.partition("http://")[2].partition("/")[0]
            wait_for(http)
            yield http, line.partition("gRPC at ")[2].partition(";")[0]
        finally:
            process.terminate()


def wait_for(address: str) -> None:
    """Until somebody listens there."""
    host, _, port = address.rpartition(":")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            socket.create_connection((host, int(port))).close()
            return
        except ConnectionRefusedError:
            time.sleep(0.05)
    sys.exit("the server does not listen")


def lean_http(address: str, feeds: dict[str, Any]) -> Callable[[], object]:
    """A request whose bytes are made once, and its answer's bytes."""
    inputs = [
        {
            "name": name,
            "datatype": datatype_of(name, x.dtype),
            "shape": x.shape,
            "parameters": {"binary_data_size": x.nbytes},
        }
        for name, x in feeds.items()
    ]
    text = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    body = text + b"".join(x.tobytes() for x in feeds.values())
    head = f"POST /v2/models/model/infer HTTP/1.1\r\nHost: here\r\nContent-Length: {len(body)}\r\n"
    request = f"{head}Inference-Header-Content-Length: {len(text)}\r\n\r\n".encode() + body
    host, _, port = address.rpartition(":")
    connection = socket.create_connection((host, int(port)))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def call() -> object:
        connection.sendall(request)
        got = connection.recv(1 << 20)
        while b"\r\n\r\n" not in got:
            got += connection.recv(1 << 20)
        lines, _, rest = got.partition(b"\r\n\r\n")
        if not lines.startswith(b"HTTP/1.1 200"):
            sys.exit(f"refused: {got.decode(errors='replace')}")
        left = int(lines.lower().partition(b"\r\ncontent-length: ")[2].partition(b"\r\n")[0]) - len(rest)
        while left > 0:
            left -= len(connection.recv(1 << 20))
        return got

    return call


def lean_grpc(address: str, feeds: dict[str, Any], path: str = f"/{SERVICE}/ModelInfer") -> Callable[[], object]:
    """A request that is serialised once, and its answer's bytes."""
    inputs = [{"name": name, "datatype": datatype_of(name, x.dtype), "shape": x.shape} for name, x in feeds.items()]
    raw = [x.tobytes() for x in feeds.values()]
    request = CLASSES["ModelInferRequest"](model_name="model", inputs=inputs, raw_input_contents=raw)
    message = request.SerializeToString()
    method = grpc.insecure_channel(address).unary_unary(path)
    return lambda: method(message)


def by_tritonclient(module: Any, address: str, feeds: dict[str, Any]) -> Callable[[], object]:
    """The client's own way: tensors in, tensors out."""
    client = module.InferenceServerClient(address)

    def call() -> object:
        inputs: list[Any] = []
        for name, x in feeds.items():
            inputs.append(module.InferInput(name, x.shape, datatype_of(name, x.dtype)))
            inputs[-1].set_data_from_numpy(x)
        return client.infer("model", inputs)

    return call


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("artifact", nargs="?", type=Path, help="of opweld compile; its dims of any size are 1")
    parser.add_argument("--rounds", type=int, default=100, help=f"turns of {IN_TURN} calls of each way (100)")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        artifact = asked.artifact
        if artifact is None:
            artifact = Path(folder) / "small.opweld"
            opweld.compile(small()).save(artifact)
        session = Session(artifact)
        random = np.random.default_rng(0)
        feeds: dict[str, Any] = {}
        for spec in Tensors(session).inputs:
            shape = [size if isinstance(size, int) else 1 for size in spec.shape or ()]
            feeds[spec.name] = random.random(shape).astype(spec.dtype)
        with serving(artifact) as (http, over_grpc), echo("http") as uvicorn, echo("grpc") as grpcio:
            ways: dict[str, Callable[[], object]] = {
                "library": lambda: session.run(feeds),
                "HTTP, binary": lean_http(http, feeds),
                "uvicorn alone": lean_http(uvicorn, feeds),
                "gRPC": lean_grpc(over_grpc, feeds),
                "grpcio alone": lean_grpc(grpcio, feeds, METHOD),
                "tritonclient.http": by_tritonclient(tritonclient.http, http, feeds),
                "tritonclient.grpc": by_tritonclient(tritonclient.grpc, over_grpc, feeds),
            }
            report(measured(ways, asked.rounds))


def measured(ways: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each call, by way; those of a first round are left out."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds + 1):
        for name, call in ways.items():
            for _ in range(IN_TURN):
                begun = time.perf_counter()
                call()
                if turn:
                    times[name].append(time.perf_counter() - begun)
    return times


def report(times: dict[str, list[float]]) -> None:
    """Medians, and what they are beyond the library's."""
    base = statistics.median(times["library"])
    print(f"{'':20}{'median':>10}{'p90':>10}{'beyond the library':>22}   ms")
    for name, found in times.items():
        median, p90 = statistics.median(found), statistics.quantiles(found, n=10)[8]
        beyond = "" if name == "library" else f"{1e3 * (median - base):.3f}"
        print(f"{name:20}{1e3 * median:10.3f}{1e3 * p90:10.3f}{beyond:>22}")


if __name__ == "__main__":
    main()

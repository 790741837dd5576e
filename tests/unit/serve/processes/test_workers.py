"""`opweld serve --workers 2`."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import threading
from collections.abc import Generator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from prometheus_client.parser import text_string_to_metric_families

from opweld.serve.open_inference.grpc.descriptors import CLASSES
from tests.patience import PATIENCE_S
from tests.unit.serve.fakes import eventually
from tests.unit.serve.inference.small import plus, saved
from tests.unit.serve.inference.test_command import CERTIFICATES, started
from tests.unit.serve.test_supervisor import gone

_WHO = """
import asyncio, os
import numpy as np
from opweld.serve.inference.program import program

@program(inputs={"file": (str, (1,))}, outputs={"process": ("int64", (1,))}, models=())
async def who(models, file):
    while file[0] and not os.path.exists(file[0]):
        await asyncio.sleep(0.005)
    return {"process": np.array([os.getpid()])}
"""
"""Tells its process, once there is a file; at once where none is named."""


def product() -> onnx.ModelProto:
    """float32 [batch, 128] times weights of 64 KiB."""
    weights = np.random.default_rng(0).standard_normal((128, 128), np.float32)
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 128])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 128])],
        [onnx.numpy_helper.from_array(weights, "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


@dataclass
class Running:
    """A server of two processes.

    Attributes:
        said: lines that it wrote.
        answered: calls of `who` over HTTP that were.
    """

    process: subprocess.Popen[str]
    host: str
    grpc: str
    said: list[str] = field(default_factory=list[str])
    answered: int = 0

    def connect(self) -> Connection:
        return Connection(http.client.HTTPConnection(self.host, timeout=PATIENCE_S), self)

    def workers(self) -> set[int]:
        number = self.process.pid
        children = Path(f"/proc/{number}/task/{number}/children").read_text().split()
        return {int(child) for child in children}

    def by_process(self, stack: ExitStack) -> dict[int, Connection]:
        """A connection to each."""
        found: dict[int, Connection] = {}
        workers = self.workers()
        while set(found) != workers:
            connection = stack.enter_context(closing(self.connect()))
            found.setdefault(connection.who(), connection)
        return found

    def metrics(self) -> dict[tuple[str, ...], float]:
        """Values by name and values of labels."""
        with closing(self.connect()) as connection:
            _, raw = connection.ask("GET", "/metrics")
        return {
            (sample.name, *sample.labels.values()): sample.value
            for family in text_string_to_metric_families(raw.decode())
            for sample in family.samples
        }

    def replaced(self, killed: int) -> None:
        """Waits until there is another one in place of one that was killed."""
        eventually(lambda: self.metrics()["opweld_workers",] == 2 and killed not in self.workers())


@dataclass
class Connection:
    """A connection that is kept: all that is sent over it, one process answers."""

    http: http.client.HTTPConnection
    running: Running

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, bytes]:
        self.send(method, path, body)
        return self.got()

    def send(self, method: str, path: str, body: Any = None) -> None:
        self.http.request(method, path, None if body is None else json.dumps(body))

    def got(self) -> tuple[int, bytes]:
        answer = self.http.getresponse()
        return answer.status, answer.read()

    def json(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        status, raw = self.ask(method, path, body)
        return status, json.loads(raw)

    def infer(self, model: str, **inputs: Mapping[str, Any]) -> tuple[int, Any]:
        named = [{"name": name, **given} for name, given in inputs.items()]
        return self.json("POST", f"/v2/models/{model}/infer", {"inputs": named})

    def plus(self) -> tuple[int, Any]:
        return self.infer("plus", x={"shape": [1, 3], "datatype": "FP32", "data": [1, 2, 3]})

    def send_who(self, file: Path | None = None) -> None:
        data = [str(file or "")]
        given = {"inputs": [{"name": "file", "shape": [1], "datatype": "BYTES", "data": data}]}
        self.send("POST", "/v2/models/who/infer", given)

    def got_who(self) -> int:
        status, raw = self.got()
        assert status == 200, raw
        self.running.answered += 1
        return json.loads(raw)["outputs"][0]["data"][0]

    def who(self) -> int:
        self.send_who()
        return self.got_who()

    def close(self) -> None:
        self.http.close()


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    saved(plus(1), folder / "plus.opweld")
    saved(product(), folder / "product.opweld")
    (folder / "who").mkdir()
    (folder / "who" / "program.py").write_text(_WHO)
    return folder


@contextmanager
def serving(models: Path, *options: str) -> Generator[Running]:
    with started(str(models), "--workers", "2", "--grpc-port", "0", *options) as (process, said, address):
        running = Running(process, address.partition("//")[2], said.rpartition("gRPC at ")[2].partition(";")[0])
        running.said += said.splitlines()

        def read() -> None:
            assert process.stderr is not None
            running.said += process.stderr

        thread = threading.Thread(target=read)
        thread.start()
        try:
            yield running
        finally:
            for worker in running.workers() if process.poll() is None else ():
                os.kill(worker, signal.SIGKILL)
            process.kill()
            thread.join(PATIENCE_S)


@pytest.fixture(scope="module")
def running(models: Path) -> Generator[Running]:
    with serving(models, "--shared-memory") as running:
        yield running


def test_connections_are_divided_evenly(running: Running) -> None:
    with ExitStack() as stack:
        connections = [stack.enter_context(closing(running.connect())) for _ in range(8)]
        answered = [connection.who() for connection in connections]
        assert {process: answered.count(process) for process in running.workers()} == dict.fromkeys(answered, 4)
        assert [connection.who() for connection in connections] == answered


def test_grpc_is_answered_by_both(running: Running) -> None:
    request = CLASSES["ModelInferRequest"](model_name="who")
    request.inputs.add(name="file", datatype="BYTES", shape=[1]).contents.bytes_contents.append(b"")
    found: set[int] = set()

    def both() -> bool:
        # Channels share a connection where nothing else is said.
        with grpc.insecure_channel(running.grpc, [("grpc.use_local_subchannel_pool", 1)]) as channel:
            infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
            raw = infer(request.SerializeToString(), timeout=PATIENCE_S, wait_for_ready=True)
        answer = CLASSES["ModelInferResponse"].FromString(raw)
        found.add(int(np.frombuffer(answer.raw_output_contents[0], np.int64)[0]))
        return found == running.workers()

    eventually(both)


def test_weights_are_mapped_once(running: Running) -> None:
    maps = [Path(f"/proc/{process}/maps").read_text().splitlines() for process in running.workers()]
    mapped = [{tuple(line.split()[3:6]) for line in lines if "weights" in line} for lines in maps]
    assert mapped[0] and mapped[0] == mapped[1]  # device, inode and path
    assert all(" r--" in line for lines in maps for line in lines if "weights" in line)


def test_counts_are_those_of_both(running: Running) -> None:
    name = ("opweld_model_calls_total", "plus", "answered", "1")
    before = running.metrics()
    with ExitStack() as stack:
        connections = running.by_process(stack)
        for count, connection in enumerate(connections.values(), 1):
            for _ in range(count):
                assert connection.plus()[0] == 200
        after = running.metrics()
        assert after[name] - before.get(name, 0) == 3
        requests = ("opweld_requests_total", "POST", "/v2/models/{model}/infer", "200")
        calls = ("opweld_model_calls_total", "who", "answered", "1")
        more = {one: after[one] - before.get(one, 0) for one in (requests, name, calls)}
        assert more[requests] == more[name] + more[calls]
        told = [connection.json("GET", "/v2/models/plus/stats")[1] for connection in connections.values()]
        assert told[0] == told[1] and told[0]["model_stats"][0]["inference_stats"]["success"]["count"] == after[name]


def test_models_are_loaded_and_unloaded_everywhere(running: Running) -> None:
    with ExitStack() as stack:
        connections = [*running.by_process(stack).values()]
        for one, other in (connections, connections[::-1]):
            assert one.json("POST", "/v2/repository/models/plus/unload") == (200, {})
            for connection in (one, other):
                assert connection.plus() == (400, {"error": "the model 'plus' is not loaded"})
            assert other.json("POST", "/v2/repository/models/plus/unload")[0] == 400
            assert other.json("POST", "/v2/repository/models/plus/load") == (200, {})
            for connection in (one, other):
                assert connection.plus()[1]["outputs"][0]["data"] == [2, 3, 4]
        status, told = connections[0].json("POST", "/v2/repository/models/none/load")
        assert status == 404 and told["error"] == "failed to load 'none': there is no such model"


def test_shared_memory_is_registered_everywhere(running: Running) -> None:
    file = Path(f"/dev/shm/opweld-test-{os.getpid()}")
    file.write_bytes(np.array([5, 6, 7], np.float32).tobytes())
    path = "/v2/systemsharedmemory/region/three"
    given = {"shape": [1, 3], "datatype": "FP32"}
    place = {"shared_memory_region": "three", "shared_memory_byte_size": 12}
    try:
        with ExitStack() as stack:
            one, other = running.by_process(stack).values()
            assert one.json("POST", f"{path}/register", {"key": file.name, "byte_size": 12}) == (200, {})
            for connection in (one, other):
                answer = connection.infer("plus", x={**given, "parameters": place})
                assert answer[1]["outputs"][0]["data"] == [6, 7, 8]
            assert other.json("POST", f"{path}/register", {"key": file.name, "byte_size": 12})[0] == 409
            assert other.json("POST", f"{path}/unregister") == (200, {})
            assert one.json("GET", "/v2/systemsharedmemory/status") == (200, [])
    finally:
        file.unlink()


def test_who_is_killed_loses_its_own_calls_and_comes_back(models: Path, tmp_path: Path) -> None:
    released = tmp_path / "released"
    calls = ("opweld_model_calls_total", "who", "answered", "1")
    with serving(models) as running, ExitStack() as stack:
        connections = running.by_process(stack)
        (lost, dying), (kept, living) = connections.items()
        assert living.json("POST", "/v2/repository/models/plus/unload") == (200, {})
        for connection in connections.values():
            connection.send_who(released)
        eventually(lambda: running.metrics()["opweld_model_calls_running", "who", "1"] == 2)
        os.kill(lost, signal.SIGKILL)
        with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
            dying.got()
        with closing(running.connect()) as other:  # at once
            assert other.who() in running.workers()
        running.replaced(lost)
        (new,) = running.workers() - {kept}
        with ExitStack() as others:
            assert running.by_process(others)[new].plus()[0] == 400  # as everywhere
        released.touch()
        assert living.got_who() == kept
        found = running.metrics()
        assert found["opweld_worker_ends_total",] == 1, running.said
        assert found[calls] == running.answered  # by the one that is dead, too
        assert any("died: SIGKILL; it is started again in 0.1 s" in line for line in running.said)
        assert living.json("POST", "/v2/repository/models/plus/load") == (200, {})
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(PATIENCE_S) == 0


def test_one_that_is_started_again_has_its_part_of_connections(models: Path) -> None:
    with serving(models) as running, ExitStack() as stack:
        connections = [stack.enter_context(closing(running.connect())) for _ in range(6)]
        lost = connections[0].who()
        os.kill(lost, signal.SIGKILL)

        def answered() -> list[int]:
            """By whom. Clients connect again where an answer says that its connection ends, or nobody is there."""
            found: list[int] = []
            for connection in connections:
                try:
                    found.append(connection.who())
                except (http.client.HTTPException, ConnectionError):
                    connection.close()
            return found

        def divided() -> bool:
            found = answered()
            return len(set(found)) == 2 and lost not in found and {found.count(one) for one in found} == {3}

        eventually(divided)


def test_nothing_is_lost_when_it_stops(models: Path, tmp_path: Path) -> None:
    released = tmp_path / "released"
    with serving(models, "--drain", str(PATIENCE_S)) as running, ExitStack() as stack:
        connections = running.by_process(stack)
        for connection in connections.values():
            connection.send_who(released)
        eventually(lambda: running.metrics()["opweld_model_calls_running", "who", "1"] == 2)
        running.process.send_signal(signal.SIGINT)

        def refused() -> bool:
            with closing(running.connect()) as other:
                return other.ask("GET", "/v2/health/ready")[0] == 503 and other.plus()[0] == 503

        eventually(refused)
        released.touch()
        assert {connection.got_who() for connection in connections.values()} == set(connections)
        assert running.process.wait(PATIENCE_S) == 0


def test_they_end_with_their_supervisor(models: Path) -> None:
    with serving(models) as running, ExitStack() as stack:
        workers = running.by_process(stack)
        running.process.kill()
        running.process.wait(PATIENCE_S)
        eventually(lambda: all(gone(worker) for worker in workers))


def test_one_that_is_asked_to_end_is_replaced(models: Path) -> None:
    with serving(models) as running, ExitStack() as stack:
        (ending, _), *_ = running.by_process(stack).items()
        os.kill(ending, signal.SIGTERM)
        running.replaced(ending)
        assert any("ended with status 0; it is started again in 0.1 s" in line for line in running.said)
        running.by_process(stack)


def test_over_tls(models: Path) -> None:
    secured = ("--tls-cert", str(CERTIFICATES / "server.pem"), "--tls-key", str(CERTIFICATES / "server.key"))
    with serving(models, *secured) as running:
        import ssl

        context = ssl.create_default_context(cafile=str(CERTIFICATES / "authority.pem"))
        context.check_hostname = False
        for _ in range(4):  # who speaks no TLS is counted no more
            with closing(running.connect()) as plain, pytest.raises((http.client.BadStatusLine, ConnectionError)):
                plain.who()
        found = []
        with ExitStack() as stack:
            for _ in range(4):
                secure = http.client.HTTPSConnection(running.host, timeout=PATIENCE_S, context=context)
                found.append(stack.enter_context(closing(Connection(secure, running))).who())
        assert {process: found.count(process) for process in running.workers()} == dict.fromkeys(found, 2)


def test_a_second_server_has_no_part_of_the_port(models: Path, running: Running) -> None:
    ports = {"--port": running.host, "--grpc-port": running.grpc}
    for option, address in ports.items():
        arguments = (str(models), "--workers", "2", option, address.rpartition(":")[2])
        with pytest.raises(AssertionError, match=f"cannot listen on .*; choose another {option}"), started(*arguments):
            pass


def test_nothing_is_served_where_no_model_can_be_loaded(tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    with pytest.raises(AssertionError, match="no model could be loaded") as raised:  # noqa: SIM117
        with started(str(tmp_path), "--workers", "2"):
            pass
    assert "again" not in str(raised.value)

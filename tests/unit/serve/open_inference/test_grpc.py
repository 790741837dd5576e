"""The protocol over gRPC: calls, what the server tells, and what the guard does."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
import zlib
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import grpc
import numpy as np
import pytest

from opweld.errors import OptionError
from opweld.serve.access import AccessLog
from opweld.serve.health import Health
from opweld.serve.limits import Keys, Limits
from opweld.serve.listener import Common
from opweld.serve.metrics import Metrics
from opweld.serve.open_inference.grpc.descriptors import CLASSES
from opweld.serve.open_inference.grpc.guard import GrpcGuard
from opweld.serve.open_inference.grpc.messages import SERVICE
from opweld.serve.open_inference.grpc.service import Service
from opweld.serve.open_inference.interface import OpenInference
from opweld.serve.open_inference.regions import Regions
from opweld.serve.server import Server, reserve
from opweld.serve.visits import Visits
from tests.patience import PATIENCE_S
from tests.unit.serve.fakes import eventually
from tests.unit.serve.open_inference.running import Running, counts, serving
from tests.unit.serve.tensor_models import DTYPES, FakeRepository

Request = CLASSES["ModelInferRequest"]
FIRST, SECOND = counts()


class Stub:
    """The methods of a server, by name."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel

    def __call__(self, name: str, /, *, key: str = "", timeout: float = PATIENCE_S, **fields: Any) -> Any:
        request = CLASSES[f"{name}Request"](**fields)
        return self.send(name, request.SerializeToString(), key=key, timeout=timeout)

    def send(self, name: str, raw: bytes, *, key: str = "", timeout: float = PATIENCE_S) -> Any:
        take = CLASSES[f"{name}Response"].FromString
        call = self._channel.unary_unary(f"/{SERVICE}/{name}", None, take)
        return call(raw, timeout=timeout, metadata=(("authorization", f"Bearer {key}"),) if key else None)

    def stream(self, requests: Iterator[Any]) -> Any:
        made = self._channel.stream_stream(
            f"/{SERVICE}/ModelStreamInfer", Request.SerializeToString, CLASSES["ModelStreamInferResponse"].FromString
        )
        return made(requests, timeout=PATIENCE_S)


@dataclass(eq=False)
class Context:
    """Of a call, as its handler has it."""

    peer: Any
    read: Any
    add_done_callback: Any


@contextmanager
def stub_of(running: Running) -> Generator[Stub]:
    with grpc.insecure_channel(running.grpc_address) as channel:
        yield Stub(channel)


@pytest.fixture(scope="module")
def stub(running: Running) -> Iterator[Stub]:
    with stub_of(running) as stub:
        yield stub


@contextmanager
def refused(code: grpc.StatusCode, said: str = "") -> Generator[None]:
    with pytest.raises(grpc.RpcError) as raised:
        yield
    error: Any = raised.value
    assert error.code() == code, error.details()
    assert said in error.details()


def one(name: str = "x", datatype: str = "FP32", shape: Any = (1,), **fields: Any) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": list(shape), **fields}


def simple(**fields: Any) -> dict[str, Any]:
    inputs = [one(name, "INT32", (1, 16)) for name in ("INPUT0", "INPUT1")]
    raw = [FIRST.tobytes(), SECOND.tobytes()]
    return {"model_name": "simple", "inputs": inputs, "raw_input_contents": raw, **fields}


def test_raw_tensors(stub: Stub) -> None:
    answer = stub("ModelInfer", **simple(id="four"))
    assert (answer.model_name, answer.model_version, answer.id) == ("simple", "3", "four")
    assert [(o.name, o.datatype, [*o.shape]) for o in answer.outputs] == [
        ("OUTPUT0", "INT32", [1, 16]),
        ("OUTPUT1", "INT32", [1, 16]),
    ]
    assert list(answer.raw_output_contents) == [(FIRST + SECOND).tobytes(), (FIRST - SECOND).tobytes()]
    answer = stub("ModelInfer", **simple(model_version="1", outputs=[{"name": "OUTPUT1"}]))
    assert (answer.model_version, [o.name for o in answer.outputs]) == ("1", ["OUTPUT1"])


TYPED: dict[str, tuple[str, list[Any]]] = {
    "BOOL": ("bool_contents", [True, False]),
    "INT8": ("int_contents", [-128, 127]),
    "INT16": ("int_contents", [-(1 << 15), 1]),
    "INT32": ("int_contents", [-(1 << 31), 1]),
    "INT64": ("int64_contents", [-(1 << 63), 1]),
    "UINT8": ("uint_contents", [255, 1]),
    "UINT16": ("uint_contents", [65535, 1]),
    "UINT32": ("uint_contents", [(1 << 32) - 1, 1]),
    "UINT64": ("uint64_contents", [(1 << 64) - 1, 1]),
    "FP32": ("fp32_contents", [1.5, float("inf")]),
    "FP64": ("fp64_contents", [1.5, -1e300]),
    "BYTES": ("bytes_contents", [b"", "dr\xe4i".encode()]),
}


@pytest.mark.parametrize("datatype", DTYPES)
def test_each_datatype(stub: Stub, datatype: str) -> None:
    if datatype in TYPED:
        field, values = TYPED[datatype]
        given = one("x", datatype, (2,), contents={field: values})
        typed = stub("ModelInfer", model_name=f"same_{datatype}", inputs=[given])
        if datatype == "BYTES":
            raw = b"".join(len(v).to_bytes(4, "little") + v for v in values)
        else:
            raw = np.array(values, DTYPES[datatype]).tobytes()
        assert list(typed.raw_output_contents) == [raw]
    else:
        raw = np.array([1.5, -2], DTYPES[datatype]).tobytes()
        with refused(grpc.StatusCode.INVALID_ARGUMENT, "send it in raw_input_contents"):
            stub("ModelInfer", model_name=f"same_{datatype}", inputs=[one("x", datatype, (2,))])
    given = one("x", datatype, (2,))
    answer = stub("ModelInfer", model_name=f"same_{datatype}", inputs=[given], raw_input_contents=[raw])
    assert list(answer.raw_output_contents) == [raw] and answer.outputs[0].datatype == datatype


def test_classification_and_parameters(stub: Stub, running: Running) -> None:
    model = running.repository.get("same_FP32")
    asked = [{"name": "y", "parameters": {"classification": {"int64_param": 1}}}]
    given = one(shape=(2,), contents={"fp32_contents": [1, 3]})
    parameters = {"timeout": {"int64_param": 2_000_000}, "mine": {"string_param": "text"}}
    answer = stub("ModelInfer", model_name="same_FP32", inputs=[given], outputs=asked, parameters=parameters)
    assert answer.raw_output_contents[0] == b"\x0a\0\0\0" + b"3.000000:1"
    call = model.calls[-1]
    assert call.deadline is not None and call.deadline - call.begun == pytest.approx(2.0)
    stub("ModelInfer", model_name="same_FP32", inputs=[given], timeout=1000.0)
    call = model.calls[-1]
    # gRPC sends timeouts in coarse units.
    assert call.deadline is not None and 900 < call.deadline - time.monotonic() < 1100
    for wrong in ({"timeout": {"string_param": "1"}}, {"triton_mine": {"bool_param": True}}, {"mine": {}}):
        with refused(grpc.StatusCode.INVALID_ARGUMENT, next(iter(wrong))):
            stub("ModelInfer", model_name="same_FP32", inputs=[given], parameters=wrong)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"inputs": [], "raw_input_contents": []}, "INPUT0 is not given"),
        ({"raw_input_contents": [bytes(64)]}, "none is left for it"),
        ({"raw_input_contents": [bytes(64)] * 3}, "belong to no input"),
        ({"raw_input_contents": [bytes(64), bytes(63)]}, "INPUT1: 63 bytes of data"),
        ({"inputs": [one("INPUT0", "INT32", (1, -16))]}, "0 or more"),
        ({"inputs": [one("INPUT0", "INT32", (1 << 62, 1 << 62))]}, "larger than any memory"),
        ({"inputs": [one("INPUT0", "FP32", (1, 16))]}, "INPUT0 is sent as FP32; the model takes INT32"),
        ({"inputs": [one("other", "INT32", (1, 16))]}, "other is no input of the model"),
        ({"inputs": [one("INPUT0", "INT32", (1, 16), contents={"int_contents": [1] * 16})]},
         "contents field must not be specified when using raw_input_contents for 'INPUT0' for model 'simple'"),
        ({"inputs": [one("INPUT0", "INT32", (1, 16), contents={"int_contents": [1] * 16},
                         parameters={"shared_memory_region": {"string_param": "r"},
                                     "shared_memory_byte_size": {"int64_param": 64}})],
          "raw_input_contents": []}, "one of contents and shared_memory_region"),
        ({"outputs": [{"name": "z"}]}, "z is no output of simple"),
        ({"inputs": [one("INPUT0", "INT32", (1, 16), contents={"int64_contents": [1] * 16})],
          "raw_input_contents": []}, "0 values in its data"),
    ],
)  # fmt: skip
def test_calls_that_are_wrong(stub: Stub, fields: Any, said: str) -> None:
    with refused(grpc.StatusCode.INVALID_ARGUMENT, said):
        stub("ModelInfer", **(simple() | fields))


def test_what_there_is_not(stub: Stub) -> None:
    with refused(grpc.StatusCode.NOT_FOUND, "no model nobody"):
        stub("ModelInfer", **simple(model_name="nobody"))
    with refused(grpc.StatusCode.NOT_FOUND):
        stub("ModelInfer", **simple(model_version="2"))
    with refused(grpc.StatusCode.INTERNAL, "had an error"):
        stub("ModelInfer", model_name="failing", inputs=[one(contents={"fp32_contents": [1]})])
    for name in ("CudaSharedMemoryRegister", "TraceSetting", "LogSettings"):
        with refused(grpc.StatusCode.UNIMPLEMENTED):
            stub(name)
    assert not stub("CudaSharedMemoryStatus").regions
    stub("CudaSharedMemoryUnregister")


def test_what_the_server_tells(stub: Stub) -> None:
    assert stub("ServerLive").live and stub("ServerReady").ready
    assert stub("ModelReady", name="simple").ready and stub("ModelReady", name="simple", version="1").ready
    assert not stub("ModelReady", name="simple", version="2").ready and not stub("ModelReady", name="nobody").ready
    assert stub("ServerMetadata").name == "opweld"
    told = stub("ModelMetadata", name="simple")
    assert (list(told.versions), told.inputs[0].datatype, list(told.inputs[0].shape)) == (["1", "3"], "INT32", [-1, 16])
    config = stub("ModelConfig", name="simple").config
    assert (config.max_batch_size, config.input[0].data_type, list(config.input[0].dims)) == (8, 8, [16])
    (counted,) = stub("ModelStatistics", name="simple", version="3").model_stats
    assert counted.inference_stats.success.count == counted.execution_count


def test_the_repository() -> None:
    with serving() as running, stub_of(running) as stub:
        index = {one.name: one.state for one in stub("RepositoryIndex").models}
        assert (index["asleep"], index["simple"]) == ("UNAVAILABLE", "READY")
        assert "asleep" not in {one.name for one in stub("RepositoryIndex", ready=True).models}
        stub("RepositoryModelLoad", model_name="asleep")
        assert stub("ModelReady", name="asleep").ready
        stub("RepositoryModelUnload", model_name="asleep")
        assert not stub("ModelReady", name="asleep").ready
        with refused(grpc.StatusCode.INVALID_ARGUMENT, "folder"):
            stub("RepositoryModelLoad", model_name="simple", parameters={"config": {"string_param": "{}"}})


def test_messages_that_are_none(stub: Stub) -> None:
    for raw in (b"\xff\xff\xff", b"\x0a\x7fx", bytes(100), b"\x0a\x01\xff"):
        with refused(grpc.StatusCode.INVALID_ARGUMENT, "no ModelInferRequest"):
            stub.send("ModelInfer", raw)
    assert stub("ServerLive").live


def test_a_stream(stub: Stub) -> None:
    def requests() -> Iterator[Any]:
        for number in range(40):
            yield Request(**simple(id=str(number), model_name="nobody" if number % 4 == 3 else "simple"))

    answers = list(stub.stream(requests()))
    assert [one.infer_response.id for one in answers] == [str(number) for number in range(40)]
    for number, answer in enumerate(answers):
        assert ("no model nobody" in answer.error_message) == (number % 4 == 3)
        if number % 4 != 3:
            assert answer.infer_response.raw_output_contents[0] == (FIRST + SECOND).tobytes()
            assert answer.infer_response.parameters["triton_final_response"].bool_param


def slow_call() -> Any:
    return Request(model_name="slow", inputs=[one(contents={"fp32_contents": [1]})])


def test_clients_that_leave_and_do_not_wait() -> None:
    with serving() as running, stub_of(running) as stub:
        model = running.repository.get("slow")
        fields: Any = {"model_name": "slow", "inputs": [one(contents={"fp32_contents": [1]})]}
        with refused(grpc.StatusCode.DEADLINE_EXCEEDED):
            stub("ModelInfer", timeout=0.05, **fields)
        with grpc.insecure_channel(running.grpc_address) as channel:
            call = channel.unary_unary(f"/{SERVICE}/ModelInfer", Request.SerializeToString, None).future(slow_call())
            eventually(lambda: model.statistics.running == 1)
            call.cancel()
        stream = stub.stream(iter([slow_call()] * 100))
        eventually(lambda: model.statistics.running == 16)
        stream.cancel()
        eventually(lambda: model.statistics.running == 0)
        model.most = 0
        with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "wait for slow already"):
            stub("ModelInfer", **fields)
        # Nothing of the stream is left that the end would wait for.
        running.server.stop()
        running.thread.join(PATIENCE_S)
        assert not running.thread.is_alive()


def test_limits() -> None:
    with serving(Limits(drain=0.0, body=1000, seconds=0.05)) as running, stub_of(running) as stub:
        with refused(grpc.StatusCode.RESOURCE_EXHAUSTED):
            stub("ModelInfer", **simple(raw_input_contents=[bytes(1000)]))
        with refused(grpc.StatusCode.DEADLINE_EXCEEDED, "longer than 0.05 seconds"):
            stub("ModelInfer", model_name="slow", inputs=[one(contents={"fp32_contents": [1]})])
        (answer,) = stub.stream(iter([slow_call()]))
        assert "longer than 0.05 seconds" in answer.error_message


def test_what_all_calls_have_in_memory_is_limited() -> None:
    data: Any = {"inputs": [one(shape=(200,))], "raw_input_contents": [bytes(800)]}
    with serving(Limits(drain=0.0, in_flight=2000)) as running, stub_of(running) as stub:
        model = running.repository.get("slow")
        stream = stub.stream(iter([Request(model_name="slow", **data)] * 2))
        eventually(lambda: model.statistics.running == 2)
        with refused(grpc.StatusCode.RESOURCE_EXHAUSTED, "all memory"):
            stub("ModelInfer", model_name="same_FP32", **data)
        status, answer = running.post("/v2/models/same_FP32/infer", b" " * 800)
        assert status == 429 and "all memory" in answer["error"]
        more = list(stub.stream(iter([Request(model_name="same_FP32", **data)])))
        assert "all memory" in more[0].error_message
        model.release()
        assert [len(one.infer_response.outputs) for one in stream] == [1, 1]
        assert stub("ModelInfer", model_name="same_FP32", **data).model_name == "same_FP32"
        # A body counts as large as it is without its compression.
        packed = zlib.compress(b" " * 2001)
        status, answer = running.post("/v2/models/same_FP32/infer", packed, **{"Content-Encoding": "deflate"})
        assert status == 429
        # The answer of the call counts until grpcio has told that it was sent, after its client has it.
        eventually(lambda: running.post("/v2/models/same_FP32/infer", b" " * 1900)[0] == 400)


def test_keys(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "opweld.serve.access")
    with serving(keys=["k"]) as running, stub_of(running) as stub:
        assert stub("ServerLive").live and stub("ServerReady").ready
        with refused(grpc.StatusCode.UNAUTHENTICATED, "uthorization"):
            stub("ModelInfer", **simple())
        with refused(grpc.StatusCode.UNAUTHENTICATED, "Incorrect"):
            stub("ServerMetadata", key="wrong")
        with refused(grpc.StatusCode.UNAUTHENTICATED):
            list(stub.stream(iter([Request(**simple())])))
        assert stub("ModelInfer", key="k", **simple()).model_name == "simple"
        eventually(lambda: len(caplog.records) == 4)
        lines = [record.getMessage() for record in caplog.records]
        assert lines[0].startswith(f'127.0.0.1 "gRPC /{SERVICE}/ModelInfer" 401 0.')
        assert lines[3].startswith(f'127.0.0.1 "gRPC /{SERVICE}/ModelInfer" 200 model=simple 0.')


def test_a_server_that_stops_lets_calls_and_streams_end() -> None:
    with serving(Limits(drain=PATIENCE_S)) as running, stub_of(running) as stub:
        model = running.repository.get("slow")
        got: list[Any] = []
        more = threading.Event()

        def requests() -> Iterator[Any]:
            yield slow_call()
            more.wait(PATIENCE_S)

        def read() -> None:
            with refused(grpc.StatusCode.UNAVAILABLE, "stopping"):
                for answer in stub.stream(requests()):
                    got.append(answer)

        reader = threading.Thread(target=read)
        reader.start()
        eventually(lambda: model.statistics.running == 1)
        running.server.stop()
        eventually(lambda: not stub("ServerReady").ready)
        with refused(grpc.StatusCode.UNAVAILABLE, "stopping"):
            stub("ModelInfer", **simple())
        model.release()
        reader.join(PATIENCE_S)
        more.set()
        running.thread.join(PATIENCE_S)
        assert not running.thread.is_alive() and not reader.is_alive()
        assert [len(one.infer_response.outputs) for one in got] == [1]


def test_it_does_not_wait_for_ever() -> None:
    with serving(Limits(drain=0.05)) as running, stub_of(running) as stub:
        model = running.repository.get("slow")
        found: list[grpc.StatusCode] = []

        def call() -> None:
            try:
                stub("ModelInfer", model_name="slow", inputs=[one(contents={"fp32_contents": [1]})])
            except grpc.RpcError as error:
                found.append(error.code())

        caller = threading.Thread(target=call)
        caller.start()
        eventually(lambda: model.statistics.running == 1)
        running.server.stop()
        caller.join(PATIENCE_S)
        assert found == [grpc.StatusCode.UNAVAILABLE]


def test_a_port_that_is_taken() -> None:
    repository = FakeRepository()
    with reserve("127.0.0.1", 0) as taken, reserve("127.0.0.1", taken.getsockname()[1]) as second:
        taken.listen()
        protocol = OpenInference(repository)
        server = Server([repository], [protocol.interface], listeners=[protocol.listener(second)])
        with reserve("127.0.0.1", 0) as http, pytest.raises(OptionError, match="for gRPC; choose another --grpc-port"):
            server.run([http])
    assert repository.closed


def test_the_line_of_the_log_is_written_after_the_answer(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "opweld.serve.access")

    async def scenario() -> None:
        visits, repository, metrics = Visits(), FakeRepository(), Metrics()
        log = AccessLog(metrics)
        common = Common(Limits(), Keys(), visits, metrics, log, Health([], visits))
        guard = GrpcGuard(Service(repository, Regions(allowed=False), common.health, common.limits.body), common)
        method: Any = guard.handler().service(cast(Any, SimpleNamespace(method=f"/{SERVICE}/ServerMetadata")))
        over: list[Any] = []

        async def read() -> bytes:
            return b""

        context: Any = Context(peer=lambda: "ipv4:127.0.0.1:1", read=read, add_done_callback=over.append)
        answer = CLASSES["ServerMetadataResponse"].FromString(await method.stream_unary(None, context))
        assert answer.name == "opweld"
        log.flush()
        assert not caplog.records and len(visits) == 1  # what calls it sends now
        over[0](context)
        log.flush()
        assert len(caplog.records) == 1 and not len(visits)

    asyncio.run(scenario())

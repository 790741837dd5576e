"""Spans of requests: their names, what they are in, and what they say of errors."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import numpy as np
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBased, Sampler
from opentelemetry.trace import SpanKind, StatusCode
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

import opweld
from opweld.errors import OptionError
from opweld.serve.inference.model import Call, Run
from opweld.serve.interface import Interface
from opweld.serve.limits import Limits
from opweld.serve.metrics import Metrics
from opweld.serve.open_inference.grpc.descriptors import CLASSES
from opweld.serve.open_inference.grpc.messages import SERVICE
from opweld.serve.open_inference.interface import OpenInference
from opweld.serve.refusal import Refusal
from opweld.serve.routes import Router
from opweld.serve.server import Server, reserve
from opweld.serve.tracing.export import tracing_to
from opweld.serve.tracing.grpc import TracedCalls
from opweld.serve.tracing.http import TracedRequests
from opweld.serve.tracing.models import TracedRepository
from opweld.serve.tracing.request import CallTrace, Tracing, current
from tests.patience import PATIENCE_S
from tests.unit.serve.fakes import FAIL, eventually, listening, serving
from tests.unit.serve.raw import ask, head, post
from tests.unit.serve.tensor_models import KERNEL, FakeRepository

ROWS = np.ones((2, 16), np.int32)
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class Spans:
    """What is exported, by name."""

    def __init__(self, *, kernels: float = 1.0, sampler: Sampler = ALWAYS_ON) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(sampler=ParentBased(sampler), shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracing = Tracing(provider, kernels=kernels)

    @property
    def all(self) -> Sequence[ReadableSpan]:
        return self._exporter.get_finished_spans()

    def named(self, name: str) -> ReadableSpan:
        (found,) = (span for span in self.all if span.name == name)
        return found

    def inside(self, name: str) -> list[str]:
        """Names of the children of a span, in order of time."""
        own = self.named(name).context
        assert own is not None
        children = [span for span in self.all if span.parent is not None and span.parent.span_id == own.span_id]
        assert all(span.context and span.context.trace_id == own.trace_id for span in children)
        return [span.name for span in sorted(children, key=lambda span: (span.start_time, span.end_time))]


def models_interface(repository: TracedRepository, limits: Limits, metrics: Metrics) -> Interface:
    """A protocol that calls the model of a path."""
    router = Router(prefix="/v2")

    @router.post("/models/{name}/infer")
    async def infer(name: str, request: Request) -> Response:
        await request.body()
        model = repository.get(name)
        shape = ROWS if name == "simple" else np.ones(3, np.float32)
        made = await model.infer({spec.name: shape for spec in model.inputs}, Call())
        return JSONResponse(list(made))

    _ = infer
    return Interface(
        "/v2",
        router,
        lambda refusal: JSONResponse({"error": str(refusal)}, refusal.status),
        lambda error: Refusal(400, str(error)),
        lambda refusal: b"",
    )


def traced(spans: Spans, repository: FakeRepository, keys: Sequence[str] = ()) -> Any:
    """A server whose requests are traced."""
    interface = partial(models_interface, TracedRepository(repository))
    around = partial(TracedRequests, spans.tracing)
    return serving(Limits(drain=0.0), keys=keys, interfaces=[interface], around=around)


def test_a_request_its_parts_and_its_kernels() -> None:
    spans = Spans()
    with traced(spans, FakeRepository()) as running:
        begun = time.time_ns()
        assert ask(running, post("/v2/models/simple/infer", {}, traceparent=PARENT, tracestate="a=b"))[0] == 200
        eventually(lambda: len(spans.all) == 7)
    top = spans.named("POST /v2/models/{name}/infer")
    assert spans.inside(top.name) == ["decode", "queue", "batch", "encode"]
    assert spans.inside("batch") == ["run"] and spans.inside("run") == [KERNEL.name]
    assert top.kind is SpanKind.SERVER and top.status.status_code is StatusCode.UNSET
    assert top.parent is not None and top.context is not None and top.attributes is not None
    assert f"{top.parent.span_id:x}" == "b7ad6b7169203331" and top.context.trace_state.get("a") == "b"
    assert (
        top.attributes["http.response.status_code"] == 200 and top.attributes["url.path"] == "/v2/models/simple/infer"
    )
    batch, run, kernel = spans.named("batch"), spans.named("run"), spans.named(KERNEL.name)
    assert batch.attributes == {
        "opweld.model": "simple", "opweld.model.version": "3", "opweld.batch.rows": 2, "opweld.batch.calls": 1,
    }  # fmt: skip
    assert kernel.attributes == {"opweld.phase": 0, "opweld.flops": KERNEL.flops, "opweld.bytes": KERNEL.bytes}
    assert run.start_time is not None and kernel.start_time == run.start_time + KERNEL.begin
    assert kernel.end_time == run.start_time + KERNEL.end
    for span in spans.all:
        assert span.start_time is not None and span.end_time is not None
        assert begun <= span.start_time <= span.end_time <= time.time_ns()


def test_kernels_that_another_call_wanted_are_not_of_this_one() -> None:
    spans = Spans(kernels=0.0)
    request = spans.tracing.begin("a", {}, {})
    call = request.call({})
    assert call is not None and not call.wants_kernels
    call.ran(Run(time.monotonic_ns(), time.monotonic_ns(), 2, [Call(observer=call), Call()], [KERNEL]))
    request.end(name="a", attributes={})
    assert spans.inside("run") == []


def test_what_fails_and_what_is_refused() -> None:
    spans = Spans()
    with traced(spans, FakeRepository(), keys=["k"]) as running:
        key = {"Authorization": "Bearer k"}
        assert ask(running, post("/v2/models/failing/infer", {}, **key))[0] == 500
        assert ask(running, post("/v2/models/simple/infer", {}))[0] == 401
        assert ask(running, head("/health/ready", 0, "GET"))[0] == 200
        eventually(lambda: len(spans.all) == 8)
    by_status = {(span.attributes or {}).get("http.response.status_code"): span for span in spans.all}
    failed, refused = by_status[500], by_status[401]
    assert failed.status.status_code is StatusCode.ERROR and failed.status.description == "status 500"
    assert refused.status.status_code is StatusCode.UNSET and refused.name == "POST"
    batch = spans.named("batch")
    assert batch.status.status_code is StatusCode.ERROR and batch.status.description == "RunError"
    assert "secret" not in "".join(span.to_json() for span in spans.all)


def test_a_call_that_is_not_begun_ends_in_the_queue() -> None:
    spans, repository = Spans(), FakeRepository()
    repository.models["slow"]["1"].most = 0
    with traced(spans, repository) as running:
        assert ask(running, post("/v2/models/slow/infer", {}))[0] == 429
        eventually(lambda: len(spans.all) == 4)
    assert spans.inside("POST /v2/models/{name}/infer") == ["decode", "queue", "encode"]
    assert spans.named("queue").status.description == "QueueFull"


def test_texts_of_language_models() -> None:
    spans = Spans()
    body = {"model": "talker", "messages": [{"role": "user", "content": "hello"}]}
    with traced(spans, FakeRepository()) as running:
        ask(running, post("/v1/chat/completions", body))
        ask(running, post("/v1/chat/completions", {**body, "messages": [{"role": "user", "content": FAIL}]}))
        eventually(lambda: len(spans.all) == 2)
    told, failed = (span.attributes or {} for span in spans.all)
    assert (told["gen_ai.request.model"], told["gen_ai.usage.input_tokens"]) == ("talker", len("user: hello"))
    assert told["gen_ai.usage.output_tokens"] == 5 and failed["http.response.status_code"] == 500


@pytest.mark.parametrize("header", [{}, {"traceparent": f"{PARENT[:-1]}0"}])
def test_what_is_not_sampled_is_not_observed(header: dict[str, str]) -> None:
    spans, repository = Spans(sampler=ALWAYS_ON if header else ALWAYS_OFF), FakeRepository()
    with traced(spans, repository) as running:
        assert ask(running, post("/v2/models/simple/infer", {}, **header))[0] == 200
    assert spans.all == () and [call.observer for call in repository.models["simple"]["3"].calls] == [None]


def test_kernels_of_some_runs_alone() -> None:
    spans = Spans(kernels=0.0)
    with traced(spans, FakeRepository()) as running:
        assert ask(running, post("/v2/models/simple/infer", {}))[0] == 200
        eventually(lambda: len(spans.all) == 6)
    assert spans.inside("run") == []


def test_requests_that_share_a_run_are_linked() -> None:
    spans = Spans()
    requests = [spans.tracing.begin(name, {}, {}) for name in ("a", "b")]
    observers = [request.call({}) for request in requests]
    stranger = Call()
    calls = [stranger, *(Call(observer=observer) for observer in observers)]
    now = time.monotonic_ns()
    for request, observer in zip(requests, observers, strict=True):
        assert isinstance(observer, CallTrace)
        observer.ran(Run(now, now + 5, 3, calls))
        request.end(name="request", attributes={})
    batches = [span for span in spans.all if span.name == "batch"]
    ids = [span.context.span_id for span in spans.all if span.name == "request" and span.context]
    assert [[link.context.span_id for link in batch.links] for batch in batches] == [[one] for one in ids[::-1]]
    assert all((batch.attributes or {})["opweld.batch.calls"] == 3 for batch in batches)


async def grpc_calls(spans: Spans, repository: FakeRepository) -> None:
    """A unary call, one that is refused, and a stream of two."""
    models = TracedRepository(repository)

    async def infer(name: bytes, context: Any) -> bytes:
        if name == b"none":
            await context.abort(grpc.StatusCode.NOT_FOUND, "there is none")
        model = models.get(name.decode())
        return b",".join(one.encode() for one in await model.infer({spec.name: ROWS for spec in model.inputs}, Call()))

    async def stream(names: AsyncIterator[bytes], context: Any) -> None:
        async for name in names:
            await context.write(await infer(name, context))

    handlers = {
        "Infer": grpc.unary_unary_rpc_method_handler(infer),
        "Stream": grpc.stream_stream_rpc_method_handler(stream),
    }
    server = grpc.aio.server(interceptors=[TracedCalls(spans.tracing)])
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("a.Service", handlers)])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = channel.unary_unary("/a.Service/Infer")
        assert await call(b"simple", metadata=[("traceparent", PARENT)]) == b"OUTPUT0,OUTPUT1"
        for name in (b"none", b"failing"):
            with pytest.raises(grpc.aio.AioRpcError):
                await call(name)
        talk = channel.stream_stream("/a.Service/Stream")(iter([b"simple", b"simple"]))
        assert [answer async for answer in talk] == [b"OUTPUT0,OUTPUT1"] * 2
    await server.stop(None)


def test_calls_of_grpc() -> None:
    spans = Spans(kernels=0.0)
    asyncio.run(grpc_calls(spans, FakeRepository()))
    assert current.get() is None
    found = [span for span in spans.all if span.kind is SpanKind.SERVER]
    assert [span.name for span in found] == ["a.Service/Infer"] * 3 + ["a.Service/Stream"]
    codes = [(span.attributes or {})["rpc.grpc.status_code"] for span in found]
    assert codes == [0, grpc.StatusCode.NOT_FOUND.value[0], grpc.StatusCode.UNKNOWN.value[0], 0]
    assert [span.status.status_code is StatusCode.ERROR for span in found] == [False, False, True, False]
    first = found[0].context
    assert first is not None and f"{first.trace_id:x}" == PARENT[4:35].lstrip("0")
    inside = [span.name for span in spans.all if span.context and span.context.trace_id == first.trace_id]
    assert sorted(inside) == ["a.Service/Infer", "batch", "decode", "encode", "queue", "run"]
    last = found[-1].context
    assert last is not None
    inside = [span.name for span in spans.all if span.context and span.context.trace_id == last.trace_id]
    assert sorted(inside) == ["a.Service/Stream", "batch", "batch", "queue", "queue", "run", "run"]


@contextmanager
def open_inference(spans: Spans, repository: FakeRepository) -> Generator[str]:
    """A server of the protocol over gRPC, whose calls are traced: its address."""
    protocol = OpenInference(TracedRepository(repository))
    reserved = reserve("127.0.0.1", 0)
    address = f"127.0.0.1:{reserved.getsockname()[1]}"
    listener = protocol.listener(reserved, [TracedCalls(spans.tracing)])
    with listening(Server([repository], [protocol.interface], limits=Limits(drain=0.0), listeners=[listener])):
        yield address


def request_of(model: str) -> Any:
    tensor = CLASSES["ModelInferRequest"].InferInputTensor(name="x", datatype="FP32", shape=[1])
    raw = np.ones(1, np.float32).tobytes()
    return CLASSES["ModelInferRequest"](model_name=model, inputs=[tensor], raw_input_contents=[raw])


def test_the_protocol_over_grpc() -> None:
    spans, repository = Spans(kernels=0.0), FakeRepository()
    give, take = CLASSES["ModelInferRequest"].SerializeToString, CLASSES["ModelInferResponse"].FromString
    with open_inference(spans, repository) as address, grpc.insecure_channel(address) as channel:
        live = channel.unary_unary(f"/{SERVICE}/ServerLive")
        infer = channel.unary_unary(f"/{SERVICE}/ModelInfer", give, take)
        assert live(b"", timeout=PATIENCE_S)
        infer(request_of("same_FP32"), metadata=(("traceparent", PARENT),), timeout=PATIENCE_S)
        with pytest.raises(grpc.RpcError):
            infer(request_of("none"), timeout=PATIENCE_S)
        talk = channel.stream_stream(f"/{SERVICE}/ModelStreamInfer", give)(iter([request_of("slow")]))
        eventually(lambda: repository.models["slow"]["1"].statistics.running == 1)
        talk.cancel()
        eventually(lambda: repository.models["slow"]["1"].gone == 1)
        eventually(lambda: sum(span.kind is SpanKind.SERVER for span in spans.all) == 3)
    assert spans.inside(f"{SERVICE}/ModelStreamInfer") == ["queue"]
    assert spans.named(f"{SERVICE}/ModelStreamInfer").status.status_code is StatusCode.UNSET
    codes = [(one.attributes or {})["rpc.grpc.status_code"] for one in spans.all if one.kind is SpanKind.SERVER]
    assert codes == [0, grpc.StatusCode.NOT_FOUND.value[0], grpc.StatusCode.CANCELLED.value[0]]
    trace = int(PARENT[3:35], 16)
    names = [span.name for span in spans.all if span.context and span.context.trace_id == trace]
    assert names == ["decode", "queue", "batch", "run", "encode", f"{SERVICE}/ModelInfer"]


def test_a_file_has_a_line_of_json_a_span(tmp_path: Path) -> None:
    file = tmp_path / "spans.jsonl"
    tracing = tracing_to(str(file), requests=1.0, kernels=0.0)
    tracing.begin("one", {}, {}).end(name="two", attributes={"a": 1})
    tracing.close()
    (line,) = file.read_text().splitlines()
    told = json.loads(line)
    assert (told["name"], told["attributes"]) == ("two", {"a": 1})
    assert told["resource"]["attributes"]["service.name"] == "opweld"


def test_the_console_is_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    tracing = tracing_to("console", requests=1.0, kernels=0.0)
    tracing.begin("one", {}, {}).end(name="two", attributes={})
    tracing.close()
    assert json.loads(capsys.readouterr().err)["name"] == "two"


@pytest.mark.parametrize(
    ("address", "endpoint"),
    [
        ("http://collector:4318", "http://collector:4318/v1/traces"),
        ("https://collector/otel/v1/traces/", "https://collector/otel/v1/traces"),
    ],
)
def test_a_collector(monkeypatch: pytest.MonkeyPatch, address: str, endpoint: str) -> None:
    """By a library that takes the place of OpenTelemetry's, which need not be there."""
    made: list[str] = []

    class Exporter(InMemorySpanExporter):
        def __init__(self, endpoint: str) -> None:
            super().__init__()
            made.append(endpoint)

    library = SimpleNamespace(OTLPSpanExporter=Exporter)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", library)
    tracing_to(address, requests=1.0, kernels=0.0).close()
    assert made == [endpoint]


def test_nothing_else_imports_what_traces() -> None:
    package = Path(opweld.__file__).parent
    found = [path for path in package.rglob("*.py") if "from opentelemetry" in path.read_text(encoding="utf-8")]
    assert {path.parent for path in found} == {package / "serve" / "tracing"}


def test_destinations_that_are_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(OptionError, match="not installed: pip install opentelemetry-exporter-otlp-proto-http;"):
        tracing_to("http://localhost:4318", requests=1.0, kernels=0.0)
    with pytest.raises(OptionError, match="No such file or directory"):
        tracing_to(str(tmp_path / "none" / "spans"), requests=1.0, kernels=0.0)

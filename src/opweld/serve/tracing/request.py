"""The spans of a request.

    POST /v2/models/{model}/infer     from its first byte to the end of its answer
      decode                          from the end of its body until the model is called
      queue                           until a run takes the call, or it is refused
      batch                           until the model has answered; linked to the requests that share the run
        run                           of the compiled code
          k1_contraction ...          its kernels, of some runs
      encode                          until the answer begins

They are written when the request is over: what takes 10 us a span is no part of anybody's latency.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Final, TypeAlias

from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

import opweld
from opweld.serve.inference.model import Run

Attributes: TypeAlias = Mapping[str, str | int | float]

_PROPAGATOR: Final = TraceContextTextMapPropagator()


class Tracing:
    """Begins the spans of requests.

    Attributes:
        kernels: the part of traced calls in whose runs kernels are timed, 0 to 1.
    """

    def __init__(self, provider: TracerProvider, *, kernels: float) -> None:
        self.kernels = kernels
        self._provider = provider
        self._tracer = provider.get_tracer("opweld.serve", opweld.__version__)

    def begin(self, name: str, headers: Mapping[str, str], attributes: Attributes) -> RequestTrace:
        """A request came; `headers` may have the W3C's traceparent and tracestate, of the span that it belongs to."""
        parent = _PROPAGATOR.extract(headers, Context())
        return RequestTrace(self, self.start(name, parent, time.time_ns(), attributes, kind=SpanKind.SERVER))

    def start(
        self,
        name: str,
        parent: Context,
        begin: int,
        attributes: Attributes | None = None,
        *,
        links: list[Link] | None = None,
        kind: SpanKind = SpanKind.INTERNAL,
    ) -> Span:
        """A span that began at a time, in nanoseconds since 1970."""
        return self._tracer.start_span(
            name, parent, kind=kind, attributes=attributes, links=links, start_time=begin, record_exception=False
        )

    def close(self) -> None:
        """Exports what is left."""
        self._provider.shutdown()


class CallTrace:
    """What becomes of a call of a model: its observer. Times are those of `time.monotonic_ns`.

    Attributes:
        request: that it is of.
        entered, left: when the model was called, and when it answered or failed; 0: not yet.
        error: with which it failed.
    """

    def __init__(self, request: RequestTrace, attributes: Attributes, *, wants_kernels: bool) -> None:
        self.request, self.attributes, self.wants_kernels = request, attributes, wants_kernels
        self.runs: list[Run] = []
        self.entered, self.left = time.monotonic_ns(), 0
        self.error: BaseException | None = None

    def ran(self, run: Run) -> None:
        """See `Observer`."""
        self.runs.append(run)


class RequestTrace:
    """What is noted of a request while it is answered."""

    def __init__(self, tracing: Tracing, span: Span) -> None:
        self.span = span
        self._tracing = tracing
        self._since_1970 = time.time_ns() - time.monotonic_ns()
        self._received = self._answered = 0
        self._calls: list[CallTrace] = []

    def received(self) -> None:
        """All of it is here; of a stream nobody says so."""
        self._received = time.monotonic_ns()

    def answered(self) -> None:
        """The answer begins."""
        self._answered = time.monotonic_ns()

    def call(self, attributes: Attributes) -> CallTrace | None:
        """A model is called; None where the request is not sampled."""
        if not self.span.is_recording():
            return None
        call = CallTrace(self, attributes, wants_kernels=random.random() < self._tracing.kernels)
        self._calls.append(call)
        return call

    def end(self, *, name: str, attributes: Attributes, error: str = "") -> None:
        """It is over; `error`: why there is no answer, where that is the server's fault."""
        now = time.monotonic_ns()
        span = self.span
        if span.is_recording():
            span.update_name(name)
            span.set_attributes(attributes)
            if error:
                span.set_status(Status(StatusCode.ERROR, error))
            self._write(now)
        span.end(now + self._since_1970)

    def _write(self, now: int) -> None:
        above = set_span_in_context(self.span, Context())
        for call in self._calls:
            call.left = call.left or now
            if self._received:
                self._span("decode", above, self._received, call.entered)
            self._write_call(above, call)
            if self._answered:
                self._span("encode", above, call.left, self._answered)

    def _write_call(self, above: Context, call: CallTrace) -> None:
        first = call.runs[0].begun if call.runs else call.left
        self._span("queue", above, call.entered, first, call.attributes, error=None if call.runs else call.error)
        for number, run in enumerate(call.runs):
            is_last = number == len(call.runs) - 1
            shared = {**call.attributes, "opweld.batch.rows": run.rows, "opweld.batch.calls": len(run.calls)}
            others = [one.observer for one in run.calls if one.observer is not call]
            links = [Link(one.request.span.get_span_context()) for one in others if isinstance(one, CallTrace)]
            error = call.error if is_last else None
            end = call.left if is_last else run.ended
            batch = self._span("batch", above, run.begun, end, shared, links=links, error=error)
            inside = self._span("run", batch, run.begun, run.ended, error=error)
            for kernel in run.kernels if call.wants_kernels else ():  # others in the batch may have wanted them
                told = {"opweld.phase": kernel.phase, "opweld.flops": kernel.flops, "opweld.bytes": kernel.bytes}
                self._span(kernel.name, inside, run.begun + kernel.begin, run.begun + kernel.end, told)

    def _span(
        self,
        name: str,
        above: Context,
        begin: int,
        end: int,
        attributes: Attributes | None = None,
        *,
        links: list[Link] | None = None,
        error: BaseException | None = None,
    ) -> Context:
        """Writes a span of monotonic times; what its children are in."""
        span = self._tracing.start(name, above, begin + self._since_1970, attributes, links=links)
        if error is not None:
            span.set_status(Status(StatusCode.ERROR, type(error).__name__))
        span.end(max(begin, end) + self._since_1970)
        return set_span_in_context(span, above)


current: Final[ContextVar[RequestTrace | None]] = ContextVar("opweld.serve.tracing.current", default=None)
"""Of the request that this task answers."""

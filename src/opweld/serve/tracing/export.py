"""Where spans go."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import IO, Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

import opweld
from opweld.errors import OptionError
from opweld.serve.tracing.request import Tracing

_OTLP = "opentelemetry.exporter.otlp.proto.http.trace_exporter"


def tracing_to(destination: str, *, requests: float, kernels: float) -> Tracing:
    """Spans of requests for a destination; whoever closes it has all of them exported.

    Args:
        destination: "console", standard error; the address of a collector that takes OTLP over HTTP, as
            http://localhost:4318; or a file, to which a line of JSON is added for each span.
        requests: the part of requests that are traced, where no caller has decided: 0 to 1.
        kernels: the part of those in whose runs kernels are timed.

    Raises OptionError where the file cannot be written, or the library that sends spans is not installed."""
    told = {"service.name": "opweld", "service.version": opweld.__version__}
    provider = TracerProvider(
        resource=Resource.create(told), sampler=ParentBased(TraceIdRatioBased(requests)), shutdown_on_exit=False
    )
    provider.add_span_processor(BatchSpanProcessor(_exporter(destination)))
    return Tracing(provider, kernels=kernels)


def _exporter(destination: str) -> SpanExporter:
    if destination == "console":
        return _Lines(sys.stderr)
    if destination.startswith(("http://", "https://")):
        return _otlp(destination)
    try:
        file = Path(destination).open("a", encoding="utf-8")  # noqa: SIM115 - the exporter closes it
    except OSError as error:
        raise OptionError(f"--trace {destination}: {error.strerror or error}") from error
    return _Lines(file, closes=True)


class _Lines(ConsoleSpanExporter):
    """A line of JSON a span."""

    def __init__(self, out: IO[str], *, closes: bool = False) -> None:
        super().__init__(out=out, formatter=_line)
        self._closed_with = out if closes else None

    def shutdown(self) -> None:
        """Closes the file."""
        if self._closed_with is not None:
            self._closed_with.close()


def _line(span: ReadableSpan) -> str:
    return span.to_json(indent=None) + "\n"


def _otlp(address: str) -> SpanExporter:
    try:
        module: Any = importlib.import_module(_OTLP)
    except ModuleNotFoundError as error:
        raise OptionError(
            f"--trace {address}: to send spans takes {error.name}, which is not installed: "
            "pip install opentelemetry-exporter-otlp-proto-http; --trace FILE needs it not"
        ) from error
    path = "" if address.rstrip("/").endswith("/v1/traces") else "/v1/traces"
    return module.OTLPSpanExporter(endpoint=address.rstrip("/") + path)

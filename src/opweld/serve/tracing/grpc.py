"""Calls of gRPC as spans."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any

import grpc

from opweld.serve.tracing.request import RequestTrace, Tracing, current

_FAULTS = {
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.UNIMPLEMENTED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DATA_LOSS,
}
"""Those that OpenTelemetry takes for errors of a server."""

_PROBES = {"ServerLive", "ServerReady"}
"""What load balancers ask all day."""


class _Read:
    """The context of a call whose handler reads its message, which is told to the request."""

    def __init__(self, context: Any, request: RequestTrace) -> None:
        self._context, self._request = context, request

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    async def read(self) -> Any:
        """The message."""
        message = await self._context.read()
        self._request.received()
        return message


class TracedCalls(grpc.aio.ServerInterceptor):
    """Traces calls of a server of `grpc.aio`: unary ones, those whose handlers read one message, and streams whose
    handlers write answers themselves. A stream is one span, with the calls of models in it."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: grpc.HandlerCallDetails
    ) -> Any:
        """The handler of a call, inside of a span."""
        handler = await continuation(handler_call_details)
        method: str = handler_call_details.method.removeprefix("/")
        if method.rpartition("/")[2] in _PROBES:
            return handler
        kept: dict[str, Any] = {}
        if handler is not None:
            kept = {
                "request_deserializer": handler.request_deserializer,
                "response_serializer": handler.response_serializer,
            }
        if handler is not None and handler.unary_unary is not None:
            return grpc.unary_unary_rpc_method_handler(self._unary(handler.unary_unary, method), **kept)
        if handler is not None and handler.stream_unary is not None:
            return grpc.stream_unary_rpc_method_handler(self._read(handler.stream_unary, method), **kept)
        if handler is not None and handler.stream_stream is not None:
            return grpc.stream_stream_rpc_method_handler(self._stream(handler.stream_stream, method), **kept)
        return handler

    def _unary(self, answer: Callable[[Any, Any], Awaitable[Any]], method: str) -> Any:
        async def traced(message: Any, context: Any) -> Any:
            with self._request(method, context) as request:
                request.received()
                answered = await answer(message, context)
                request.answered()
                return answered

        return traced

    def _read(self, answer: Callable[[Any, Any], Awaitable[Any]], method: str) -> Any:
        async def traced(messages: Any, context: Any) -> Any:
            with self._request(method, context) as request:
                answered = await answer(messages, _Read(context, request))
                request.answered()
                return answered

        return traced

    def _stream(self, answer: Callable[[Any, Any], Awaitable[None]], method: str) -> Any:
        async def traced(messages: Any, context: Any) -> None:
            with self._request(method, context):
                await answer(messages, context)

        return traced

    @contextmanager
    def _request(self, method: str, context: Any) -> Generator[RequestTrace]:
        """Its span; the context of the call is gone with the call, so that nobody has to set back what is current."""
        headers = {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}
        service, _, called = method.rpartition("/")
        told = {"rpc.system": "grpc", "rpc.service": service, "rpc.method": called, "client.address": context.peer()}
        request = self._tracing.begin(method, headers, told)
        current.set(request)
        code = grpc.StatusCode.OK
        try:
            yield request
        except (asyncio.CancelledError, GeneratorExit):
            code = grpc.StatusCode.CANCELLED
            raise
        except BaseException:
            code = grpc.StatusCode.UNKNOWN
            raise
        finally:
            code = context.code() or code
            number: int = code.value[0]
            error = code.name if code in _FAULTS else ""
            request.end(name=method, attributes={"rpc.grpc.status_code": number}, error=error)

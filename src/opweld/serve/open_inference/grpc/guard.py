"""What holds for every method of gRPC, around what it does: as `serve.guard` for HTTP."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias, cast

import grpc
from google.protobuf.message import DecodeError
from grpc.aio import ServicerContext

from opweld.serve.access import refusal_for
from opweld.serve.after import After
from opweld.serve.listener import Common
from opweld.serve.open_inference.grpc.descriptors import CLASSES
from opweld.serve.open_inference.grpc.messages import SERVICE
from opweld.serve.open_inference.grpc.peers import cut_off, host_of
from opweld.serve.open_inference.grpc.service import Method, Service
from opweld.serve.refusal import Refusal, out_of_time, stopping
from opweld.serve.visits import Cut, Visit

_log: Final = logging.getLogger("opweld.serve")

_AT_ONCE: Final = 16
"""Calls of one stream that run or wait; more are not read before one of them is answered."""

_CODES: Final = {
    400: grpc.StatusCode.INVALID_ARGUMENT,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.NOT_FOUND,
    409: grpc.StatusCode.ALREADY_EXISTS,
    413: grpc.StatusCode.RESOURCE_EXHAUSTED,
    429: grpc.StatusCode.RESOURCE_EXHAUSTED,
    499: grpc.StatusCode.CANCELLED,
    501: grpc.StatusCode.UNIMPLEMENTED,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.DEADLINE_EXCEEDED,
}
"""By status of HTTP."""

_Given: TypeAlias = "tuple[Visit, str]"
"""A call whose answer, or one of whose answers gRPC sends, and its client, as `ServicerContext.peer` names it: whoever
asks a context for that when its call is over, ends the process."""

_Streamed: Final = CLASSES["ModelStreamInferResponse"]
_Answer: Final = CLASSES["ModelInferResponse"]


def code_of(refusal: Refusal) -> grpc.StatusCode:
    """What gRPC calls a refusal."""
    if refusal.code == "timeout":
        return grpc.StatusCode.DEADLINE_EXCEEDED
    return _CODES.get(refusal.status, grpc.StatusCode.INTERNAL)


class GrpcGuard:
    """Handlers of methods: they refuse who has no key, and everybody while the server stops; they end what takes too
    long, and the work for a client that has gone away; they count and log."""

    def __init__(self, service: Service, common: Common) -> None:
        self._service, self._common = service, common
        self._given = After[_Given](common.limits.seconds, self._not_taken)

    def handler(self) -> grpc.GenericRpcHandler:
        """All methods of the service."""
        made = {name: self._unary(name, self._open(method)) for name, method in self._service.health().items()}
        made |= {
            name: self._unary(name, self._guarded(name, method)) for name, method in self._service.methods().items()
        }
        made["ModelStreamInfer"] = grpc.stream_stream_rpc_method_handler(self._stream)
        return grpc.method_handlers_generic_handler(SERVICE, made)

    @staticmethod
    def _unary(name: str, answer: Any) -> Any:
        # To gRPC a stream of one message: it would wait for that one before it asks us how long.
        return cast(Any, grpc.stream_unary_rpc_method_handler(answer))

    @staticmethod
    def _open(method: Method) -> Any:
        async def answer(_requests: AsyncIterator[bytes], _context: ServicerContext[Any, Any]) -> bytes:
            return (await method(None, Visit("", "", ""))).SerializeToString()

        return answer

    def _guarded(self, name: str, method: Method) -> Any:
        async def answer(_requests: AsyncIterator[bytes], context: ServicerContext[Any, Any]) -> bytes:
            async with self._visiting(name, context) as visit:
                raw = cast("bytes | object", await context.read())
                if not isinstance(raw, bytes):
                    raise Refusal(400, f"the call has no message, expected a {name}Request")
                visit.hold(len(raw))
                request = _message(name, raw)
                if name == "ModelInfer":
                    found = await self._service.infer(request, visit, _deadline(context))
                else:
                    found = await method(request, visit)
                given = found.SerializeToString()
                visit.hold(len(given))
                return given

        return answer

    async def _stream(self, requests: AsyncIterator[bytes], context: ServicerContext[Any, Any]) -> None:
        """ModelStreamInfer: several calls at once, answered in their order; the stream outlives one that fails."""
        async with self._visiting("ModelStreamInfer", context, timed=False) as visit:
            await self._answer_all(requests, visit, context)

    @asynccontextmanager
    async def _visiting(
        self, name: str, context: ServicerContext[Any, Any], *, timed: bool = True
    ) -> AsyncGenerator[Visit]:
        """The block is a request; the client is told what it raises. It is over when the answer has been taken."""
        peer, visits = context.peer(), self._common.visits
        visit = _visit(name, peer)
        visits.enter(visit)

        def over(_: ServicerContext[Any, Any]) -> None:
            self._given.discard((visit, peer))
            visits.leave(visit)
            self._common.log.tell(visit)

        context.add_done_callback(cast(Any, over))
        try:
            with visits.endable(visit, timed=timed):
                self._admit(context)
                yield visit
            visit.status = 200
            self._give(visit, peer)
        except Exception as error:  # noqa: BLE001 - the client is told, and the log
            if isinstance(error, Cut) and visit.why is None:
                raise asyncio.CancelledError from None  # nobody is there who could be told
            cut = visit.why if isinstance(error, Cut) else None
            refusal = cut or refusal_for(error, visit)
            visit.status = refusal.status
            self._give(visit, peer)
            await context.abort(code_of(refusal), str(refusal))

    def _give(self, visit: Visit, peer: str) -> None:
        """gRPC sends the answer now, in the same task."""
        visit.complete, visit.task = True, asyncio.current_task()
        self._given.add((visit, peer))

    def _not_taken(self, given: _Given) -> None:
        # All that the client is sent: of what gRPC sends when the connection is gone, it logs a traceback.
        _, peer = given
        for one in [given, *(other for other in self._given if other[1] == peer)]:
            visit, _ = one
            _log.info("%s: the client does not take its answer, and is cut off", visit.id)
            self._given.discard(one)
            visit.complete = False
            visit.end(None)
        cut_off(peer)

    async def _answer_all(
        self, requests: AsyncIterator[bytes], visit: Visit, context: ServicerContext[Any, Any]
    ) -> None:
        peer = context.peer()
        # The queue itself is not bounded: who ends the reading waits for nothing.
        calls: asyncio.Queue[asyncio.Task[tuple[bytes, int]] | None] = asyncio.Queue()
        room = asyncio.Semaphore(_AT_ONCE)
        closed = self._common.visits.closed

        async def read() -> None:
            try:
                async for raw in requests:
                    await room.acquire()
                    calls.put_nowait(group.create_task(self._answer_one(raw, visit, context)))
            finally:
                calls.put_nowait(None)

        async def end(reader: asyncio.Task[None]) -> None:
            await closed.wait()
            reader.cancel()

        async with asyncio.TaskGroup() as group:
            ending = group.create_task(end(group.create_task(read())))
            while (call := await calls.get()) is not None:
                answer, held = await call
                self._given.add((visit, peer))
                await context.write(answer)
                self._given.discard((visit, peer))
                visit.drop(held)
                room.release()
            ending.cancel()
        if closed.is_set():
            raise stopping()

    async def _answer_one(self, raw: bytes, stream: Visit, context: ServicerContext[Any, Any]) -> tuple[bytes, int]:
        """An answer on a stream, and the bytes that it has in memory until it is taken."""
        limit = self._common.limits.seconds
        visit = Visit(stream.client, stream.method, stream.path)
        id = ""
        try:
            request = _message("ModelInfer", raw)
            id = request.id
            with self._common.visits.counted(visit):
                visit.hold(len(raw))
                async with asyncio.timeout(limit):
                    found = await self._service.infer(request, visit, _deadline(context))
        except TimeoutError:
            refusal = out_of_time(limit)
        except Exception as error:  # noqa: BLE001 - the client is told, and the log
            refusal = refusal_for(error, visit)
        else:
            stream.model = visit.model
            found.parameters["triton_final_response"].bool_param = True
            given = _Streamed(infer_response=found).SerializeToString()
            try:
                stream.hold(len(given))
                return given, len(given)
            except Refusal as busy:
                refusal = busy
        return _Streamed(error_message=str(refusal), infer_response=_Answer(id=id)).SerializeToString(), 0

    def _admit(self, context: ServicerContext[Any, Any]) -> None:
        given: str | bytes = ""
        if self._common.keys:
            given = dict(context.invocation_metadata() or ()).get("authorization", "")
        self._common.admit(given.decode("latin-1") if isinstance(given, bytes) else given)


def _message(name: str, raw: bytes) -> Any:
    """What a method is sent. gRPC would answer what is none as a fault of the server, and log a traceback."""
    try:
        return CLASSES[f"{name}Request"].FromString(raw)
    except DecodeError:
        raise Refusal(400, f"the message is no {name}Request of protocol buffers") from None


def _visit(name: str, peer: str) -> Visit:
    path = f"/{SERVICE}/{name}"
    return Visit(host_of(peer), "gRPC", path, route=path)


def _deadline(context: ServicerContext[Any, Any]) -> float | None:
    """Of the client, as `time.monotonic` counts; None: it has none."""
    left = cast("float | None", context.time_remaining())  # its annotation forgets that there may be none
    return None if left is None else time.monotonic() + left

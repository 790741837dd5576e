"""Clients that cost little, so that they do not take the processors that they measure: a request is bytes that are made
already, and of an answer no more is read than whether it is one."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

import grpc
import grpc.aio


class Transport(Protocol):
    """Connections to a server."""

    async def send(self, request: bytes) -> int:
        """The status of its answer as HTTP has it; 0 where the connection is lost."""
        ...

    async def close(self) -> None:
        """Ends them."""
        ...


class _Answers(asyncio.Protocol):
    """One connection, one request at a time."""

    def __init__(self) -> None:
        self.lost = False
        self._transport: asyncio.Transport | None = None
        self._data = bytearray()
        self._waiting: asyncio.Future[int] | None = None
        self._status, self._end = 0, -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self._finish(0)

    def data_received(self, data: bytes) -> None:
        self._data += data
        if self._end < 0 and (head := self._data.find(b"\r\n\r\n")) >= 0:
            lines = bytes(self._data[:head]).lower().split(b"\r\n")
            self._status = int(lines[0].split()[1])
            lengths = [line for line in lines if line.startswith(b"content-length:")]
            self._end = head + 4 + (int(lengths[0].split(b":")[1]) if lengths else 0)
        if 0 <= self._end <= len(self._data):
            self._finish(self._status)

    def _finish(self, status: int) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(status)

    async def send(self, request: bytes) -> int:
        """The status of the answer."""
        assert self._transport is not None
        self._data.clear()
        self._end = -1
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._waiting

    @property
    def answering(self) -> bool:
        """Whether something of the answer has come."""
        return bool(self._data)

    def close(self) -> None:
        """Ends the connection."""
        if self._transport is not None:
            self._transport.close()


class Http:
    """As many connections as requests are under way."""

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._free: list[_Answers] = []

    async def send(self, request: bytes) -> int:
        """On a free connection, or a new one."""
        while self._free and self._free[-1].lost:
            self._free.pop()
        if self._free:
            connection = self._free.pop()
            status = await self._over(connection, request)
            if status or connection.answering:
                return status
            # The server closed it as idle as the request was on its way. Such a one is sent again (RFC 9112, 9.3.1).
        try:
            loop = asyncio.get_running_loop()
            _, connection = await loop.create_connection(_Answers, self._host, self._port)
        except OSError:
            return 0
        return await self._over(connection, request)

    async def _over(self, connection: _Answers, request: bytes) -> int:
        try:
            status = await connection.send(request)
        except BaseException:
            connection.close()
            raise
        if not connection.lost:
            self._free.append(connection)
        return status

    async def close(self) -> None:
        """Ends all connections."""
        for connection in self._free:
            connection.close()


_STATUS = {
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.INVALID_ARGUMENT: 400,
}


class Grpc:
    """Some channels, of which each has a connection of its own; messages stay bytes."""

    def __init__(self, host: str, port: int, channels: int = 1) -> None:
        options = [
            ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1),
            ("grpc.use_local_subchannel_pool", 1),
        ]
        self._channels = [grpc.aio.insecure_channel(f"{host}:{port}", options=options) for _ in range(channels)]
        calls: list[Callable[[bytes], Awaitable[bytes]]] = [
            channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")  # pyright: ignore[reportAttributeAccessIssue]
            for channel in self._channels
        ]
        self._next = itertools.cycle(calls)

    async def send(self, request: bytes) -> int:
        """A call of the protocol's ModelInfer, on each channel in turn."""
        try:
            await next(self._next)(request)
        except grpc.aio.AioRpcError as error:
            return _STATUS.get(error.code(), 500)
        return 200

    async def close(self) -> None:
        """Ends the channels."""
        for channel in self._channels:
            with suppress(Exception):
                await channel.close()

"""A connection over HTTP, which no client holds for nothing. The guard limits requests from their body on; what comes
before it, and how long an answer lies here that nobody takes, is limited here."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from opweld.serve.limits import Limits
from opweld.serve.transport import Gathering


class Connection(HttpToolsProtocol):
    """uvicorn's protocol with those limits. uvicorn itself sees to how long it is kept between requests.

    Attributes:
        limits: set by `connection_of`.
    """

    limits: Limits = Limits()
    _in_head: bool = False
    """Whether a request has begun whose headers are not complete."""

    _size: int = 0
    """Bytes that have come of them after those that came with the first."""

    _head_timer: asyncio.TimerHandle | None = None
    _answer_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has come."""
        super().connection_made(Gathering(transport))
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """It has gone."""
        self._head_timer = _cancelled(self._head_timer)
        self._answer_timer = _cancelled(self._answer_timer)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """It has sent something."""
        in_head = self._in_head
        super().data_received(data)
        # Most requests come with their headers at once, and are waited for no more.
        if self._head_timer is None and not self._answering and not self.transport.is_closing():
            self._expect_head()
        # The parser says nothing of a header before it is complete.
        if in_head and self._in_head and not self.transport.is_closing():
            self._size += len(data)
            if self._size > self.limits.head:
                self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._in_head, self._size = True, 0

    def on_headers_complete(self) -> None:
        """Its headers are there."""
        size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if size > self.limits.head:
            self._size = size
            raise ValueError("too large")  # for the parser, which has the request refused
        self._in_head = False
        self._head_timer = _cancelled(self._head_timer)
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        """All of an answer is on its way."""
        super().on_response_complete()
        if self.transport.get_write_buffer_size():
            self._expect_taking()

    def pause_writing(self) -> None:
        """The client takes less of an answer than there is."""
        super().pause_writing()
        self._expect_taking()

    def resume_writing(self) -> None:
        """It has taken most of it."""
        super().resume_writing()
        self._answer_timer = _cancelled(self._answer_timer)

    def send_400_response(self, msg: str) -> None:
        """Refuses what the parser does not take."""
        if self._size > self.limits.head:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        else:
            super().send_400_response(msg)

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete  # pyright: ignore[reportUnnecessaryComparison]

    def _expect_head(self) -> None:
        self._head_timer = self.loop.call_later(self.limits.head_seconds, self._no_head)

    def _no_head(self) -> None:
        self._head_timer = None
        if self._in_head:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT)
        else:
            self.transport.close()

    def _expect_taking(self) -> None:
        _cancelled(self._answer_timer)
        self._answer_timer = self.loop.call_later(self.limits.seconds, self._not_taken)

    def _not_taken(self) -> None:
        self._answer_timer = None
        if self.transport.get_write_buffer_size() and (self.flow.write_paused or not self._answering):
            self.transport.abort()

    def _refuse(self, status: HTTPStatus) -> None:
        text = f"{status.phrase}\n".encode()
        head = f"HTTP/1.1 {status} {status.phrase}\r\ncontent-type: text/plain\r\ncontent-length: {len(text)}\r\n"
        self.transport.write(head.encode() + b"connection: close\r\n\r\n" + text)
        self.transport.close()


def connection_of(limits: Limits) -> type[Connection]:
    """The connections of a server: uvicorn makes them of a class."""

    class Limited(Connection):
        """With the limits of this server."""

    Limited.limits = limits
    return Limited


def _cancelled(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()

"""A connection over HTTP, which no client holds for nothing. The guard limits requests from their body on; what comes
before it, and how long an answer lies here that nobody takes, is limited here. Meanwhile it has its part of the memory
for requests, so that those who take nothing are not forgotten when others are let in."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from opweld.serve.after import After
from opweld.serve.limits import Limits
from opweld.serve.processes.member import Member
from opweld.serve.transport import Gathering
from opweld.serve.visits import Visits


class Connection(HttpToolsProtocol):
    """uvicorn's protocol with those limits, of a server: see `connection_of`.

    Attributes:
        idle: connections between two requests. uvicorn sets and cancels a timer for each request.
    """

    limits: Limits
    visits: Visits
    idle: After[Connection]
    _in_head: bool = False
    """Whether a request has begun whose headers are not complete."""

    _size: int = 0
    """Bytes that have come of them after those that came with the first."""

    _last: int = 0
    """Bytes that came last."""

    _most: int = 0
    """Bytes that came since the request began, with what was there before it and behind its headers."""

    _untaken: int = 0
    """Bytes of answers in memory, since the client takes less of them than there is. Until it is written, an answer is
    among what visits have."""

    _head_timer: asyncio.TimerHandle | None = None
    _answer_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A client has come."""
        super().connection_made(Gathering(transport))
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """It has gone."""
        self.idle.discard(self)
        self._head_timer = _cancelled(self._head_timer)
        self._answer_timer = _cancelled(self._answer_timer)
        super().connection_lost(exc)
        self._has_untaken(0)
        self._gone()

    def _has_untaken(self, size: int) -> None:
        self.visits.keep(size - self._untaken)
        self._untaken = size

    def _gone(self) -> None:
        """It is counted no more."""

    def _parts(self) -> bool:
        """Whether it ends with its answer."""
        return False

    def data_received(self, data: bytes) -> None:
        """It has sent something."""
        in_head, self._last = self._in_head, len(data)
        if in_head:
            self._most += len(data)
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
        self._in_head, self._size, self._most = True, 0, self._last

    def on_headers_complete(self) -> None:
        """Its headers are there."""
        if self._most > self.limits.head:  # else there is nothing to count
            size = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
            if size > self.limits.head:
                self._size = size
                raise ValueError("too large")  # for the parser, which has the request refused
        self._in_head = False
        self._head_timer = _cancelled(self._head_timer)
        super().on_headers_complete()
        if not self.pipeline and self._parts():
            self.cycle.keep_alive = False  # which its answer tells

    def on_response_complete(self) -> None:
        """All of an answer is on its way: the next request is begun, or waited for."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        else:
            self.idle.add(self)
        if self.transport.get_write_buffer_size():
            self._expect_taking()

    def pause_writing(self) -> None:
        """The client takes less of an answer than there is."""
        super().pause_writing()
        self._has_untaken(self.transport.get_write_buffer_size())
        self._expect_taking()

    def resume_writing(self) -> None:
        """It has taken most of it."""
        super().resume_writing()
        self._has_untaken(0)
        self._answer_timer = _cancelled(self._answer_timer)

    def send_400_response(self, msg: str) -> None:
        """Refuses what the parser does not take."""
        if self._size > self.limits.head:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        else:
            super().send_400_response(msg)

    def _unset_keepalive_if_required(self) -> None:
        """uvicorn calls it where a request begins."""
        self.idle.discard(self)

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


def connection_of(limits: Limits, visits: Visits, member: Member | None = None) -> type[Connection]:
    """The connections of a server: uvicorn makes them of a class.

    Args:
        visits: have the memory for requests and answers.
        member: counts them, and says which of them end with their answer; None: none does."""

    class Limited(Connection):
        """With the limits of this server."""

        def _gone(self) -> None:
            if member is not None:
                member.gone()

        def _parts(self) -> bool:
            return member is not None and member.parts()

    Limited.limits, Limited.visits = limits, visits
    Limited.idle = After(limits.idle, Connection.timeout_keep_alive_handler)
    return Limited


def _cancelled(timer: asyncio.TimerHandle | None) -> None:
    if timer is not None:
        timer.cancel()

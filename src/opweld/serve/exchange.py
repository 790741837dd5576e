"""A request over HTTP and its answer, as ASGI has them."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from opweld.serve.interface import Answer, Interface
from opweld.serve.refusal import Refusal, too_large
from opweld.serve.visits import Visit


class Exchange:
    """A request to an interface.

    Attributes:
        headers: by name in lower case; of several of a name the first.
    """

    __slots__ = ("_interface", "_left", "_receive", "_scope", "_send", "_visit", "_watching", "headers")

    def __init__(self, interface: Interface, visit: Visit, scope: Scope, receive: Receive, send: Send) -> None:
        self.headers: dict[bytes, bytes] = dict(reversed([*scope["headers"]]))
        self._interface, self._visit = interface, visit
        self._scope, self._receive, self._send = scope, receive, send
        self._left: bytes | None = None
        self._watching: asyncio.Task[None] | None = None

    async def body(self, limit: int) -> bytes:
        """The body of the request. One that is larger than `limit` bytes is read on for a while: to a client that is
        still writing, an early answer looks like a lost connection. Raises Refusal then."""
        pieces: list[bytes] = []
        size, more = 0, True
        announced = self.headers.get(b"content-length", b"")
        if announced.isdigit() and int(announced) > 4 * limit:
            raise too_large(limit)
        while more and size <= 4 * limit:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._visit.end(None)
                await asyncio.sleep(0)  # where it is cancelled
            piece, more = message.get("body", b""), message.get("more_body", False)
            size += len(piece)
            if size <= limit:
                self._visit.hold(len(piece))
                pieces.append(piece)
        if size > limit:
            raise too_large(limit)
        return b"".join(pieces)

    async def answer(self, answer: Answer) -> None:
        """Sends an answer. Raises Refusal where all visits together would have too many bytes."""
        visit = self._visit
        visit.hold(len(answer.body))
        visit.status = 200
        headers = [
            (b"content-type", answer.content_type),
            (b"content-length", b"%d" % len(answer.body)),
            *answer.headers,
            (b"x-request-id", visit.id.encode()),
        ]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})
        visit.complete = True
        await self._send({"type": "http.response.body", "body": answer.body})

    async def refuse(self, refusal: Refusal) -> None:
        """Sends why there is no answer, or no more of it."""
        if not self._visit.status:
            await self._interface.refuse(refusal)(self._scope, self._receive, self._sending)
        elif self._visit.streams:
            await self._sending({"type": "http.response.body", "body": self._interface.broken(refusal)})

    async def pass_on(self, app: ASGIApp, body: bytes) -> None:
        """Has an application answer; the body has been read."""
        self._left = body
        await app(self._scope, self._again, self._sending)

    def watch(self) -> None:
        """From now on, the visit is ended when its client goes away."""
        self._watching = asyncio.get_running_loop().create_task(self._watch())

    def unwatch(self) -> None:
        """Not from now on."""
        if self._watching is not None:
            self._watching.cancel()

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        if not self._visit.complete:
            self._visit.end(None)

    async def _again(self) -> Message:
        """The body; then nothing, until the visit ends."""
        if (body := self._left) is not None:
            self._left = None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._visit.wait()
        return {"type": "http.disconnect"}

    async def _sending(self, message: Message) -> None:
        visit = self._visit
        if message["type"] == "http.response.start":
            given = [*message.get("headers", ())]
            visit.status = message["status"]
            visit.streams = any(name == b"content-type" and b"event-stream" in value for name, value in given)
            message = {**message, "headers": [*given, (b"x-request-id", visit.id.encode())]}
        elif not message.get("more_body", False):
            visit.complete = True
        await self._send(message)

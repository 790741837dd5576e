"""What holds for the requests of every interface, around the routes that answer them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from opweld.errors import OpweldError, in_line
from opweld.serve.access import tell
from opweld.serve.interface import Interface
from opweld.serve.limits import Keys, Limits
from opweld.serve.metrics import Metrics
from opweld.serve.refusal import Refusal, foreign, internal, refusal_of, stopping, too_large
from opweld.serve.visits import Cut, Visit, Visits

log = logging.getLogger("opweld.serve")

_PATIENCE_S = 5.0
"""How long a client whose answer is cut short has to take its end."""

_UNWATCHED_S = 0.02
"""After which a client is watched, whether it goes away: most answers are there by then."""


_HARMLESS = ("GET", "HEAD", "OPTIONS")
"""Methods that change nothing; their answers are shown to a page of elsewhere by CORS alone."""


class Guard:
    """ASGI middleware: refuses who has no key, what is too large, and everybody while the server stops; ends what takes
    too long, and the work for a client that has gone away, by cancelling it; counts and logs."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        interfaces: Sequence[Interface],
        limits: Limits,
        keys: Keys,
        origins: Sequence[str],
        visits: Visits,
        metrics: Metrics,
    ) -> None:
        self._app, self._interfaces = app, interfaces
        self._limits, self._keys, self._visits, self._metrics = limits, keys, visits, metrics
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        interface = None
        if scope["type"] == "http":
            interface = next((one for one in self._interfaces if one.covers(scope)), None)
        if interface is None:
            await self._app(scope, receive, send)
            return
        client = scope.get("client")
        visit = Visit(
            client=client[0] if client else "-",
            method=scope["method"],
            path=in_line(scope["path"]),
        )
        scope.setdefault("state", {})["visit"] = visit
        with self._visits.counted(visit):
            try:
                await self._answer(interface, visit, scope, receive, send)
            finally:
                tell(visit, getattr(scope.get("route"), "path", "other"), self._metrics)

    async def _answer(self, interface: Interface, visit: Visit, scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                visit.status = message["status"]
                headers = [*message.get("headers", ()), (b"x-request-id", visit.id.encode())]
                visit.streams = any(
                    name == b"content-type" and b"event-stream" in value for name, value in message["headers"]
                )
                message = {**message, "headers": headers}
            elif not message.get("more_body", False):
                visit.complete = True
            await send(message)

        try:
            with visit.endable(self._limits.seconds):
                await self._work(interface, visit, scope, receive, sending)
        except Cut:
            if (refusal := visit.why) is not None:
                try:
                    async with asyncio.timeout(_PATIENCE_S):
                        await self._cut_short(interface, visit, refusal, scope, receive, sending)
                except TimeoutError:
                    log.info("%s: the client does not take the end of its answer", visit.id)

    async def _work(self, interface: Interface, visit: Visit, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request, or what is wrong with it."""
        try:
            self._admit(scope)
            body = await self._body(visit, scope, receive)
            with _watched(receive, visit):
                await (interface.app or self._app)(scope, _again(body, visit), send)
        except Exception as error:
            refusal = refusal_of(error) if isinstance(error, OpweldError) else None
            if refusal is not None:
                await interface.refuse(refusal)(scope, receive, send)
                return
            log.exception("%s: %s %s failed", visit.id, visit.method, visit.path)
            if not visit.status:
                await interface.refuse(internal())(scope, receive, send)
            elif visit.streams:
                await send({"type": "http.response.body", "body": interface.broken(internal())})

    async def _cut_short(
        self, interface: Interface, visit: Visit, refusal: Refusal, scope: Scope, receive: Receive, send: Send
    ) -> None:
        if not visit.status:
            await interface.refuse(refusal)(scope, receive, send)
        elif visit.streams:
            await send({"type": "http.response.body", "body": interface.broken(refusal)})

    def _admit(self, scope: Scope) -> None:
        if not self._visits.open:
            raise stopping()
        headers = Headers(scope=scope)
        if scope["method"] not in _HARMLESS and self._of_another_page(headers):
            raise foreign(headers.get("origin", ""))
        if self._keys:
            self._keys.check(headers.get("authorization", ""))

    def _of_another_page(self, headers: Headers) -> bool:
        """Whether a browser sends a request for a web page that is not ours, and may not call us. Pages need nobody's
        leave to send simple ones, with text in them, to a server of the user's own machine."""
        origin, site = headers.get("origin", ""), headers.get("sec-fetch-site", "")
        if origin in self._origins or "*" in self._origins:
            return False
        if site:
            return site not in ("same-origin", "none")
        return bool(origin) and origin.partition("://")[2] != headers.get("host", "")

    async def _body(self, visit: Visit, scope: Scope, receive: Receive) -> bytes:
        """The body of a request. One that is too large is read on for a while: to a client that is still writing, an
        early answer looks like a lost connection."""
        limit = self._limits.body
        pieces: list[bytes] = []
        size, more = 0, True
        announced = Request(scope).headers.get("content-length", "")
        if announced.isdecimal() and int(announced) > 4 * limit:
            raise too_large(limit)
        while more and size <= 4 * limit:
            message = await receive()
            if message["type"] == "http.disconnect":
                visit.end(None)
                await asyncio.sleep(0)  # where it is cancelled
            piece, more = message.get("body", b""), message.get("more_body", False)
            size += len(piece)
            if size <= limit:
                visit.hold(len(piece))
                pieces.append(piece)
        if size > limit:
            raise too_large(limit)
        return b"".join(pieces)


@contextmanager
def _watched(receive: Receive, visit: Visit) -> Generator[None]:
    """Ends a visit when its client goes away while the block runs."""

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        if not visit.complete:
            visit.end(None)

    watches: list[asyncio.Task[None]] = []
    loop = asyncio.get_running_loop()
    timer = loop.call_later(_UNWATCHED_S, lambda: watches.append(loop.create_task(watch())))
    try:
        yield
    finally:
        timer.cancel()
        for one in watches:
            one.cancel()


def _again(body: bytes, visit: Visit) -> Receive:
    """What receives a body that has been read; then nothing, until the visit ends."""
    left = [body]

    async def receive() -> Message:
        if left:
            return {"type": "http.request", "body": left.pop(), "more_body": False}
        await visit.wait()
        return {"type": "http.disconnect"}

    return receive

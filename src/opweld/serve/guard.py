"""What holds for the requests of every interface, around the routes that answer them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from opweld.errors import in_line
from opweld.serve.access import refusal_for
from opweld.serve.after import After
from opweld.serve.exchange import Exchange
from opweld.serve.interface import Interface, Request, path_of
from opweld.serve.listener import Common
from opweld.serve.refusal import foreign
from opweld.serve.visits import Cut, Visit

_log = logging.getLogger("opweld.serve")

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
        self, app: ASGIApp, interfaces: Sequence[Interface], common: Common, origins: Sequence[str] = ()
    ) -> None:
        """
        Args:
            app: answers the requests of interfaces that have routes, and those of no interface.
            origins: of web pages that may call it.
        """
        self._app, self._interfaces, self._common, self._origins = app, interfaces, common, origins
        self._unwatched = After(_UNWATCHED_S, Exchange.watch)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        path = path_of(scope) if scope["type"] == "http" else ""
        for interface in self._interfaces:
            if interface.covers(path):
                break
        else:
            await self._app(scope, receive, send)
            return
        client = scope.get("client")
        visit = Visit(client[0] if client else "-", scope["method"], in_line(scope["path"]))
        scope.setdefault("state", {})["visit"] = visit
        exchange = Exchange(interface, visit, scope, receive, send)
        with self._common.visits.counted(visit):
            try:
                await self._answer(interface, path, visit, exchange)
            finally:
                visit.route = visit.route or getattr(scope.get("route"), "path", "")
                self._common.log.tell(visit)

    async def _answer(self, interface: Interface, path: str, visit: Visit, exchange: Exchange) -> None:
        try:
            with self._common.visits.endable(visit):
                try:
                    await self._work(interface, path, visit, exchange)
                except Exception as error:  # noqa: BLE001 - the client is told, and the log
                    await exchange.refuse(refusal_for(error, visit))
        except Cut:
            if visit.why is not None:
                try:
                    async with asyncio.timeout(_PATIENCE_S):
                        await exchange.refuse(visit.why)
                except TimeoutError:
                    _log.info("%s: the client does not take the end of its answer", visit.id)

    async def _work(self, interface: Interface, path: str, visit: Visit, exchange: Exchange) -> None:
        """Answers a request, or raises what is wrong with it."""
        headers = exchange.headers
        if visit.method not in _HARMLESS and self._of_another_page(headers):
            raise foreign(_text(headers, b"origin"))
        self._common.admit(_text(headers, b"authorization"))
        body = await exchange.body(self._common.limits.body)
        self._unwatched.add(exchange)
        try:
            if interface.answer is None:
                await exchange.pass_on(self._app, body)
            else:
                await exchange.answer(await interface.answer(Request(visit.method, path, headers, body, visit)))
        finally:
            self._unwatched.discard(exchange)
            exchange.unwatch()

    def _of_another_page(self, headers: Mapping[bytes, bytes]) -> bool:
        """Whether a browser sends a request for a web page that is not ours, and may not call us. Pages need nobody's
        leave to send simple ones, with text in them, to a server of the user's own machine."""
        origin, site = _text(headers, b"origin"), _text(headers, b"sec-fetch-site")
        if origin in self._origins or "*" in self._origins:
            return False
        if site:
            return site not in ("same-origin", "none")
        return bool(origin) and origin.partition("://")[2] != _text(headers, b"host")


def _text(headers: Mapping[bytes, bytes], name: bytes) -> str:
    return headers.get(name, b"").decode("latin-1")

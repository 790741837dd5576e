"""Requests of HTTP as spans."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from opweld.serve.tracing.request import RequestTrace, Tracing, current
from opweld.serve.visits import Visit


class TracedRequests:
    """ASGI middleware around all others: what is refused is traced too."""

    def __init__(self, tracing: Tracing, app: ASGIApp, covers: Callable[[Scope], bool]) -> None:
        """
        Args:
            covers: whether a request is traced: what load balancers and Prometheus ask for all day is not worth it.
        """
        self._app, self._tracing, self._covers = app, tracing, covers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        if scope["type"] != "http" or not self._covers(scope):
            await self._app(scope, receive, send)
            return
        method, client = scope["method"], scope.get("client")
        told = {"http.request.method": method, "url.path": scope["path"], "url.scheme": scope["scheme"]}
        if client:
            told["client.address"] = client[0]
        headers = Headers(scope=scope)
        request = self._tracing.begin(method, headers, told)
        status = 0

        async def receiving() -> Message:
            message = await receive()
            if message["type"] == "http.request" and not message.get("more_body", False):
                request.received()
            return message

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                request.answered()
            await send(message)

        token = current.set(request)
        try:
            await self._app(scope, receiving, sending)
        finally:
            current.reset(token)
            _end(request, scope, status)


def _end(request: RequestTrace, scope: Scope, status: int) -> None:
    visit: Visit | None = scope.get("state", {}).get("visit")
    route = "" if visit is None else visit.route
    outcome = status if visit is None else visit.outcome
    told: dict[str, Any] = {"http.response.status_code": outcome}
    if route:
        told["http.route"] = route
    if visit is not None:
        told["opweld.request"] = visit.id
        if visit.model:
            told["opweld.model"] = visit.model
        if visit.prompt_tokens:
            told |= {
                "gen_ai.request.model": visit.model,
                "gen_ai.usage.input_tokens": visit.prompt_tokens,
                "gen_ai.usage.output_tokens": visit.completion_tokens,
            }
    error = f"status {outcome}" if outcome >= 500 or not outcome else ""
    request.end(name=f"{scope['method']} {route}".rstrip(), attributes=told, error=error)

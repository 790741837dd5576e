"""Interfaces, health and metrics as one application."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import cache
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp

import opweld
from opweld.errors import OpweldError
from opweld.serve.guard import Guard
from opweld.serve.health import Health
from opweld.serve.interface import Interface, path_of
from opweld.serve.listener import Common
from opweld.serve.metrics import Metrics
from opweld.serve.refusal import Refusal, internal, refusal_of
from opweld.serve.routes import Answered, Router, UnfitError, schema_of


def application(interfaces: Sequence[Interface], common: Common, origins: Sequence[str]) -> ASGIApp:
    """The server as an ASGI application.

    Args:
        interfaces: the first one shapes the errors of paths that belong to none.
        origins: web pages from there may call it; none may where there are none.
    """
    routers = [interface.router for interface in interfaces if interface.router is not None]
    routers.append(_health(common.health, interfaces, common.metrics))
    routes = [route for router in routers for route in router.routes]

    def interface_of(request: Request) -> Interface:
        path = path_of(request.scope)
        return next((one for one in interfaces if one.covers(path)), interfaces[0])

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, OpweldError)
        if (refusal := refusal_of(error)) is None:
            raise error
        return interface_of(request).refuse(refusal)

    async def unfit(request: Request, error: Exception) -> Response:
        assert isinstance(error, UnfitError)
        interface = interface_of(request)
        return interface.refuse(interface.faults(error))

    async def lost(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        method, path = request.method, request.url.path
        texts = {404: f"Invalid URL ({method} {path})", 405: f"Not allowed to {method} on {path}."}
        refusal = Refusal(error.status_code, texts.get(error.status_code, str(error.detail)))
        return interface_of(request).refuse(refusal)

    async def failed(request: Request, _: Exception) -> Response:
        return interface_of(request).refuse(internal())

    handlers = {OpweldError: refused, UnfitError: unfit, HTTPException: lost, Exception: failed}
    app = Starlette(routes=[_schema(routes), *routes], exception_handlers=handlers)
    schema = Interface("/openapi.json", None, interfaces[0].refuse)
    guarded = Guard(app, [*interfaces, schema], common, origins)
    if not origins:
        return guarded
    return CORSMiddleware(guarded, allow_origins=origins, allow_methods=["*"], allow_headers=["*"])


def _health(health: Health, interfaces: Sequence[Interface], metrics: Metrics) -> Router:
    router = Router()
    for path in ("/health/live", *(one.live for one in interfaces if one.live)):
        router.add(path, health.answer_live)
    for path in ("/health/ready", *(one.ready for one in interfaces if one.ready)):
        router.add(path, health.answer_ready)

    @router.get("/metrics")
    async def metrics_() -> Response:
        """What the server counts, in Prometheus' text format."""
        return Response(await metrics.text(), media_type=CONTENT_TYPE_LATEST)

    _ = metrics_
    return router


def _schema(routes: Sequence[Answered]) -> Answered:
    """The route of what all others take, which is found out when somebody asks."""

    @cache
    def found() -> dict[str, Any]:
        return schema_of(routes, "opweld", opweld.__version__)

    async def schema(request: Request) -> Response:
        told, root = await asyncio.to_thread(found), request.scope.get("root_path", "")
        return JSONResponse({"servers": [{"url": root}], **told} if root else told)

    return Answered("/openapi.json", schema, ["GET"], listed=False)

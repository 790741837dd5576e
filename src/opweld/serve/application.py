"""Interfaces, health and metrics as one application."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp

import opweld
from opweld.errors import OpweldError
from opweld.serve.guard import Guard
from opweld.serve.interface import Backend, Interface
from opweld.serve.limits import Keys, Limits
from opweld.serve.metrics import Metrics
from opweld.serve.refusal import Refusal, internal, refusal_of
from opweld.serve.visits import Visits


def application(
    interfaces: Sequence[Interface],
    backends: Sequence[Backend],
    *,
    limits: Limits,
    keys: Keys,
    origins: Sequence[str],
    visits: Visits,
    metrics: Metrics,
) -> ASGIApp:
    """The server as an ASGI application.

    Args:
        interfaces: the first one shapes the errors of paths that belong to none.
        backends: what is behind them.
        origins: web pages from there may call it; none may where there are none.
        visits: counts requests, and is closed while the server stops.
    """
    app = FastAPI(title="opweld", version=opweld.__version__, docs_url=None, redoc_url=None)
    for interface in interfaces:
        app.include_router(interface.router)
    app.include_router(_health(backends, visits, metrics))

    def interface_of(request: Request) -> Interface:
        return next((one for one in interfaces if one.covers(request.url.path)), interfaces[0])

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, OpweldError)
        if (refusal := refusal_of(error)) is None:
            raise error
        return interface_of(request).refuse(refusal)

    async def unfit(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
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

    app.add_exception_handler(OpweldError, refused)
    app.add_exception_handler(RequestValidationError, unfit)
    app.add_exception_handler(HTTPException, lost)
    app.add_exception_handler(Exception, failed)
    guarded = Guard(app, interfaces=interfaces, limits=limits, keys=keys, visits=visits, metrics=metrics)
    if not origins:
        return guarded
    return CORSMiddleware(guarded, allow_origins=origins, allow_methods=["*"], allow_headers=["*"])


def _health(backends: Sequence[Backend], visits: Visits, metrics: Metrics) -> APIRouter:
    router = APIRouter()

    def failed() -> list[str]:
        return [name for backend in backends for name in backend.failed]

    @router.get("/health/live")
    async def live() -> Response:
        """Whether the process can answer at all: not when an engine has failed, which a new process alone mends."""
        if visits.open and (names := failed()):
            return JSONResponse({"status": "failed", "models": names}, status_code=503)
        return JSONResponse({"status": "live"})

    @router.get("/health/ready")
    async def ready() -> Response:
        """Whether it takes requests: not while it stops."""
        if not visits.open:
            return JSONResponse({"status": "stopping"}, status_code=503)
        return await live() if failed() else JSONResponse({"status": "ready"})

    @router.get("/metrics")
    async def metrics_() -> Response:
        """What the server counts, in Prometheus' text format."""
        return Response(metrics.text(), media_type=CONTENT_TYPE_LATEST)

    _ = live, ready, metrics_
    return router

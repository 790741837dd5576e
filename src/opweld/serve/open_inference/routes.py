"""The protocol's paths."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from opweld.serve.inference.model import Repository, TensorModel
from opweld.serve.open_inference import json_fields as fields
from opweld.serve.open_inference import told
from opweld.serve.open_inference.bodies import header_length, plain
from opweld.serve.open_inference.http_infer import InferRequest, answer
from opweld.serve.open_inference.infer import infer
from opweld.serve.open_inference.parameters import deadline_of
from opweld.serve.open_inference.regions import Regions
from opweld.serve.refusal import Refusal

Handler: TypeAlias = Callable[[Request], Awaitable[Response]]


class Resource:
    """What is at a path, by method."""

    def __init__(self, **methods: Handler) -> None:
        self._methods = methods

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers as an ASGI application."""
        handler = self._methods.get(scope["method"])
        if handler is None:
            allowed = " or ".join(self._methods)
            raise Refusal(405, f"Not allowed to {scope['method']} on {scope['path']}; {allowed} it.")
        response = await handler(Request(scope, receive, send))
        await response(scope, receive, send)


def routes(repository: Repository, regions: Regions, body: int) -> ASGIApp:
    """All paths but those of health, which are the server's.

    Args:
        body: bytes of a request at most, decompressed.
    """
    models, folder, memory = _Models(repository), _Repository(repository), _SharedMemory(regions)
    version = "/v2/models/{model}/versions/{version}"
    inference = Resource(POST=_Inference(repository, regions, body).infer)
    settings = Resource(GET=_no_settings, POST=_no_settings)
    resources: Mapping[str, Resource] = {
        # Most requests are these: paths are tried in order.
        "/v2/models/{model}/infer": inference,
        f"{version}/infer": inference,
        "/v2": Resource(GET=_server(regions)),
        "/v2/models/stats": Resource(GET=models.statistics),
        "/v2/models/{model}/stats": Resource(GET=models.statistics),
        f"{version}/stats": Resource(GET=models.statistics),
        "/v2/models/{model}/ready": Resource(GET=models.ready),
        f"{version}/ready": Resource(GET=models.ready),
        "/v2/models/{model}/config": Resource(GET=models.configuration),
        f"{version}/config": Resource(GET=models.configuration),
        "/v2/models/{model}": Resource(GET=models.metadata),
        version: Resource(GET=models.metadata),
        "/v2/repository/index": Resource(POST=folder.index),
        "/v2/repository/models/{model}/load": Resource(POST=folder.load),
        "/v2/repository/models/{model}/unload": Resource(POST=folder.unload),
        "/v2/systemsharedmemory/status": Resource(GET=memory.status),
        "/v2/systemsharedmemory/unregister": Resource(POST=memory.unregister),
        "/v2/systemsharedmemory/region/{region}/status": Resource(GET=memory.status),
        "/v2/systemsharedmemory/region/{region}/register": Resource(POST=memory.register),
        "/v2/systemsharedmemory/region/{region}/unregister": Resource(POST=memory.unregister),
        "/v2/cudasharedmemory/status": Resource(GET=_no_cuda_regions),
        "/v2/cudasharedmemory/unregister": Resource(POST=_nothing),
        "/v2/cudasharedmemory/region/{region}/status": Resource(GET=_no_cuda),
        "/v2/cudasharedmemory/region/{region}/register": Resource(POST=_no_cuda),
        "/v2/cudasharedmemory/region/{region}/unregister": Resource(POST=_nothing),
        "/v2/trace/setting": settings,
        "/v2/models/{model}/trace/setting": settings,
        "/v2/logging": settings,
    }
    return Router([Route(path, one) for path, one in resources.items()], redirect_slashes=False, default=_unknown)


async def _unknown(scope: Scope, receive: Receive, send: Send) -> None:
    raise Refusal(404, f"Invalid URL ({scope['method']} {scope['path']})")


class _Inference:
    def __init__(self, repository: Repository, regions: Regions, body: int) -> None:
        self._repository, self._regions, self._body = repository, regions, body

    async def infer(self, request: Request) -> Response:
        """Runs a model."""
        model = _model(self._repository, request)
        visit, headers = request.state.visit, request.headers
        visit.model = model.name
        raw = await request.body()
        body = plain(raw, headers, self._body)
        if body is not raw:
            visit.hold(len(body))
        asked = InferRequest(model, body, header_length(headers), self._regions, self._body)
        deadline = deadline_of(asked.parameters, visit.begun)
        outputs = await infer(
            model, asked.feeds, asked.wanted, self._regions,
            id=asked.id or visit.id, deadline=deadline, begun=visit.begun,
        )  # fmt: skip
        content, header = answer(model, asked.id, outputs, asked.binary)
        if header is None:
            return Response(content, media_type="application/json")
        told_header = {"Inference-Header-Content-Length": str(header)}
        return Response(content, headers=told_header, media_type="application/octet-stream")


def _model(repository: Repository, request: Request) -> TensorModel:
    path = request.path_params
    return repository.get(path["model"], path.get("version", ""))


class _Models:
    """What models are and did."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    async def ready(self, request: Request) -> Response:
        model = _model(self._repository, request)
        return JSONResponse({"name": model.name, "ready": True})

    async def metadata(self, request: Request) -> Response:
        model = _model(self._repository, request)
        return JSONResponse(told.metadata(model, self._repository.versions(model.name)))

    async def configuration(self, request: Request) -> Response:
        return JSONResponse(told.configuration(_model(self._repository, request)))

    async def statistics(self, request: Request) -> Response:
        path = request.path_params
        found = told.all_models(self._repository, path.get("model", ""), path.get("version", ""))
        return JSONResponse(told.statistics(found))


class _Repository:
    """What is loaded."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    async def index(self, request: Request) -> Response:
        asked = fields.parsed(await request.body())
        ready = fields.optional("the request", asked, "ready", bool) or False
        return JSONResponse(told.index(self._repository, ready))

    async def load(self, request: Request) -> Response:
        asked = fields.parsed(await request.body())
        told.check_load(fields.parameters("the request", asked))
        await self._repository.load(request.path_params["model"])
        return JSONResponse({})

    async def unload(self, request: Request) -> Response:
        fields.parsed(await request.body())
        await self._repository.unload(request.path_params["model"])
        return JSONResponse({})


class _SharedMemory:
    """What is shared."""

    def __init__(self, regions: Regions) -> None:
        self._regions = regions

    async def status(self, request: Request) -> Response:
        return JSONResponse(self._regions.status(request.path_params.get("region", "")))

    async def register(self, request: Request) -> Response:
        asked, where = fields.parsed(await request.body()), "the request"
        self._regions.register(
            request.path_params["region"],
            fields.field(where, asked, "key", str),
            fields.optional(where, asked, "offset", int) or 0,
            fields.field(where, asked, "byte_size", int),
        )
        return JSONResponse({})

    async def unregister(self, request: Request) -> Response:
        self._regions.unregister(request.path_params.get("region", ""))
        return JSONResponse({})


def _server(regions: Regions) -> Handler:
    async def server(_: Request) -> Response:
        return JSONResponse(told.server(regions.allowed))

    return server


async def _nothing(_: Request) -> Response:
    return JSONResponse({})


async def _no_cuda_regions(_: Request) -> Response:
    return JSONResponse([])


async def _no_cuda(_: Request) -> Response:
    raise told.no_cuda()


async def _no_settings(_: Request) -> Response:
    raise told.no_settings()


def refuse(refusal: Refusal) -> Response:
    """An error as the protocol has it."""
    headers = {} if refusal.retry_after is None else {"retry-after": str(refusal.retry_after)}
    return JSONResponse({"error": str(refusal)}, refusal.status, headers)

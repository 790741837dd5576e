"""The protocol's paths."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from starlette.responses import JSONResponse, Response

from opweld.serve.inference.model import Repository, TensorModel
from opweld.serve.interface import Answer, Request
from opweld.serve.open_inference import json_fields as fields
from opweld.serve.open_inference import told
from opweld.serve.open_inference.bodies import header_length, plain
from opweld.serve.open_inference.forms import Forms
from opweld.serve.open_inference.http_infer import answer, asked
from opweld.serve.open_inference.infer import infer
from opweld.serve.open_inference.parameters import deadline_of
from opweld.serve.open_inference.paths import Paths
from opweld.serve.open_inference.regions import Regions
from opweld.serve.refusal import Refusal

Names: TypeAlias = Mapping[str, str]
"""The segments of a path by the names of its template."""

Handler: TypeAlias = Callable[[Request, Names], Awaitable[Answer]]


def routes(repository: Repository, regions: Regions, body: int) -> Callable[[Request], Awaitable[Answer]]:
    """What answers all paths but those of health, which are the server's.

    Args:
        body: bytes of a request at most, decompressed.
    """
    models, folder, memory = _Models(repository), _Repository(repository), _SharedMemory(regions)
    version = "/v2/models/{model}/versions/{version}"
    inference = {"POST": _Inference(repository, regions, body).infer}
    settings = {"GET": _no_settings, "POST": _no_settings}
    paths = Paths[Mapping[str, Handler]](
        {
            "/v2": {"GET": _server(regions)},
            "/v2/models/{model}/infer": inference,
            f"{version}/infer": inference,
            "/v2/models/stats": {"GET": models.statistics},
            "/v2/models/{model}/stats": {"GET": models.statistics},
            f"{version}/stats": {"GET": models.statistics},
            "/v2/models/{model}/ready": {"GET": models.ready},
            f"{version}/ready": {"GET": models.ready},
            "/v2/models/{model}/config": {"GET": models.configuration},
            f"{version}/config": {"GET": models.configuration},
            "/v2/models/{model}": {"GET": models.metadata},
            version: {"GET": models.metadata},
            "/v2/repository/index": {"POST": folder.index},
            "/v2/repository/models/{model}/load": {"POST": folder.load},
            "/v2/repository/models/{model}/unload": {"POST": folder.unload},
            "/v2/systemsharedmemory/status": {"GET": memory.status},
            "/v2/systemsharedmemory/unregister": {"POST": memory.unregister},
            "/v2/systemsharedmemory/region/{region}/status": {"GET": memory.status},
            "/v2/systemsharedmemory/region/{region}/register": {"POST": memory.register},
            "/v2/systemsharedmemory/region/{region}/unregister": {"POST": memory.unregister},
            "/v2/cudasharedmemory/status": {"GET": _no_cuda_regions},
            "/v2/cudasharedmemory/unregister": {"POST": _nothing},
            "/v2/cudasharedmemory/region/{region}/status": {"GET": _no_cuda},
            "/v2/cudasharedmemory/region/{region}/register": {"POST": _no_cuda},
            "/v2/cudasharedmemory/region/{region}/unregister": {"POST": _nothing},
            "/v2/trace/setting": settings,
            "/v2/models/{model}/trace/setting": settings,
            "/v2/logging": settings,
        }
    )

    async def answer(request: Request) -> Answer:
        found = paths.find(request.path)
        if found is None:
            raise Refusal(404, f"Invalid URL ({request.method} {request.path})")
        request.visit.route, methods, names = found
        handler = methods.get(request.method)
        if handler is None:
            allowed = " or ".join(methods)
            raise Refusal(405, f"Not allowed to {request.method} on {request.path}; {allowed} it.")
        return await handler(request, names)

    return answer


def _json(value: Any) -> Answer:
    return Answer(json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode())


class _Inference:
    def __init__(self, repository: Repository, regions: Regions, body: int) -> None:
        self._repository, self._regions, self._body = repository, regions, body
        self._forms = Forms()

    async def infer(self, request: Request, names: Names) -> Answer:
        """Runs a model."""
        model, visit = _model(self._repository, names), request.visit
        visit.model = model.name
        body = plain(request.body, request.headers, self._body)
        if body is not request.body:
            visit.hold(len(body))
        found = asked(model, body, header_length(request.headers), self._forms, self._regions, self._body)
        deadline = deadline_of(found.parameters, visit.begun)
        outputs = await infer(
            model, found.feeds, found.wanted, self._regions,
            id=found.id or visit.id, deadline=deadline, begun=visit.begun,
        )  # fmt: skip
        content, header = answer(model, found.id, outputs, found.binary)
        if header is None:
            return Answer(content)
        told_header = (b"inference-header-content-length", b"%d" % header)
        return Answer(content, b"application/octet-stream", (told_header,))


def _model(repository: Repository, names: Names) -> TensorModel:
    return repository.get(names["model"], names.get("version", ""))


class _Models:
    """What models are and did."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    async def ready(self, request: Request, names: Names) -> Answer:
        model = _model(self._repository, names)
        return _json({"name": model.name, "ready": True})

    async def metadata(self, request: Request, names: Names) -> Answer:
        model = _model(self._repository, names)
        return _json(told.metadata(model, self._repository.versions(model.name)))

    async def configuration(self, request: Request, names: Names) -> Answer:
        return _json(told.configuration(_model(self._repository, names)))

    async def statistics(self, request: Request, names: Names) -> Answer:
        found = told.all_models(self._repository, names.get("model", ""), names.get("version", ""))
        return _json(told.statistics(found, await self._repository.statistics(found)))


class _Repository:
    """What is loaded."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    async def index(self, request: Request, names: Names) -> Answer:
        asked = fields.parsed(request.body)
        ready = fields.optional("the request", asked, "ready", bool) or False
        return _json(told.index(self._repository, ready))

    async def load(self, request: Request, names: Names) -> Answer:
        asked = fields.parsed(request.body)
        told.check_load(fields.parameters("the request", asked))
        await self._repository.load(names["model"])
        return _json({})

    async def unload(self, request: Request, names: Names) -> Answer:
        fields.parsed(request.body)
        await self._repository.unload(names["model"])
        return _json({})


class _SharedMemory:
    """What is shared."""

    def __init__(self, regions: Regions) -> None:
        self._regions = regions

    async def status(self, request: Request, names: Names) -> Answer:
        return _json(self._regions.status(names.get("region", "")))

    async def register(self, request: Request, names: Names) -> Answer:
        asked, where = fields.parsed(request.body), "the request"
        await self._regions.register(
            names["region"],
            fields.field(where, asked, "key", str),
            fields.optional(where, asked, "offset", int) or 0,
            fields.field(where, asked, "byte_size", int),
        )
        return _json({})

    async def unregister(self, request: Request, names: Names) -> Answer:
        await self._regions.unregister(names.get("region", ""))
        return _json({})


def _server(regions: Regions) -> Handler:
    async def server(_request: Request, _names: Names) -> Answer:
        return _json(told.server(regions.allowed))

    return server


async def _nothing(_request: Request, _names: Names) -> Answer:
    return _json({})


async def _no_cuda_regions(_request: Request, _names: Names) -> Answer:
    return _json([])


async def _no_cuda(_request: Request, _names: Names) -> Answer:
    raise told.no_cuda()


async def _no_settings(_request: Request, _names: Names) -> Answer:
    raise told.no_settings()


def refuse(refusal: Refusal) -> Response:
    """An error as the protocol has it."""
    headers = {} if refusal.retry_after is None else {"retry-after": str(refusal.retry_after)}
    return JSONResponse({"error": str(refusal)}, refusal.status, headers)

"""What each method of the service does: a message in, a message out; errors are raised in no protocol's terms."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

from opweld.serve.health import Health
from opweld.serve.inference.model import Repository
from opweld.serve.open_inference import told
from opweld.serve.open_inference.grpc.descriptors import CLASSES
from opweld.serve.open_inference.grpc.grpc_infer import answer, feeds_of, parameters, wanted_of
from opweld.serve.open_inference.infer import infer
from opweld.serve.open_inference.parameters import check, deadline_of
from opweld.serve.open_inference.regions import Regions
from opweld.serve.refusal import Refusal
from opweld.serve.visits import Visit

Method: TypeAlias = Callable[[Any, Visit], Awaitable[Any]]
"""Answers a message."""

_Response: Final[Mapping[str, Any]] = {
    name.removesuffix("Response"): made for name, made in CLASSES.items() if name.endswith("Response")
}


class Service:
    """The methods of one server, but for streams of calls, which the guard makes of single ones."""

    def __init__(self, repository: Repository, regions: Regions, health: Health, body: int) -> None:
        """
        Args:
            body: bytes of a request at most.
        """
        self._repository, self._regions, self._health, self._body = repository, regions, health, body

    def health(self) -> Mapping[str, Method]:
        """Methods that need no key and answer while the server stops, by name."""
        return {"ServerLive": self._live, "ServerReady": self._ready}

    def methods(self) -> Mapping[str, Method]:
        """The others, by name."""
        return {
            "ModelReady": self._model_ready,
            "ServerMetadata": self._metadata,
            "ModelMetadata": self._model_metadata,
            "ModelInfer": self.infer,
            "ModelConfig": self._config,
            "ModelStatistics": self._statistics,
            "RepositoryIndex": self._index,
            "RepositoryModelLoad": self._load,
            "RepositoryModelUnload": self._unload,
            "SystemSharedMemoryStatus": self._status,
            "SystemSharedMemoryRegister": self._register,
            "SystemSharedMemoryUnregister": self._unregister,
            "CudaSharedMemoryStatus": _empty("CudaSharedMemoryStatus"),
            "CudaSharedMemoryRegister": _refusing(told.no_cuda),
            "CudaSharedMemoryUnregister": _empty("CudaSharedMemoryUnregister"),
            "TraceSetting": _refusing(told.no_settings),
            "LogSettings": _refusing(told.no_settings),
        }

    async def infer(self, request: Any, visit: Visit, deadline: float | None = None) -> Any:
        """Runs a model.

        Args:
            deadline: of the client, as `time.monotonic` counts; an earlier one of the request's parameters counts.
        """
        model = self._repository.get(request.model_name, request.model_version)
        visit.model = model.name
        given = parameters(request.parameters) if request.parameters else _NONE
        check(given)
        own = deadline_of(given, visit.begun)
        outputs = await infer(
            model,
            feeds_of(model, request, self._regions, self._body),
            wanted_of(request),
            self._regions,
            id=request.id or visit.id,
            deadline=own if deadline is None else deadline if own is None else min(own, deadline),
            begun=visit.begun,
        )
        return answer(model, request.id, outputs)

    async def _live(self, _request: Any, _visit: Visit) -> Any:
        return _Response["ServerLive"](live=self._health.live)

    async def _ready(self, _request: Any, _visit: Visit) -> Any:
        return _Response["ServerReady"](ready=self._health.ready)

    async def _model_ready(self, request: Any, _: Visit) -> Any:
        try:
            self._repository.get(request.name, request.version)
        except Refusal:
            return _Response["ModelReady"](ready=False)
        return _Response["ModelReady"](ready=True)

    async def _metadata(self, _request: Any, _visit: Visit) -> Any:
        return _Response["ServerMetadata"](**told.server(self._regions.allowed))

    async def _model_metadata(self, request: Any, _: Visit) -> Any:
        model = self._repository.get(request.name, request.version)
        return _Response["ModelMetadata"](**told.metadata(model, self._repository.versions(model.name)))

    async def _config(self, request: Any, _: Visit) -> Any:
        model = self._repository.get(request.name, request.version)
        return _Response["ModelConfig"](config=told.configuration(model))

    async def _statistics(self, request: Any, _: Visit) -> Any:
        models = told.all_models(self._repository, request.name, request.version)
        did = await self._repository.statistics(models)
        return _Response["ModelStatistics"](**told.statistics(models, did))

    async def _index(self, request: Any, _: Visit) -> Any:
        return _Response["RepositoryIndex"](models=told.index(self._repository, request.ready))

    async def _load(self, request: Any, _: Visit) -> Any:
        told.check_load(request.parameters)
        await self._repository.load(request.model_name)
        return _Response["RepositoryModelLoad"]()

    async def _unload(self, request: Any, _: Visit) -> Any:
        await self._repository.unload(request.model_name)
        return _Response["RepositoryModelUnload"]()

    async def _status(self, request: Any, _: Visit) -> Any:
        regions = {region["name"]: region for region in self._regions.status(request.name)}
        return _Response["SystemSharedMemoryStatus"](regions=regions)

    async def _register(self, request: Any, _: Visit) -> Any:
        await self._regions.register(request.name, request.key, request.offset, request.byte_size)
        return _Response["SystemSharedMemoryRegister"]()

    async def _unregister(self, request: Any, _: Visit) -> Any:
        await self._regions.unregister(request.name)
        return _Response["SystemSharedMemoryUnregister"]()


_NONE: Final[Mapping[str, Any]] = {}


def _empty(name: str) -> Method:
    async def method(_request: Any, _visit: Visit) -> Any:
        return _Response[name]()

    return method


def _refusing(refusal: Callable[[], Refusal]) -> Method:
    async def method(_request: Any, _visit: Visit) -> Any:
        raise refusal()

    return method

"""A repository whose models note what becomes of a call."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from opweld.serve.inference.model import Array, Call, Entry, Repository, Statistics, TensorModel, TensorSpec
from opweld.serve.tracing.request import current


class TracedRepository:
    """See `Repository`: one whose models tell the request that is answered, where it is traced."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    def get(self, name: str, version: str = "") -> TensorModel:
        """See `Repository`."""
        model = self._repository.get(name, version)
        return model if current.get() is None else TracedModel(model)

    def versions(self, name: str) -> Sequence[str]:
        """See `Repository`."""
        return self._repository.versions(name)

    def index(self) -> Sequence[Entry]:
        """See `Repository`."""
        return self._repository.index()

    async def load(self, name: str) -> None:
        """See `Repository`."""
        await self._repository.load(name)

    async def unload(self, name: str) -> None:
        """See `Repository`."""
        await self._repository.unload(name)

    async def statistics(self, models: Sequence[TensorModel]) -> Sequence[Statistics]:
        """See `Repository`."""
        return await self._repository.statistics(models)

    @property
    def failed(self) -> Sequence[str]:
        """See `Repository`."""
        return self._repository.failed

    async def close(self) -> None:
        """See `Repository`."""
        await self._repository.close()


class TracedModel:
    """See `TensorModel`."""

    def __init__(self, model: TensorModel) -> None:
        self._model = model

    @property
    def name(self) -> str:
        """See `TensorModel`."""
        return self._model.name

    @property
    def version(self) -> str:
        """See `TensorModel`."""
        return self._model.version

    @property
    def inputs(self) -> Sequence[TensorSpec]:
        """See `TensorModel`."""
        return self._model.inputs

    @property
    def outputs(self) -> Sequence[TensorSpec]:
        """See `TensorModel`."""
        return self._model.outputs

    @property
    def max_batch(self) -> int:
        """See `TensorModel`."""
        return self._model.max_batch

    @property
    def statistics(self) -> Statistics:
        """See `TensorModel`."""
        return self._model.statistics

    @property
    def artifact(self) -> Path | None:
        """See `TensorModel`."""
        return self._model.artifact

    async def infer(self, feeds: Mapping[str, Array], call: Call) -> Mapping[str, Array]:
        """See `TensorModel`."""
        request = current.get()
        told = {"opweld.model": self.name, "opweld.model.version": self.version}
        noted = None if request is None else request.call(told)
        if noted is None:
            return await self._model.infer(feeds, call)
        try:
            return await self._model.infer(feeds, replace(call, observer=noted))
        except BaseException as error:
            noted.error = error
            raise
        finally:
            noted.left = time.monotonic_ns()

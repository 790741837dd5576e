"""What all workers have the same of: models, regions of shared memory, reports; and what they count together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from opweld.serve.inference.model import Entry, Repository, Statistics, TensorModel
from opweld.serve.inference.repository import ModelRepository
from opweld.serve.interface import Interface
from opweld.serve.limits import Limits
from opweld.serve.metrics import Metrics
from opweld.serve.open_inference.regions import Regions
from opweld.serve.page.reports import Reports
from opweld.serve.processes.counts import Counts, added
from opweld.serve.processes.hub import COUNTS
from opweld.serve.processes.member import Member


class SharedRepository:
    """See `Repository`: one whose models are loaded and unloaded in all workers."""

    def __init__(self, repository: Repository, member: Member) -> None:
        """repository: of this worker."""
        self._repository, self._member = repository, member

        async def load(given: Mapping[str, Any]) -> None:
            await repository.load(given["name"])

        async def unload(given: Mapping[str, Any]) -> None:
            await repository.unload(given["name"])

        member.on("load", load)
        member.on("unload", unload)

    def get(self, name: str, version: str = "") -> TensorModel:
        """See `Repository`."""
        return self._repository.get(name, version)

    def versions(self, name: str) -> Sequence[str]:
        """See `Repository`."""
        return self._repository.versions(name)

    def index(self) -> Sequence[Entry]:
        """See `Repository`."""
        return self._repository.index()

    async def load(self, name: str) -> None:
        """See `Repository`. Raises Refusal as well where another worker could not load it."""
        await self._member.change("model", name, "load", {"name": name}, keeps=False)

    async def unload(self, name: str) -> None:
        """See `Repository`."""
        await self._member.change("model", name, "unload", {"name": name}, keeps=True)

    async def statistics(self, models: Sequence[TensorModel]) -> Sequence[Statistics]:
        """See `Repository`."""
        known = added(await self._member.ask(COUNTS))["models"]
        names = {field.name for field in fields(Statistics)}
        return [
            Statistics(**{name: number for name, number in known.get(_key(model), {}).items() if name in names})
            for model in models
        ]

    @property
    def failed(self) -> Sequence[str]:
        """See `Repository`."""
        return self._repository.failed

    async def close(self) -> None:
        """See `Repository`."""
        await self._repository.close()


class SharedRegions(Regions):
    """See `Regions`: those that are registered and forgotten in all workers. A worker that is started later opens their
    memory by its name again."""

    def __init__(self, allowed: bool, member: Member) -> None:
        super().__init__(allowed)
        self._member = member

        async def register(given: Mapping[str, Any]) -> None:
            self.register_here(given["name"], given["key"], given["offset"], given["size"])

        async def unregister(given: Mapping[str, Any]) -> None:
            self.unregister_here(given["name"])

        member.on("register", register)
        member.on("unregister", unregister)

    async def register(self, name: str, key: str, offset: int, size: int) -> None:
        """See `Regions`."""
        given = {"name": name, "key": key, "offset": offset, "size": size}
        await self._member.change("region", name, "register", given, keeps=True)

    async def unregister(self, name: str = "") -> None:
        """See `Regions`."""
        await self._member.change("region", name, "unregister", {"name": name}, keeps=False)


def shared_reports(member: Member) -> Reports:
    """Reports that one worker makes and each hands out: links are followed over any connection."""

    async def elsewhere(token: str) -> bytes | None:
        found = await member.ask("report", {"token": token})
        return found[0].encode() if found else None

    reports = Reports(elsewhere)

    async def report(given: Mapping[str, Any]) -> str | None:
        made = reports.here(given["token"])
        return None if made is None else made.decode()

    member.on("report", report)
    return reports


def counted(
    member: Member,
    repository: ModelRepository,
    make: Callable[[Limits, Metrics], Interface],
    limits: Limits,
    metrics: Metrics,
) -> Interface:
    """An interface of a server whose counts are those of all workers."""

    async def counts(_: Mapping[str, Any]) -> Counts:
        return {**metrics.counts(), "models": {_key(model): asdict(model.statistics) for model in repository}}

    async def everywhere() -> Sequence[Counts]:
        return await member.ask(COUNTS)

    member.on(COUNTS, counts)
    metrics.everywhere = everywhere
    return make(limits, metrics)


def _key(model: TensorModel) -> str:
    return f"{model.name} {model.version}"

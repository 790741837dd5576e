"""What the server counts, as Prometheus reads it; each protocol registers what it measures itself."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from opweld.serve.processes.counts import Counts, added

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "gRPC")


@dataclass(slots=True)
class _Count:
    """Requests of a method, a path and a status. since: the first of them, in seconds since 1970."""

    number: int = 0
    since: float = field(default_factory=time.time)


class _Requests(Collector):
    """Counts as they are when somebody asks: prometheus_client's own take a lock for each."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str, int], _Count] = {}

    def collect(self) -> Iterator[CounterMetricFamily]:
        labels = ("method", "path", "status")
        requests = CounterMetricFamily("opweld_requests", "Requests by status", labels=labels)
        for (method, path, status), count in self.counts.items():
            requests.add_metric((method, path, str(status)), count.number, created=count.since)
        yield requests


class _Told(Collector):
    """Counts of several processes."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts

    def collect(self) -> Iterator[Metric]:
        for name, (kind, documentation, samples) in self._counts["families"].items():
            metric = Metric(name, documentation, kind)
            for sample, labels, value in samples:
                metric.add_sample(sample, labels, value)
            yield metric


class Metrics:
    """Of one server: nothing is shared between two in a process.

    Attributes:
        registry: where protocols and models register what they measure.
        everywhere: asks all processes of the server for what they count, this one among them; None: it is the only one.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.everywhere: Callable[[], Awaitable[Sequence[Counts]]] | None = None
        self._requests = _Requests()
        self.registry.register(self._requests)

    async def text(self) -> bytes:
        """All of it, in Prometheus' text format; of several processes the sums."""
        if self.everywhere is None:
            return generate_latest(self.registry)
        sums = CollectorRegistry()
        sums.register(_Told(added(await self.everywhere())))
        return generate_latest(sums)

    def counts(self) -> Counts:
        """What this process counts, as `added` takes it."""
        families: Counts = {}
        for metric in self.registry.collect():
            samples = [[one.name, one.labels, one.value] for one in metric.samples]
            families[metric.name] = [metric.type, metric.documentation, samples]
        return {"families": families}

    def answered(self, method: str, path: str, status: int) -> None:
        """A request has an answer, or none any more. Methods that are none are one: clients make up any."""
        key = method if method in _METHODS else "other", path, status
        if (count := self._requests.counts.get(key)) is None:
            count = self._requests.counts[key] = _Count()
        count.number += 1

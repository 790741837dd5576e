"""What the server counts, as Prometheus reads it; each protocol registers what it measures itself."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, generate_latest

_METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "gRPC")


class Metrics:
    """Of one server: nothing is shared between two in a process.

    Attributes:
        registry: where protocols and models register what they measure.
    """

    def __init__(self) -> None:
        own = self.registry = CollectorRegistry()
        self._requests = Counter("opweld_requests", "Requests by status", ("method", "path", "status"), registry=own)
        self._counts: dict[tuple[str, str, int], Counter] = {}

    def text(self) -> bytes:
        """All of it, in Prometheus' text format."""
        return generate_latest(self.registry)

    def answered(self, method: str, path: str, status: int) -> None:
        """A request has an answer, or none any more. Methods that are none are one: clients make up any."""
        method = method if method in _METHODS else "other"
        count = self._counts.get((method, path, status))
        if count is None:
            count = self._counts[method, path, status] = self._requests.labels(method, path, str(status))
        count.inc()

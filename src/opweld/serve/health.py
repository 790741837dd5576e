"""Whether the server can answer, and takes requests."""

from __future__ import annotations

from collections.abc import Sequence

from starlette.responses import JSONResponse, Response

from opweld.serve.interface import Backend
from opweld.serve.visits import Visits


class Health:
    """Of one server."""

    def __init__(self, backends: Sequence[Backend], visits: Visits) -> None:
        self._backends, self._visits = backends, visits

    @property
    def failed(self) -> list[str]:
        """Names of models that only a new process mends."""
        return [name for backend in self._backends for name in backend.failed]

    @property
    def live(self) -> bool:
        """Whether it can answer at all: not where a model has failed; to end well it may take its time."""
        return not (self._visits.open and self.failed)

    @property
    def ready(self) -> bool:
        """Whether it takes requests: not while it stops."""
        return self._visits.open and not self.failed

    async def answer_live(self) -> Response:
        """`live` over HTTP."""
        return self._answer("live", self.live)

    async def answer_ready(self) -> Response:
        """`ready` over HTTP."""
        return self._answer("ready", self.ready)

    def _answer(self, what: str, holds: bool) -> Response:
        if holds:
            return JSONResponse({"status": what, what: True})
        if not self._visits.open:
            return JSONResponse({"status": "stopping", what: False}, 503)
        return JSONResponse({"status": "failed", what: False, "models": self.failed}, 503)

"""What the log says of a request, and the count of those that are over."""

from __future__ import annotations

import logging
import time
from typing import Final

from opweld.errors import OpweldError
from opweld.serve.after import call_after
from opweld.serve.metrics import Metrics
from opweld.serve.refusal import Refusal, internal, refusal_of
from opweld.serve.visits import Visit

_log = logging.getLogger("opweld.serve")
_access = logging.getLogger("opweld.serve.access")

_GATHERED_S: Final = 0.05
"""That a line waits for others at most; a server that ends writes what is left."""


def refusal_for(error: Exception, visit: Visit) -> Refusal:
    """What a client learns of an error. A fault of ours it does not learn: the log says it."""
    refusal = refusal_of(error) if isinstance(error, OpweldError) else None
    if refusal is None:
        _log.error("%s: %s %s failed", visit.id, visit.method, visit.path, exc_info=error)
        return internal()
    return refusal


class AccessLog:
    """Counts requests that are over, and has their lines logged, many at once: one line takes 30 us where the processor
    has just done something else, 9 behind another one. A request's time is that of its end all the same."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._over: list[tuple[float, float, int, Visit]] = []

    def tell(self, visit: Visit) -> None:
        """A request is over. Called on the event loop."""
        status = visit.outcome
        self._metrics.answered(visit.method, visit.route or "other", status)
        if _access.isEnabledFor(logging.INFO):
            if not self._over:
                call_after(_GATHERED_S, self.flush)
            self._over.append((time.time(), time.monotonic() - visit.begun, status, visit))

    def flush(self) -> None:
        """Has the lines logged of those that are over."""
        over, self._over = self._over, []
        for now, took, status, visit in over:
            model = f" model={visit.model}" if visit.model else ""
            if visit.prompt_tokens or visit.completion_tokens:
                model += f" prompt={visit.prompt_tokens} answer={visit.completion_tokens}"
            line = '%s "%s %s" %s%s %.3fs %s'
            told = (visit.client, visit.method, visit.path, status, model, took, visit.id)
            # `info` would look for the line of code that calls it, which is always this one, and take the time.
            record = logging.LogRecord(_access.name, logging.INFO, __file__, 0, line, told, None, "flush")
            record.created, record.msecs = now, int(now % 1 * 1e3) + 0.0
            _access.handle(record)


class LineFormatter(logging.Formatter):
    """Lines of the log after their time, as `2026-11-27 08:30:00,125 text`."""

    def __init__(self, name: str = "") -> None:
        """name: of the process that writes them, where there are several."""
        super().__init__(f"%(asctime)s {name and f'[{name}] '}%(message)s")
        self._second, self._text = 0, ""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 - logging's name
        """The local time, whose text is made once a second; handlers call this one after the other."""
        second = int(record.created)
        if second != self._second:
            self._second, self._text = second, time.strftime(self.default_time_format, self.converter(second))
        return f"{self._text},{int(record.msecs):03d}"

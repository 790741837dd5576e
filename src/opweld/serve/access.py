"""What the log says of a request, and the count of those that are over."""

from __future__ import annotations

import logging
import time

from opweld.errors import OpweldError
from opweld.serve.metrics import Metrics
from opweld.serve.refusal import Refusal, internal, refusal_of
from opweld.serve.visits import Visit

_log = logging.getLogger("opweld.serve")
_access = logging.getLogger("opweld.serve.access")


def refusal_for(error: Exception, visit: Visit) -> Refusal:
    """What a client learns of an error. A fault of ours it does not learn: the log says it."""
    refusal = refusal_of(error) if isinstance(error, OpweldError) else None
    if refusal is None:
        _log.error("%s: %s %s failed", visit.id, visit.method, visit.path, exc_info=error)
        return internal()
    return refusal


def tell(visit: Visit, metrics: Metrics) -> None:
    """Logs and counts a request that is over."""
    status = visit.outcome
    metrics.answered(visit.method, visit.route or "other", status)
    if not _access.isEnabledFor(logging.INFO):
        return
    model = f" model={visit.model}" if visit.model else ""
    if visit.prompt_tokens or visit.completion_tokens:
        model += f" prompt={visit.prompt_tokens} answer={visit.completion_tokens}"
    took = time.monotonic() - visit.begun
    told = (visit.client, visit.method, visit.path, status, model, took, visit.id)
    # `info` would look for the line of code that calls it, which takes longer than all the rest and is always this one.
    _access.handle(
        logging.LogRecord(_access.name, logging.INFO, __file__, 0, '%s "%s %s" %s%s %.3fs %s', told, None, "tell")
    )


class LineFormatter(logging.Formatter):
    """Lines of the log after their time, as `2026-11-27 08:30:00,125 text`."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(message)s")
        self._second, self._text = 0, ""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 - logging's name
        """The local time, whose text is made once a second; handlers call this one after the other."""
        second = int(record.created)
        if second != self._second:
            self._second, self._text = second, time.strftime(self.default_time_format, self.converter(second))
        return f"{self._text},{int(record.msecs):03d}"

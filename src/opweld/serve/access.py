"""The line of the log, and the count, of a request that is over."""

from __future__ import annotations

import logging
import time

from opweld.serve.metrics import Metrics
from opweld.serve.visits import Visit

_access = logging.getLogger("opweld.serve.access")


def tell(visit: Visit, path: str, metrics: Metrics) -> None:
    """Logs and counts it.

    Args:
        path: under which it is counted, one of few.
    """
    status = visit.outcome
    metrics.answered(visit.method, path, status)
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

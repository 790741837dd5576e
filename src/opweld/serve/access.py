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
    model = f" model={visit.model}" if visit.model else ""
    if visit.prompt_tokens or visit.completion_tokens:
        model += f" prompt={visit.prompt_tokens} answer={visit.completion_tokens}"
    _access.info(
        '%s "%s %s" %s%s %.3fs %s',
        *(visit.client, visit.method, visit.path, status, model),
        *(time.monotonic() - visit.begun, visit.id),
    )

"""Lines of the log."""

from __future__ import annotations

import logging

import pytest

from opweld.serve.access import LineFormatter, tell
from opweld.serve.metrics import Metrics
from opweld.serve.visits import Visit


def test_the_time_of_a_line_is_that_of_logging() -> None:
    own, usual = LineFormatter(), logging.Formatter("%(asctime)s %(message)s")
    for created in (1_700_000_000.0, 1_700_000_000.9996, 1_700_000_001.25, 1_600_000_000.007, 1_700_000_001.25):
        record = logging.LogRecord("opweld", logging.INFO, "", 0, "%s", ("text",), None)
        record.created, record.msecs = created, int(created % 1 * 1000) + 0.0
        assert own.format(record) == usual.format(record)


def test_requests_are_counted_where_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "opweld.serve.access")
    metrics, visit = Metrics(), Visit("client", "BREW", "/pot/7")
    visit.status, visit.route = 418, "/pot/{number}"
    for _ in range(2):
        tell(visit, metrics)
    assert b'opweld_requests_total{method="other",path="/pot/{number}",status="418"} 2.0' in metrics.text()
    assert not caplog.records

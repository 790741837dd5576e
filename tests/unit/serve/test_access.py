"""Lines of the log."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest

from opweld.serve.access import AccessLog, LineFormatter
from opweld.serve.metrics import Metrics
from opweld.serve.visits import Visit
from tests.unit.serve.fakes import serving
from tests.unit.serve.raw import ask, head


def test_the_time_of_a_line_is_that_of_logging() -> None:
    own, usual = LineFormatter(), logging.Formatter("%(asctime)s %(message)s")
    for created in (1_700_000_000.0, 1_700_000_000.9996, 1_700_000_001.25, 1_600_000_000.007, 1_700_000_001.25):
        record = logging.LogRecord("opweld", logging.INFO, "", 0, "%s", ("text",), None)
        record.created, record.msecs = created, int(created % 1 * 1000) + 0.0
        assert own.format(record) == usual.format(record)


def test_requests_are_counted_where_nothing_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "opweld.serve.access")
    metrics, visit = Metrics(), Visit("client", "BREW", "/pot/7")
    log = AccessLog(metrics)
    visit.status, visit.route = 418, "/pot/{number}"
    for _ in range(2):
        log.tell(visit)
    assert b'opweld_requests_total{method="other",path="/pot/{number}",status="418"} 2.0' in asyncio.run(metrics.text())
    log.flush()
    assert not caplog.records


def test_lines_are_gathered_and_have_the_time_of_their_request(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "opweld.serve.access")

    async def scenario() -> None:
        log = AccessLog(Metrics())
        for number in range(3):
            visit = Visit("client", "GET", f"/{number}", begun=time.monotonic() - 2.0)
            visit.status, visit.complete = 200, True
            log.tell(visit)
        told, since = time.time(), time.monotonic()
        assert not caplog.records
        while not caplog.records:
            await asyncio.sleep(0.01)
        waited = time.monotonic() - since
        lines = [record.getMessage() for record in caplog.records]
        assert [line.split(" 2.")[0] for line in lines] == [f'client "GET /{number}" 200' for number in range(3)]
        assert all(record.created <= told < time.time() - waited / 2 for record in caplog.records)
        log.flush()
        assert len(caplog.records) == 3

    asyncio.run(scenario())


def test_a_server_that_ends_writes_what_is_left(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "opweld.serve.access")
    with serving() as running:
        assert ask(running, head("/v1/models", 0, "GET"))[0] == 200
    assert ['"GET /v1/models" 200' in record.getMessage() for record in caplog.records] == [True]

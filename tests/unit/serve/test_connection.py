"""Clients that hold connections: headers without end, none at all, and answers that nobody takes."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Iterator

import pytest

from opweld.serve.interface import Answer, Interface, Request
from opweld.serve.limits import Limits
from opweld.serve.metrics import Metrics
from opweld.serve.openai.errors import refuse
from opweld.serve.server import allow_connections
from tests.patience import PATIENCE_S
from tests.unit.serve.fakes import Running, eventually, serving
from tests.unit.serve.raw import ask, connect, head, until_closed

HASTY = Limits(drain=0.0, head=1000, head_seconds=0.05)


@pytest.fixture(scope="module")
def hasty() -> Iterator[Running]:
    with serving(HASTY) as running:
        yield running


def large(limits: Limits, metrics: Metrics) -> Interface:
    """Answers with more than sockets hold."""

    async def answer(_: Request) -> Answer:
        return Answer(bytes(32 << 20))

    return Interface("/large", None, refuse, answer=answer)


def slow(limits: Limits, metrics: Metrics) -> Interface:
    """Answers after a while."""

    async def answer(_: Request) -> Answer:
        await asyncio.sleep(0.2)
        return Answer(b"{}")

    return Interface("/slow", None, refuse, answer=answer)


def test_headers_that_are_too_large() -> None:
    with serving(Limits(drain=0.0)) as running:
        assert ask(running, head("/v1/models", 0, "GET", X="x" * 60_000))[0] == 200
        for request in (head("/v1/models", 0, "GET", X="x" * 66_000), head(f"/{'x' * 66_000}", 0, "GET")):
            with connect(running) as connection:
                connection.sendall(request)
                assert until_closed(connection).startswith(b"HTTP/1.1 431 ")


def test_a_connection_is_kept_between_requests_for_longer_than_load_balancers_keep_theirs() -> None:
    assert Limits().idle > 60
    with serving(Limits(drain=0.0, idle=0.05), interfaces=[slow]) as running, connect(running) as connection:
        # While it is answered, a connection is not idle.
        connection.sendall(head("/slow", 0, "GET"))
        assert until_closed(connection).startswith(b"HTTP/1.1 200 ")


def test_requests_that_come_at_once_are_answered_in_order() -> None:
    with serving(Limits(drain=0.0)) as running, connect(running) as connection:
        connection.sendall(head("/v1/models", 0, "GET") + head("/v1/nothing", 0, "GET", Connection="close"))
        got = until_closed(connection)
        assert got.startswith(b"HTTP/1.1 200 ") and got.count(b"HTTP/1.1 ") == 2 and b"HTTP/1.1 404 " in got


def test_a_header_without_end_is_not_gathered() -> None:
    with serving(Limits(drain=0.0, head_seconds=PATIENCE_S)) as running, connect(running) as connection:
        connection.sendall(head("/v1/models", 0, "GET")[:-2] + b"X: ")
        with pytest.raises((BrokenPipeError, ConnectionResetError)):
            for _ in range(1000):
                connection.sendall(bytes(100_000).replace(b"\0", b"x"))


@pytest.mark.parametrize("begin", [b"", b"\r\n", b"GET /v1/mod", head("/v1/models", 0, "GET")[:-2]])
def test_who_sends_no_headers_is_not_waited_for(hasty: Running, begin: bytes) -> None:
    with connect(hasty) as connection:
        connection.sendall(begin)
        got = until_closed(connection)
        assert got.startswith(b"HTTP/1.1 408 ") if begin.strip() else got == b""
    eventually(lambda: not hasty.server.server_state.connections)


def test_a_second_request_may_come_late_and_not_in_part(hasty: Running) -> None:
    with connect(hasty) as connection:
        for _ in range(2):
            connection.sendall(head("/health/live", 0, "GET"))
            while not connection.recv(1 << 16).endswith(b"}"):
                pass
        connection.sendall(head("/health/live", 0, "GET")[:-1])
        assert until_closed(connection).startswith(b"HTTP/1.1 408 ")


def test_who_does_not_take_an_answer_loses_it() -> None:
    with (
        serving(Limits(seconds=0.05, drain=0.0), interfaces=[large]) as running,
        connect(running) as connection,
    ):
        connection.sendall(head("/large", 0, "GET"))
        assert connection.recv(1)
        eventually(lambda: not running.server.server_state.connections)


def test_an_answer_that_nobody_takes_has_memory() -> None:
    # There is room for one answer, and not for one and what sockets do not hold of another.
    limits = Limits(drain=0.0, in_flight=40 << 20, seconds=PATIENCE_S)
    with serving(limits, interfaces=[large]) as running:
        with connect(running) as connection, connect(running) as other:
            connection.sendall(head("/large", 0, "GET"))
            assert connection.recv(1)
            status, _, answer = ask(running, head("/large", 0, "GET"))
            assert status == 429 and "all memory" in answer["error"]["message"]
            assert ask(running, head("/v1/models", 0, "GET"))[0] == 200
            left = 32 << 20
            while left > 0:
                left -= len(connection.recv(1 << 20))
            other.sendall(head("/large", 0, "GET"))
            assert other.recv(12) == b"HTTP/1.1 200"
            assert ask(running, head("/large", 0, "GET"))[0] == 429
        # Who goes away leaves it to others.
        eventually(lambda: is_answered(running))


def is_answered(running: Running) -> bool:
    with connect(running) as connection:
        connection.sendall(head("/large", 0, "GET", Connection="close"))
        return until_closed(connection).startswith(b"HTTP/1.1 200")


def test_who_does_not_take_an_answer_does_not_hold_up_the_end() -> None:
    with serving(Limits(drain=0.0), interfaces=[large]) as running, connect(running) as connection:
        connection.sendall(head("/large", 0, "GET"))
        assert connection.recv(1)
        running.server.stop()
        running.thread.join(PATIENCE_S)
        assert not running.thread.is_alive()


def test_a_server_may_have_many_connections() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before[0] - 1, before[1]))
        allow_connections()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)

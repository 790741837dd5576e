"""Connections are handed to whom has the fewest."""

from __future__ import annotations

import array
import os
import resource
import selectors
import socket
from collections.abc import Generator
from contextlib import ExitStack

import pytest

from opweld.errors import OptionError
from opweld.serve.processes.handing import Closed, Handing, Taker
from opweld.serve.server import reserve
from tests.patience import PATIENCE_S


class Handed:
    """A supervisor's end, and workers' ends, in one process."""

    def __init__(self, workers: int, stack: ExitStack) -> None:
        self._stack = stack
        self.selector = selectors.PollSelector()
        listening = stack.enter_context(reserve("127.0.0.1", 0))
        self.port = listening.getsockname()[1]
        self.closed = Closed(workers)
        self.handing = Handing(listening, self.selector, self.closed)
        self.handing.listen()
        self.takers: list[Taker] = []
        self.ends: list[socket.socket] = []
        for number in range(workers):
            given, taken = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            taken.setblocking(False)
            stack.enter_context(given)
            self.ends.append(stack.enter_context(taken))
            self.takers.append(Taker(number, given))

    def close(self) -> None:
        for taker in self.takers:
            for connection in taker.close():
                connection.close()
        self.handing.close()

    def connect(self, count: int) -> None:
        for _ in range(count):
            self._stack.enter_context(socket.create_connection(("127.0.0.1", self.port)))
        self.act()

    def act(self) -> None:
        while found := self.selector.select(0.05):
            for key, events in found:
                key.data(events)

    def taken(self) -> list[int]:
        """How many connections each worker takes now."""
        taken = [self._taken(end) for end in self.ends]
        self.act()
        return taken

    def die(self, number: int) -> None:
        """A worker's process ends."""
        self.ends[number].close()
        self.closed.reset(number)
        self.handing.end(self.takers[number])

    @staticmethod
    def _taken(end: socket.socket) -> int:
        count = 0
        while end.fileno() >= 0:
            try:
                _, ancillary, _, _ = end.recvmsg(1, socket.CMSG_SPACE(4))
            except BlockingIOError:
                return count
            fds = array.array("i")
            fds.frombytes(ancillary[0][2][:4])
            socket.socket(fileno=fds[0]).close()
            end.send(b"t")
            count += 1
        return count


@pytest.fixture
def handed() -> Generator[Handed]:
    with ExitStack() as stack:
        handed = Handed(3, stack)
        stack.callback(handed.close)
        yield handed


def test_all_have_as_many(handed: Handed) -> None:
    for taker in handed.takers:
        handed.handing.add(taker)
    handed.connect(6)
    assert handed.taken() == [2, 2, 2]
    handed.connect(1)
    assert sorted(handed.taken()) == [0, 0, 1]


def test_who_has_the_fewest_is_first(handed: Handed) -> None:
    for taker in handed.takers:
        handed.handing.add(taker)
    handed.connect(9)
    assert handed.taken() == [3, 3, 3]
    for _ in range(2):
        handed.closed.add(1)
    handed.connect(2)
    assert handed.taken() == [0, 2, 0]


def test_who_has_more_than_its_part(handed: Handed) -> None:
    for taker in handed.takers[:2]:
        handed.handing.add(taker)
    handed.connect(8)
    assert handed.handing.surplus() == []
    handed.handing.add(handed.takers[2])
    assert sorted(handed.handing.surplus(), key=lambda one: one[0].number) == [
        (handed.takers[0], 1),
        (handed.takers[1], 1),
    ]
    for _ in range(4):
        handed.closed.add(0)
    assert handed.handing.surplus() == [(handed.takers[1], 2)]


def test_where_another_server_listens_that_is_told() -> None:
    with reserve("127.0.0.1", 0) as first, reserve("127.0.0.1", first.getsockname()[1]) as second:
        first.listen()
        with pytest.raises(OptionError, match="cannot listen: Address already in use"):
            Handing(second, selectors.PollSelector(), Closed(1)).listen()


def test_clients_wait_while_nobody_takes_connections(handed: Handed) -> None:
    handed.connect(2)
    assert handed.taken() == [0, 0, 0]
    handed.handing.add(handed.takers[2])
    handed.act()
    assert handed.taken() == [0, 0, 2]
    handed.handing.remove(handed.takers[2])
    handed.connect(1)
    assert handed.taken() == [0, 0, 0]
    handed.handing.add(handed.takers[0])
    handed.act()
    assert handed.taken() == [1, 0, 0]


def test_who_has_no_room_is_passed_over_and_what_is_left_over_offered_again(handed: Handed) -> None:
    full = handed.takers[0]
    more = handed.ends[0].dup()
    while full.give(more):
        more = handed.ends[0].dup()
    more.close()
    handed.handing.add(full)
    handed.connect(2)
    assert handed.handing.waits
    handed.handing.offer()
    assert handed.handing.waits
    handed.handing.add(handed.takers[1])
    handed.act()
    assert not handed.handing.waits and handed.taken()[1] == 2


def test_what_one_that_died_has_not_taken_another_one_has(handed: Handed) -> None:
    for taker in handed.takers[:2]:
        handed.handing.add(taker)
    handed.connect(2)
    assert handed.taken() == [1, 1, 0]
    handed.connect(4)
    handed.die(0)
    assert handed.taken() == [0, 4, 0]
    handed.die(1)
    handed.connect(1)
    handed.handing.add(handed.takers[2])
    handed.act()
    assert handed.taken() == [0, 0, 1]


def test_who_lets_go_of_a_copy_takes_nothing_from_the_supervisor() -> None:
    given, taken = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with given, taken, socket.socket() as connection:
        taker = Taker(0, given)
        assert taker.give(connection)
        taken.send(b"t")
        assert Taker(0, given.dup()).close() == []
        taker.took()
        assert connection.fileno() == -1


def test_a_client_learns_at_once_that_a_worker_has_closed(handed: Handed) -> None:
    handed.handing.add(handed.takers[0])
    with socket.create_connection(("127.0.0.1", handed.port)) as client:
        handed.act()
        assert handed.taken()[0] == 1
        client.settimeout(PATIENCE_S)
        assert client.recv(1) == b""


def test_nobody_can_connect_when_it_is_closed(handed: Handed) -> None:
    handed.handing.add(handed.takers[0])
    handed.handing.close()
    with pytest.raises(ConnectionRefusedError):
        handed.connect(1)


def test_who_has_no_file_left_looks_again_later(handed: Handed) -> None:
    handed.handing.add(handed.takers[0])
    handed.connect(1)
    assert handed.taken()[0] == 1
    client = socket.create_connection(("127.0.0.1", handed.port))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(client.fileno())
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
    try:
        handed.act()  # ends: a port that is looked at while nothing can be accepted would be ready for ever
        assert handed.handing.waits
        assert handed.taken()[0] == 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    handed.handing.offer()
    handed.act()
    assert not handed.handing.waits
    assert handed.taken()[0] == 1
    client.close()

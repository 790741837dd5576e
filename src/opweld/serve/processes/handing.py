"""Connections over HTTP, accepted by the supervisor, each of which is handed to the worker that has the fewest.

Sockets that each listen at the one port (SO_REUSEPORT) would be simpler and are what nginx does, but the system then
draws lots with the addresses of clients: of 16 connections that are kept, as clients of models keep theirs, two
workers have 8 each in one case of five. And those that are drawn for a worker that is dead or starts wait for it."""

from __future__ import annotations

import array
import errno
import mmap
import selectors
import socket
from collections import deque
from contextlib import suppress
from typing import Final

from opweld.errors import OptionError

_AT_ONCE: Final = 64
"""Connections that are accepted before the supervisor looks at something else."""

_BACKLOG: Final = 2048

AGAIN_S: Final = 0.02
"""Until connections are offered again that no worker had room for, or accepted that this process had none for."""

_FULL: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Closed:
    """How many of the connections that it was handed a worker has no more, which it counts itself: numbers in memory
    that it shares with the supervisor."""

    def __init__(self, workers: int) -> None:
        self._numbers = memoryview(mmap.mmap(-1, 8 * workers)).cast("Q")

    def __getitem__(self, worker: int) -> int:
        return self._numbers[worker]

    def add(self, worker: int) -> None:
        """One more of a worker. It is the only one to write its number."""
        self._numbers[worker] += 1

    def reset(self, worker: int) -> None:
        """There is a new process, or none."""
        self._numbers[worker] = 0


class Taker:
    """A worker that takes connections, and says so of each: until then they are ours as well, so that those which were
    on their way to a process that died are another one's.

    Attributes:
        given: how many it was handed.
    """

    def __init__(self, number: int, end: socket.socket) -> None:
        """end: of a pair of sockets that keep messages apart."""
        self.number, self.given = number, 0
        self.end = end
        self._untaken: deque[socket.socket] = deque()
        end.setblocking(False)

    def give(self, connection: socket.socket) -> bool:
        """Whether there was room for one more, which is no more the caller's then."""
        try:
            self.end.sendmsg([b"c"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [connection.fileno()]))])
        except OSError:
            return False
        self.given += 1
        self._untaken.append(connection)
        return True

    def took(self, _: int = 0) -> None:
        """It may have said that it has taken some."""
        with suppress(OSError):
            while self.end.recv(1):
                self._untaken.popleft().close()

    def close(self) -> list[socket.socket]:
        """Lets go of it: what it has not taken, as far as is known. Nothing is read: a worker that is forked lets go of
        what is the supervisor's."""
        self.end.close()
        return [*self._untaken]


class Handing:
    """Accepts connections while there is a worker that takes some."""

    def __init__(self, listening: socket.socket, selector: selectors.BaseSelector, closed: Closed) -> None:
        self._listening, self._selector, self._closed = listening, selector, closed
        self._takers: list[Taker] = []  # who are handed connections, in the order of their last turns
        self._left: deque[socket.socket] = deque()
        self._accepts = False
        self._full = False

    @property
    def waits(self) -> bool:
        """Whether connections are there for which nobody had room: `offer` is to be called after `AGAIN_S`."""
        return bool((self._left or self._full) and self._takers)

    def listen(self) -> None:
        """From now on clients find the port open. Raises OptionError where somebody else has it."""
        self._listening.setblocking(False)
        try:
            self._listening.listen(_BACKLOG)
        except OSError as error:
            raise OptionError(f"cannot listen: {error.strerror or error}") from error

    def surplus(self) -> list[tuple[Taker, int]]:
        """Who has more connections than its part, and how many: those of a process that died have come to the others
        before there was a new one."""
        takers = [taker for taker in self._takers if self._open(taker) > 0]
        part = -(-sum(map(self._open, takers)) // max(1, len(self._takers)))
        return [(taker, more) for taker in takers if (more := self._open(taker) - part) > 0]

    def add(self, taker: Taker) -> None:
        """A worker takes connections."""
        self._takers.append(taker)
        self._selector.register(taker.end, selectors.EVENT_READ, taker.took)
        self.offer()

    def remove(self, taker: Taker) -> None:
        """It is handed no more. Where nobody is, clients wait."""
        if taker in self._takers:
            self._takers.remove(taker)
            self._look()

    def end(self, taker: Taker) -> None:
        """It is no more; what it has not taken, others have."""
        self.remove(taker)
        taker.took()
        with suppress(KeyError):  # it never took any
            self._selector.unregister(taker.end)
        self._left.extend(taker.close())
        self.offer()

    def close(self) -> None:
        """Nobody comes any more."""
        self._takers.clear()
        self._look()
        self._listening.close()
        while self._left:
            self._left.popleft().close()

    def offer(self) -> None:
        """Hands out those that wait."""
        while self._left and self._handed(self._left[0]):
            self._left.popleft()
        self._full = False
        self._look()

    def _open(self, taker: Taker) -> int:
        return taker.given - self._closed[taker.number]

    def _look(self) -> None:
        """Accepts connections or not, as there are takers."""
        accepts = bool(self._takers) and not self._left and not self._full
        if accepts and not self._accepts:
            self._selector.register(self._listening, selectors.EVENT_READ, self._accept)
        elif self._accepts and not accepts:
            self._selector.unregister(self._listening)
        self._accepts = accepts

    def _accept(self, _: int) -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, _address = self._listening.accept()
            except BlockingIOError:  # there are no more
                break
            except OSError as error:  # the client is gone; or too many files are open, and for a while stay so
                self._full = error.errno in _FULL
                self._look()
                break
            if not self._handed(connection):
                self._left.append(connection)
                self._look()
                break

    def _handed(self, connection: socket.socket) -> bool:
        """Whether somebody had room: the one with the fewest connections first, of several the one whose turn is the
        longest ago."""
        for taker in sorted(self._takers, key=self._open):
            if taker.give(connection):
                self._takers.remove(taker)
                self._takers.append(taker)
                return True
        return False

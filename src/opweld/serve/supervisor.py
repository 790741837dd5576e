"""A process that starts servers again when they die.

The supervisor holds the listening sockets, so that clients who come while there is no server wait for the next one
instead of being refused. Of one server it does nothing else that could fail; of several it is between them (`Hub`).

What ends by itself, with whatever status, before it ever served ends all; so does a single server that ends by itself.
What was killed, by the system (SIGSEGV, SIGBUS, SIGKILL where memory ran out), by somebody, or because it hung
(`Watchdog`), is started again."""

from __future__ import annotations

import ctypes
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from opweld.serve.processes.part import Part
from opweld.serve.watchdog import Watchdog

if TYPE_CHECKING:
    from opweld.serve.processes.hub import Ends, Hub
    from opweld.serve.processes.member import Member

FIRST_WAIT_S: Final = 0.1
"""Seconds until it is started again. They double with each time that it dies young, up to `LAST_WAIT_S`."""

LAST_WAIT_S: Final = 5.0

YOUNG_S: Final = 10.0
"""Who does not live for so many seconds dies young."""

TRIES: Final = 5
"""Who dies young so many times in a row is given up, unless another one serves."""

_FORWARDED: Final = (signal.SIGTERM, signal.SIGINT)
_PR_SET_PDEATHSIG: Final = 1


def supervised(
    tell: Callable[[str], None],
    hub: Hub | None = None,
    watchdog: Watchdog | None = None,
    *,
    first_wait: float = FIRST_WAIT_S,
    young: float = YOUNG_S,
    tries: int = TRIES,
) -> int | Member | None:
    """Forks: returns in a process that is to be a server, what it has in common with the others, or None where it is
    the only one; and in the supervisor the exit status when all is over.

    Signals that end a program are handed on to servers, which end as they see fit. Called while the process has one
    thread.

    Args:
        tell: is told when a server has died.
        hub: is between several servers; None: there is one.
        watchdog: finds those that hang; None: nobody looks.
    """
    return _Supervisor(tell, hub, watchdog, first_wait, young, tries).watch()


@dataclass(eq=False)
class _Server:
    """A server, in one process after the other.

    Attributes:
        process: 0: there is none. begun: when it was started. due: when it is started next, if there is none.
        failures: how often in a row it died young.
    """

    number: int
    process: int = 0
    begun: float = 0.0
    due: float = 0.0
    failures: int = 0


class _Supervisor:
    def __init__(
        self,
        tell: Callable[[str], None],
        hub: Hub | None,
        watchdog: Watchdog | None,
        first_wait: float,
        young: float,
        tries: int,
    ) -> None:
        self._tell, self._hub, self._watchdog = tell, hub, watchdog
        self._first_wait, self._young, self._tries = first_wait, young, tries
        self._servers = [_Server(number) for number in range(hub.workers if hub else 1)]
        self._selector = hub.selector if hub else selectors.PollSelector()
        self._ends: Ends | None = None
        self._ending = False
        self._status = 0

    def watch(self) -> int | Member | None:
        before = {number: signal.signal(number, self._forward) for number in _FORWARDED}
        before[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, _nothing)
        # Its handler alone does not end a wait of Python's.
        woken, wakes = socket.socketpair()
        woken.setblocking(False)
        wakes.setblocking(False)
        signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)

        def wake(_: int) -> None:
            woken.recv(4096)

        self._selector.register(woken, selectors.EVENT_READ, wake)
        while True:
            now = time.monotonic()
            for server in self._servers:
                if not self._ending and not server.process and server.due <= now and not self._start(server):
                    self._selector.unregister(woken)
                    signal.set_wakeup_fd(-1)
                    for number, handler in before.items():
                        signal.signal(number, handler)
                    signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
                    woken.close()
                    wakes.close()
                    return self._hub.member(server.number, self._ends) if self._hub and self._ends else None
            if self._ending and not any(server.process for server in self._servers):
                return self._status
            self._wait()
            self._look()

    def _start(self, server: _Server) -> bool:
        """Whether this is the supervisor still. Signals are held back until the new process is known."""
        sys.stdout.flush()
        sys.stderr.flush()
        signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
        supervisor = os.getpid()
        self._ends = self._hub.open() if self._hub else None
        if self._watchdog:
            self._watchdog.reset(server.number)
        server.begun = time.monotonic()
        server.process = os.fork()
        if server.process:
            if self._hub and self._ends:
                self._hub.forked(server.number, self._ends)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
            return True
        os.setpgid(0, 0)  # a terminal's Ctrl-C comes once, handed on
        _end_with_parent(supervisor)
        return False

    def _wait(self) -> None:
        """Until something happens, or has its time."""
        due = [server.due for server in self._servers if not server.process and not self._ending]
        if self._hub and (soon := self._hub.due()) is not None:
            due.append(soon)
        if self._watchdog:
            due.append(self._watchdog.due())
        seconds = max(0.0, min(due) - time.monotonic()) if due else None
        for key, events in self._selector.select(seconds):
            key.data(events)
        if self._hub:
            self._hub.act()

    def _look(self) -> None:
        """What became of servers."""
        for server in self._servers:
            if not server.process:
                continue
            process, status = os.waitpid(server.process, os.WNOHANG)
            if process:
                server.process = 0
                if self._hub:
                    self._hub.died(server.number)
                self._ended(server, os.waitstatus_to_exitcode(status))
        self._look_for_hung()
        if self._ending and self._hub:
            self._hub.ends()

    def _look_for_hung(self) -> None:
        """While servers end, too: one that hangs does not."""
        if self._watchdog is None:
            return
        processes = {server.number: server.process for server in self._servers if server.process}
        for number, ending in self._watchdog.look(processes):
            server, seconds = self._servers[number], self._watchdog.seconds
            what = f"its event loop has stood still for {seconds:g} s; it is ended ({ending.name})"
            self._tell(f"{self._name(server)} hangs: {what}")
            os.kill(server.process, ending)

    def _ended(self, server: _Server, status: int) -> None:
        """A server has ended. status: as `waitstatus_to_exitcode` has it."""
        ended_itself = status >= 0
        if self._ending:
            if ended_itself or -status not in _FORWARDED:
                self._status = self._status or _as_exit(status)
            return
        if ended_itself and not (self._hub and self._hub.has_begun):
            self._end(status)
            return
        died = f"{self._name(server)} " + (
            f"ended with status {status}" if ended_itself else f"died: {signal.Signals(-status).name}"
        )
        now = time.monotonic()
        server.failures = server.failures + 1 if now - server.begun < self._young else 1
        if server.failures >= self._tries and not (self._hub and self._hub.serves()):
            self._tell(f"{died}, {server.failures} times within {self._young:g} s of its start; given up")
            self._end(_as_exit(status))
            return
        wait = min(self._first_wait * 2 ** min(server.failures - 1, 16), LAST_WAIT_S)
        self._tell(f"{died}; it is started again in {wait:g} s")
        server.due = now + wait

    def _name(self, server: _Server) -> str:
        return Part(server.number, self._hub.workers).name if self._hub else "the server"

    def _end(self, status: int) -> None:
        """Ends what there is left."""
        self._status = status
        self._forward(signal.SIGTERM, None)

    def _forward(self, number: int, _: object) -> None:
        self._ending = True
        for server in self._servers:
            if server.process:
                os.kill(server.process, number)


def _as_exit(status: int) -> int:
    """The exit status of one who does as a process did that ended so."""
    return status if status >= 0 else 128 - status


def _nothing(_number: int, _frame: object) -> None:
    pass


def _end_with_parent(parent: int) -> None:
    """Has the system end this process as SIGTERM does when its supervisor is gone; Linux alone can do that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:  # it was gone before
            os.kill(os.getpid(), signal.SIGTERM)

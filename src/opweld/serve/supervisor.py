"""A process that starts the server again when it dies.

The supervisor holds the listening socket, so that clients who come while there is no server wait for the next one
instead of being refused. It does nothing else that could fail. What ends by itself, with whatever status, ends both:
only what was killed, by the system (SIGSEGV, SIGBUS, SIGKILL where memory ran out) or by somebody, is started again."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Final

FIRST_WAIT_S: Final = 0.1
"""Seconds until it is started again. They double with each time that it dies young, up to `LAST_WAIT_S`."""

LAST_WAIT_S: Final = 5.0

YOUNG_S: Final = 10.0
"""Who does not live for so many seconds dies young."""

TRIES: Final = 5
"""Who dies young so many times in a row is given up."""

_FORWARDED: Final = (signal.SIGTERM, signal.SIGINT)
_PR_SET_PDEATHSIG: Final = 1


def supervised(
    tell: Callable[[str], None], *, first_wait: float = FIRST_WAIT_S, young: float = YOUNG_S, tries: int = TRIES
) -> int | None:
    """Forks: returns None in the process that is to be the server, and in the supervisor the exit status when all is
    over.

    Signals that end a program are handed on to the server, which ends as it sees fit. Called while the process has one
    thread.

    Args:
        tell: is told when a server has died.
    """
    return _Supervisor(tell, first_wait, young, tries).watch()


class _Supervisor:
    def __init__(self, tell: Callable[[str], None], first_wait: float, young: float, tries: int) -> None:
        self._tell, self._first_wait, self._young, self._tries = tell, first_wait, young, tries
        self._server = 0
        self._ending = False

    def watch(self) -> int | None:
        before = {number: signal.signal(number, self._forward) for number in _FORWARDED}
        failures = 0
        while True:
            begun = time.monotonic()
            if not self._start():
                for number, handler in before.items():
                    signal.signal(number, handler)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
                return None
            status = os.waitstatus_to_exitcode(os.waitpid(self._server, 0)[1])
            self._server = 0
            if status >= 0:
                return status
            if self._ending:
                return 0 if -status in _FORWARDED else 128 - status
            failures = failures + 1 if time.monotonic() - begun < self._young else 1
            died = f"the server died: {signal.Signals(-status).name}"
            if failures == self._tries:
                self._tell(f"{died}, {failures} times within {self._young:g} s of its start; given up")
                return 128 - status
            wait = min(self._first_wait * 2 ** (failures - 1), LAST_WAIT_S)
            self._tell(f"{died}; it is started again in {wait:g} s")
            self._sleep(wait)
            if self._ending:
                return 0

    def _start(self) -> bool:
        """Whether this is the supervisor still. Signals are held back until the new process is known."""
        sys.stdout.flush()
        sys.stderr.flush()
        signal.pthread_sigmask(signal.SIG_BLOCK, _FORWARDED)
        supervisor = os.getpid()
        self._server = os.fork()
        if self._server:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _FORWARDED)
            return True
        os.setpgid(0, 0)  # a terminal's Ctrl-C comes once, handed on
        _end_with_parent(supervisor)
        return False

    def _sleep(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._ending and (left := until - time.monotonic()) > 0:
            time.sleep(min(left, 0.1))

    def _forward(self, number: int, _: object) -> None:
        self._ending = True
        if self._server:
            os.kill(self._server, number)


def _end_with_parent(parent: int) -> None:
    """Has the system end this process as SIGTERM does when its supervisor is gone; Linux alone can do that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        if os.getppid() != parent:  # it was gone before
            os.kill(os.getpid(), signal.SIGTERM)

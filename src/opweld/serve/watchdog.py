"""Finds servers that hang: whose event loop stands still, as where it calls code that never returns.

Such a process answers nobody, and takes no signal that it would end by. It is ended by SIGABRT, on which Python writes
what each of its threads was doing (`faulthandler`), and where even that does nothing, by SIGKILL. One that somebody
stopped, or has in a debugger, does not hang."""

from __future__ import annotations

import asyncio
import mmap
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

HUNG_S: Final = 60.0
"""An event loop that stands still for so long hangs. What takes long belongs to threads; nothing here takes seconds."""

_LOOKS: Final = 60
"""While `HUNG_S` pass."""

_SPARED: Final = 5
"""Looks between SIGABRT and SIGKILL."""


class Watchdog:
    """Of a supervisor and its servers, made before these are forked: how often each event loop came round is a number
    in memory that they share.

    Attributes:
        seconds: that a loop may stand still.
    """

    def __init__(self, servers: int = 1, seconds: float = HUNG_S) -> None:
        self.seconds = seconds
        self._every = seconds / _LOOKS
        self._beats = memoryview(mmap.mmap(-1, 8 * servers)).cast("Q")
        self._seen = [0] * servers
        self._missed = [0] * servers
        self._next = 0.0

    async def beat(self, server: int) -> None:
        """In a server: until it is cancelled."""
        while True:
            self._beats[server] += 1
            await asyncio.sleep(self._every)

    def reset(self, server: int) -> None:
        """In the supervisor: there is a new process, which is watched from its first beat on."""
        self._beats[server] = self._seen[server] = self._missed[server] = 0

    def due(self) -> float:
        """In the supervisor: when to look next, as `time.monotonic` counts."""
        return self._next

    def look(self, servers: Mapping[int, int]) -> Iterator[tuple[int, signal.Signals]]:
        """In the supervisor: those that hang, if it is time to look, and the signals to end them by.

        Looks are counted, not seconds: where all processes were stopped, nobody missed any. Of a server that is stopped
        alone they are counted from when it goes on.

        Args:
            servers: the processes of those that have one.
        """
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + self._every
        for server, process in servers.items():
            beats = self._beats[server]
            stands = beats and beats == self._seen[server] and not _is_stopped(process)
            self._missed[server] = self._missed[server] + 1 if stands else 0
            self._seen[server] = beats
            if self._missed[server] == _LOOKS:
                yield server, signal.SIGABRT
            elif self._missed[server] == _LOOKS + _SPARED:
                yield server, signal.SIGKILL


def _is_stopped(process: int) -> bool:
    """Whether it cannot run: somebody stopped it (SIGSTOP, a terminal) or examines it (ptrace). Linux alone tells."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:  # it is gone, or this is another system
        return False
    return state in "Tt"

"""Processors of a node, each of which is one process's at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from opweld.build.cache import Cache

_held: list[int] = []
"""Locked files of this process: the system lets go of them when it ends, however it does."""


def take_processors(count: int) -> list[int]:
    """Keeps this process, all its threads, to so many processors that no other one has taken this way; returns which.

    Where fewer are left, or the cache cannot be written, the process stays where it was, and the answer is empty: then
    processes share processors, which costs time and nothing else."""
    taken: dict[int, int] = {}
    with contextlib.suppress(OSError):
        folder = Cache.open().writable_folder("processors")
        for processor in sorted(os.sched_getaffinity(0)):
            if len(taken) < count and (file := _locked(folder / str(processor))) is not None:
                taken[processor] = file
    if len(taken) < count:
        for file in taken.values():
            os.close(file)
        return []
    _held.extend(taken.values())
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):  # it has ended
            os.sched_setaffinity(int(thread), taken)
    return list(taken)


def _locked(path: Path) -> int | None:
    """The file with its lock; None where another one has it."""
    file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        return None
    return file

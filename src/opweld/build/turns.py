"""One process at a time makes a thing; the others wait for it, and are told for whom.

The lock is the system's (flock): it goes with its holder, however that ends. A file system without locks, or one that
cannot be written, gives none: then two may make the same thing, which costs time and nothing else.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

_LOOK_S: Final = 0.1
"""How long a process waits between two looks: it stays open to signals meanwhile."""


@dataclass(frozen=True)
class Holder:
    """Who has a turn: its process, and since when, in seconds since the epoch."""

    pid: int
    since: float

    def __str__(self) -> str:
        who = "another thread" if self.pid == os.getpid() else f"process {self.pid}"
        return f"{who} (since {time.strftime('%H:%M:%S', time.localtime(self.since))})"


_held: set[int] = set()


def _forget() -> None:
    """In the child of a fork, which has the descriptors too: a parent that is killed would not let go."""
    for file in _held:
        with contextlib.suppress(OSError):
            os.close(file)
    _held.clear()


os.register_at_fork(after_in_child=_forget)


@contextlib.contextmanager
def turn(path: Path, waiting: Callable[[Holder | None], None]) -> Generator[None]:
    """Has the lock of the file `path`, which is made, for the block. `waiting` is called once where somebody else has
    it, with who that is, as far as that is known."""
    file = _acquired(path, waiting)
    if file is None:
        yield
        return
    _held.add(file)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()  # under the lock: who waits for this file sees that it is gone, and makes another one
        if file in _held:
            _held.remove(file)
            with contextlib.suppress(OSError):
                fcntl.flock(file, fcntl.LOCK_UN)
            os.close(file)


def _acquired(path: Path, waiting: Callable[[Holder | None], None]) -> int | None:
    """The locked file, None where there is no locking."""
    told = False
    while True:
        try:
            file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError:
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                os.close(file)
                return None
            holder = None if told else _holder(file)
            os.close(file)
            if not told:
                told = True
                waiting(holder)
            time.sleep(_LOOK_S)
            continue
        except BaseException:
            os.close(file)
            raise
        if _is_at(path, file):
            with contextlib.suppress(OSError):
                os.truncate(file, 0)
                os.pwrite(file, json.dumps({"pid": os.getpid(), "since": time.time()}).encode(), 0)
            return file
        os.close(file)


def _is_at(path: Path, file: int) -> bool:
    """Whether the file that is locked is still the one that others find."""
    try:
        there, here = path.stat(), os.fstat(file)
    except OSError:
        return False
    return (there.st_dev, there.st_ino) == (here.st_dev, here.st_ino)


def _holder(file: int) -> Holder | None:
    try:
        said = cast("dict[str, Any]", json.loads(os.pread(file, 200, 0)))
        return Holder(int(said["pid"]), float(said["since"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None  # it has the lock and has not said so yet

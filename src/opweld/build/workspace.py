"""Temporary folders that vanish with their process: at its end, or, where it was killed, when another one starts."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Generator
from functools import cache as remember
from pathlib import Path
from typing import Final

from opweld.errors import ShortageError
from opweld.shortage import NO_DESCRIPTOR, describe, shortages

_PREFIX: Final = "opweld-"
_LOCK: Final = ".lock"
"""A file in the folder that its process holds locked; the system lets go of it however the process ends."""

_REMEDY: Final = "make room, or name other folders with TMPDIR and OPWELD_CACHE"

_YOUNG_S: Final = 60
"""A folder younger than this may not be locked yet."""

_PATIENCE_S: Final = 30
"""A compiler of one file is done after this long, on a machine that has much else to do, too."""

_LEFT_S: Final = 3600
"""What is written beside its place is there for seconds; after an hour nobody is going to rename it."""


@contextlib.contextmanager
def temporary_folder() -> Generator[Path]:
    """An empty folder, removed after the block. Raises ShortageError where there is no room for it, or for what the
    block writes."""
    remove_orphans()
    try:
        folder, lock = make_folder()
    except OSError as error:
        text = describe(error) or f"{error}; {_REMEDY}"
        raise ShortageError(f"no temporary folder can be made: {text}") from error
    try:
        with shortages():
            yield folder
    finally:
        _remove(folder)
        os.close(lock)


def _remove(folder: Path) -> None:
    """Removes a folder, which takes two descriptors: where this process has none left, once other threads of it have
    given theirs back, those of a compiler that is still running."""
    patience = time.monotonic() + _PATIENCE_S
    while time.monotonic() < patience:
        try:
            shutil.rmtree(folder)
        except OSError as error:
            if error.errno not in NO_DESCRIPTOR:
                break
            time.sleep(0.05)
        else:
            return
    shutil.rmtree(folder, ignore_errors=True)


def make_folder() -> tuple[Path, int]:
    """An empty folder and its lock, a file descriptor; who closes it removes the folder first."""
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    try:
        lock = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError:
        folder.rmdir()
        raise
    with contextlib.suppress(OSError):  # a file system without locks: then nobody gets one, and nothing is removed
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return folder, lock


@remember
def remove_orphans() -> None:
    """Removes the folders of processes that were killed; looks once a process."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(tempfile.gettempdir()):
            if entry.name.startswith(_PREFIX):
                with contextlib.suppress(OSError):
                    _remove_if_orphan(Path(entry.path))


def _remove_if_orphan(folder: Path) -> None:
    status = folder.lstat()
    if status.st_uid != os.geteuid() or time.time() - status.st_mtime < _YOUNG_S:
        return
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)


def remove_left(folder: Path, *prefixes: str) -> None:
    """Removes what a killed process left in `folder` under names with these prefixes, which it meant to rename."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            if not entry.name.startswith(prefixes):
                continue
            with contextlib.suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                if status.st_uid == os.geteuid() and time.time() - status.st_mtime > _LEFT_S:
                    if entry.is_dir(follow_symlinks=False):
                        shutil.rmtree(entry.path, ignore_errors=True)
                    else:
                        os.unlink(entry.path)

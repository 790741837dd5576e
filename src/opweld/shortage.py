"""Exhausted resources of a process (disk space, file size, open files, memory): system errors as causes and
remedies."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import shutil
import signal
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Final

from opweld.errors import OptionError, OpweldError, ShortageError

_ROOM = "make room, or name other folders with TMPDIR and OPWELD_CACHE"

_TOLD = {
    errno.ENOSPC: ("NoSpaceLeft", os.strerror(errno.ENOSPC)),
    errno.EDQUOT: ("DiskQuota", os.strerror(errno.EDQUOT)),
    errno.EFBIG: ("FileTooBig", os.strerror(errno.EFBIG)),
    errno.EMFILE: ("ProcessFdQuotaExceeded", os.strerror(errno.EMFILE)),
    errno.ENFILE: ("SystemFdQuotaExceeded", os.strerror(errno.ENFILE)),
    errno.ENOMEM: ("OutOfMemory", "out of memory", os.strerror(errno.ENOMEM)),
    errno.EAGAIN: ("SystemResources", os.strerror(errno.EAGAIN)),
}
"""Messages of compilers, zig and others, by error number."""

NO_DESCRIPTOR: Final = (errno.EMFILE, errno.ENFILE)
"""Errors of a process, and of a machine, that cannot open more files."""

_LITTLE = 8 << 20
"""A disk with fewer free bytes counts as full after a failed compilation: the compiler has removed its output."""

_ENDED: dict[int, int] = {signal.SIGXFSZ: errno.EFBIG, signal.SIGKILL: errno.ENOMEM}
"""The signals by which the system ends a program that exceeds a limit."""


@contextlib.contextmanager
def shortages() -> Generator[None]:
    """Raises ShortageError in place of a MemoryError, or of an OSError for an exhausted resource."""
    try:
        yield
    except OSError as error:
        check_shortage(error)
        raise
    except MemoryError as error:
        raise ShortageError(f"{_words(errno.ENOMEM)} ({error})") from error


def check_shortage(error: OSError) -> None:
    """Raises ShortageError where the error means an exhausted resource."""
    text = describe(error)
    if text is not None:
        raise ShortageError(text) from error


def describe(error: OSError, place: str = "") -> str | None:
    """What is lacking and what to do; None where an error is of another kind. `place`: what could not be written, where
    the user named it."""
    # Copying a folder goes on after a failure, and tells them all; a loader of libraries has no numbers.
    number = error.errno or _number_in(str(error))
    if place and number in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk is full: cannot write {place}; make room, or name another place"
    text = None if number is None else _words(number)
    name = place or error.filename
    return text if text is None or not isinstance(name, str) else f"{text} (for {name})"


def unwritable(error: OSError, place: str | os.PathLike[str], option: str = "") -> OpweldError:
    """The error that says why what the user named cannot be written: ShortageError where something is lacking, else
    OptionError. `option`: what it was named with."""
    reason = describe(error, str(place))
    if reason is not None:
        return ShortageError(f"{option}: {reason}" if option else reason)
    return OptionError(f"{option} {str(place)!r}: cannot write there: {error.strerror or error}".lstrip())


def describe_program(said: str, status: int, folder: Path) -> str | None:
    """The same of a program that failed, by what it printed and its exit status; None where it has another reason.

    Where a signal ended it, and there is no room in the folder that it wrote to, that is the reason."""
    number = _ENDED.get(-status) or _number_in(said)
    if number is None and status < 0:
        with contextlib.suppress(OSError):
            number = errno.ENOSPC if shutil.disk_usage(folder).free < _LITTLE else None
    return None if number is None else _words(number)


def _number_in(text: str) -> int | None:
    return next((number for number, words in _TOLD.items() if any(word in text for word in words)), None)


def _words(number: int) -> str | None:
    match number:
        case errno.ENOSPC | errno.EDQUOT:
            return f"the disk is full: cannot write below {tempfile.gettempdir()}, or to the cache; {_ROOM}"
        case errno.EROFS:
            return f"the disk is read-only; {_ROOM}"
        case errno.EFBIG:
            return (
                "a file would grow beyond what this process may write "
                f"({_limit(resource.RLIMIT_FSIZE)} bytes); raise the limit: ulimit -f unlimited"
            )
        case errno.EMFILE:
            return (
                f"this process may not open more files ({_limit(resource.RLIMIT_NOFILE)}); "
                "raise the limit: ulimit -n 1024"
            )
        case errno.ENFILE:
            return "no more files can be open on this machine; end programs, or raise fs.file-max"
        case errno.ENOMEM:
            return "there is no memory left, or the limit of this process is reached; end programs, or give it more"
        case errno.EAGAIN:
            return "no more processes or threads can be started; end programs, or raise the limit: ulimit -u"
        case _:
            return None


def _limit(kind: int) -> str:
    soft = resource.getrlimit(kind)[0]
    return "no limit of its own" if soft == resource.RLIM_INFINITY else f"its limit is {soft:,}"

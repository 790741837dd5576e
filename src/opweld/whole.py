"""Files that are written whole or not at all: beside their place, and renamed."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

from opweld.shortage import unwritable


def write_text(text: str, path: Path, option: str) -> None:
    """Writes a text; `option`: the one that names the file, for errors. Raises OptionError where it cannot be written,
    ShortageError where the disk is full or a limit is reached; an existing file is then unchanged."""
    data = text.encode("utf-8", "backslashreplace")  # names of a model may hold halves of surrogate pairs
    write(path, option, lambda file: file.write(data))


def write(path: Path, option: str, fill: Callable[[IO[bytes]], object]) -> None:
    """The same for what `fill` writes into a file."""
    try:
        _write(path, fill)
    except OSError as error:
        raise unwritable(error, path, option) from error


def _write(path: Path, fill: Callable[[IO[bytes]], object]) -> None:
    path = path.resolve()  # what a link names is replaced, not the link
    # Nothing takes the place of a device or a pipe, or of a file in a folder that is not to be written.
    if path.exists() and not (path.is_file() and os.access(path.parent, os.W_OK)):
        with path.open("wb") as file:
            fill(file)
        return
    handle, name = tempfile.mkstemp(prefix=".opweld-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            fill(file)
        os.chmod(name, path.stat().st_mode & 0o7777 if path.exists() else 0o666 & ~_umask())
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask

"""Tables, text, JSON, CSV and progress: what commands show."""

from __future__ import annotations

import csv
import io
import json
import logging
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from opweld import whole
from opweld.errors import ShortageError
from opweld.shortage import describe
from opweld.table import Column, ellipsis, fit, terminal_width, wrapped

Progress = Callable[[str, int, int], None]


@contextmanager
def printing() -> Generator[None]:
    """Raises ShortageError where standard output has no room for what the block prints, as a file on a full disk. That
    nobody reads it to its end is no error of ours: then the process ends as others do."""
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OSError as error:  # whatever else is written says itself where
        text = describe(error, "standard output")
        if text is None and not isinstance(error, BrokenPipeError):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left has nowhere to go
        if text is None:
            sys.exit(1)
        raise ShortageError(text) from error


def table(
    title: str,
    columns: Sequence[Column],
    rows: Sequence[Sequence[str]],
    notes: Sequence[str] = (),
    rest: str = "--json",
) -> None:
    """Prints a table. On a terminal it fits: a last line names the columns that do not, and says that the option `rest`
    has all. On a pipe it is of whatever width it needs."""
    if title:
        text(title)
    fitted = fit(columns, rows, terminal_width(), ellipsis())
    for line in fitted.lines():
        print(line)
    for note in notes:
        text(note)
    if fitted.left_out:
        text(f"not shown at this width: {', '.join(fitted.left_out)}" + (f"; {rest} has all" if rest else ""))


def text(lines: str) -> None:
    """Prints text; on a terminal, lines that are too long for it are broken between words."""
    room = terminal_width()
    for line in lines.splitlines():
        print("\n".join(wrapped(line, room)))


def write_json(data: Any, file: Path, option: str = "--json", indent: int | None = 2) -> None:
    """Writes `data` as JSON to `file`, or to standard output where it is `-`. Raises OptionError if it cannot."""
    write_text(json.dumps(data, indent=indent, allow_nan=False) + "\n", file, option)


def write_text(text: str, file: Path, option: str) -> None:
    """Writes a text likewise; `option` is what the user named the file with."""
    if str(file) == "-":
        sys.stdout.write(text)
        return
    whole.write_text(text, file, option)


def write_csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]], file: Path) -> None:
    """Writes rows as CSV below a header, to standard output where `file` is `-`. Raises OptionError if it cannot."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(text.getvalue(), file, "--csv")


_quiet: ContextVar[bool] = ContextVar("quiet", default=False)

LINE_S = 5.0
"""How often a pipe is told how far something is; what takes less says nothing."""


@contextmanager
def quiet(wanted: bool = True) -> Generator[None]:
    """Within the block `progress` shows nothing, if that is wanted."""
    token = _quiet.set(wanted)
    try:
        yield
    finally:
        _quiet.reset(token)


class _Fed(logging.Handler):
    """Says on standard error what was made up; lines that are too long for a terminal are broken between words."""

    def emit(self, record: logging.LogRecord) -> None:
        room = shutil.get_terminal_size().columns if sys.stderr.isatty() else None
        print("\n".join(wrapped(record.getMessage(), room)), file=sys.stderr)


_fed = logging.getLogger("opweld.fed")
_fed.addHandler(_Fed())
_fed.setLevel(logging.INFO)
_fed.propagate = False


@contextmanager
def progress() -> Generator[Progress | None]:
    """A function that shows (stage, done, total): as a bar on a terminal, else as a line on standard error every
    `LINE_S` seconds. None for who is quiet."""
    if _quiet.get():
        yield None
    elif sys.stderr.isatty():
        with _bar() as tell:
            yield tell
    else:
        with _lines() as tell:
            yield tell


@contextmanager
def _bar() -> Generator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    # What precedes the first stage takes seconds on a busy machine: a bar without words says nothing.
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[count]}"), TimeElapsedColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("starting", total=None, count="")

        def show(stage: str, done: int, total: int) -> None:
            count = f"{done}/{total}" if total else ""
            bars.update(task, description=stage, completed=done, total=total or None, count=count)

        yield show


@contextmanager
def _lines() -> Generator[Progress]:
    """A thread says at times what was last told."""
    begun, over, last = time.monotonic(), threading.Event(), [""]
    out = sys.stderr

    def show(stage: str, done: int, total: int) -> None:
        last[0] = f"{stage}, {done} of {total}" if total else stage

    def say() -> None:
        while not over.wait(LINE_S):
            if last[0]:
                print(f"opweld: {last[0]} ({time.monotonic() - begun:.0f} s)", file=out, flush=True)

    thread = threading.Thread(target=say, name="opweld-progress", daemon=True)
    thread.start()
    try:
        yield show
    finally:
        over.set()
        thread.join()


@contextmanager
def working(what: str) -> Generator[None]:
    """Shows what is being done meanwhile, on a terminal; nobody knows how far it is."""
    with progress() as tell:
        if tell is not None:
            tell(what, 0, 0)
        yield


def milliseconds(seconds: float) -> str:
    """A duration in milliseconds with three significant digits: `0.0623`, `6.21`, `81.3`."""
    value = seconds * 1e3
    digits = 1 if value >= 10 else 2 if value >= 1 else 3
    return f"{value:.{digits}f}"


def byte_count(count: int | None) -> str:
    """A number of bytes for people: `1.5 MiB`; a dash where nobody counted."""
    if count is None:
        return "-"
    value = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError("unreachable")

"""Tables, JSON and progress: rich on a terminal, plain on a pipe."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from opweld.errors import OptionError

Progress = Callable[[str, int, int], None]


def table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    notes: Sequence[str] = (),
    *,
    left: Collection[str] = (),
) -> None:
    """Prints a table, all columns flush right but the first and those that `left` names. On a pipe it is plain text of
    whatever width it needs."""
    texts = {columns[0], *left}
    if title:
        print(title)
    if sys.stdout.isatty():
        _rich_table(columns, rows, texts)
    else:
        _plain_table(columns, rows, texts)
    for note in notes:
        print(note)


def _rich_table(columns: Sequence[str], rows: Sequence[Sequence[str]], left: Collection[str]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    drawing = Table()
    for column in columns:
        drawing.add_column(Text(column), justify="left" if column in left else "right", overflow="fold")
    for row in rows:
        # Text, not markup: a name in a model may look like a rich tag.
        drawing.add_row(*(Text(cell) for cell in row))
    Console().print(drawing)


def _plain_table(columns: Sequence[str], rows: Sequence[Sequence[str]], left: Collection[str]) -> None:
    widths = [max(len(row[i]) for row in (columns, *rows)) for i in range(len(columns))]
    for row in (columns, ["-" * width for width in widths], *rows):
        cells = [
            cell.ljust(w) if name in left else cell.rjust(w) for name, cell, w in zip(columns, row, widths, strict=True)
        ]
        print("  ".join(cells).rstrip())


def write_json(data: Any, file: Path, option: str = "--json", indent: int | None = 2) -> None:
    """Writes `data` as JSON to `file`, or to standard output where it is `-`. Raises OptionError if it cannot."""
    write_text(json.dumps(data, indent=indent, allow_nan=False) + "\n", file, option)


def write_text(text: str, file: Path, option: str) -> None:
    """Writes a text likewise; `option` is what the user named the file with."""
    if str(file) == "-":
        sys.stdout.write(text)
        return
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OptionError(f"{option} {file}: cannot write there: {error.strerror}") from error


def write_csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]], file: Path) -> None:
    """Writes rows as CSV below a header, to standard output where `file` is `-`. Raises OptionError if it cannot."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(text.getvalue(), file, "--csv")


@contextmanager
def progress() -> Generator[Progress | None]:
    """A function that shows (stage, done, total) as a bar on a terminal; None where standard error is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Bars(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("", total=None)

        def show(stage: str, done: int, total: int) -> None:
            bars.update(task, description=stage, completed=done, total=total or None)

        yield show


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

"""Tables and text that fit a terminal: columns are left out by rank, names are shortened, numbers never are."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace

_GAP = 2
"""Spaces between columns."""

_WHOLE = "\xa0=\xa0"
"""What lines are not broken at."""


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes:
        title: its header.
        rank: 0 for what stays at any width; of the others, the one of the highest rank is left out first.
        least: characters that its cells may be shortened to, in their middle; 0 for what is whole or not there.
        left: whether it is flush left, as names and words are.
    """

    title: str
    rank: int = 0
    least: int = 0
    left: bool = False


def of_names(title: str, rank: int = 0, least: int = 16) -> Column:
    """A column of names, which may be shortened."""
    return Column(title, rank, least, left=True)


def of_words(title: str, rank: int = 0) -> Column:
    """A column of words, which are whole or not there."""
    return Column(title, rank, left=True)


@dataclass(frozen=True)
class Fitted:
    """What of a table fits: its columns, their cells, the characters of each column, and the titles left out."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    widths: tuple[int, ...]
    left_out: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """The header, a rule below it, and the rows."""
        titles = [column.title for column in self.columns]
        return [self._line(cells) for cells in (titles, ["-" * width for width in self.widths], *self.rows)]

    def _line(self, cells: Sequence[str]) -> str:
        padded: list[str] = []
        for column, cell, width in zip(self.columns, cells, self.widths, strict=True):
            space = " " * (width - cells_of(cell))
            padded.append(cell + space if column.left else space + cell)
        return (" " * _GAP).join(padded).rstrip()


def fit(columns: Sequence[Column], rows: Sequence[Sequence[str]], room: int | None, dots: str = "…") -> Fitted:
    """Fits a table into `room` characters, or leaves it as wide as it is where None.

    Columns are left out, the highest rank first, until the others fit with their names as short as they may be; names
    then share what room there is. Where columns of rank 0 alone do not fit, names become shorter still."""
    kept = list(range(len(columns)))
    natural = [max(map(cells_of, (column.title, *(row[i] for row in rows)))) for i, column in enumerate(columns)]
    least = [min(w, max(c.least, cells_of(c.title))) if c.least else w for c, w in zip(columns, natural, strict=True)]

    def needed(widths: Sequence[int]) -> int:
        return sum(widths[i] for i in kept) + _GAP * (len(kept) - 1)

    if room is None or needed(natural) <= room:
        return Fitted(tuple(columns), tuple(map(tuple, rows)), tuple(natural))
    while needed(least) > room and (ranked := [i for i in kept if columns[i].rank]):
        kept.remove(max(ranked, key=lambda i: (columns[i].rank, i)))
    widths = list(least)
    flexible = [i for i in kept if columns[i].least]
    while (spare := room - needed(widths)) and flexible:
        growing = [i for i in flexible if (widths[i] < natural[i] if spare > 0 else widths[i] > len(dots))]
        if not growing:
            break
        chosen = min(growing, key=lambda i: widths[i]) if spare > 0 else max(growing, key=lambda i: widths[i])
        widths[chosen] += 1 if spare > 0 else -1
    return Fitted(
        tuple(replace(columns[i], title=shortened(columns[i].title, widths[i], dots)) for i in kept),
        tuple(tuple(shortened(row[i], widths[i], dots) for i in kept) for row in rows),
        tuple(widths[i] for i in kept),
        tuple(column.title for i, column in enumerate(columns) if i not in kept),
    )


def shortened(text: str, room: int, dots: str = "…") -> str:
    """`text` in at most `room` characters, its middle cut out: names tell most at their end, which gets two thirds."""
    if cells_of(text) <= room:
        return text
    keep = max(0, room - len(dots))
    return _start(text, keep // 3) + dots + _start(text[::-1], keep - keep // 3)[::-1]


def _start(text: str, room: int) -> str:
    end, taken = 0, 0
    while end < len(text) and (taken := taken + cells_of(text[end])) <= room:
        end += 1
    return text[:end]


def cells_of(text: str) -> int:
    """How many characters of a terminal a text takes: some letters take two, some none."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return len(text) + wide - sum(unicodedata.combining(letter) != 0 for letter in text)


def terminal_width() -> int | None:
    """The characters of a line of the terminal that standard output is; None where it is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def ellipsis() -> str:
    """What stands for what was cut out, in the encoding of standard output."""
    return "…" if (sys.stdout.encoding or "").lower().startswith("utf") else "..."


def wrapped(line: str, room: int | None) -> list[str]:
    """A line of text as lines of at most `room` characters, broken between words; a word that is longer stays whole.

    What follows begins below the last column of the line, where it has columns, or two characters further in."""
    if room is None or cells_of(line) <= room:
        return [line]
    start = len(line) - len(line.lstrip())
    columns = [found.end() for found in re.finditer(r"(?<=\S) {2,}", line) if found.end() <= 2 * room // 3]
    hang = columns[-1] if columns else min(start + 2, room // 2)
    broken = textwrap.wrap(
        line.replace(" = ", _WHOLE),
        room,
        subsequent_indent=" " * hang,
        break_long_words=False,
        break_on_hyphens=False,
        replace_whitespace=False,
    )
    return [part.replace(_WHOLE, " = ") for part in broken]

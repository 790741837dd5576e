"""Objects that display themselves: as text where Python prints them, as HTML in notebooks."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from opweld.table import Column, fit, wrapped

_ROOM = 100
"""Characters of a line, where it is printed as text."""

_CELL = "padding:1px 8px;white-space:pre;text-align:"


@dataclass(frozen=True)
class Table:
    """A table: its columns, and the cells of each row."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]


Piece: TypeAlias = str | Table
"""Lines of text, or a table."""


class Shown:
    """An object that displays itself on one screen, as texts and tables."""

    def shown(self) -> Sequence[Piece]:
        """The texts and tables, from top to bottom."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return "\n".join(_text(piece) for piece in self.shown())

    def _repr_html_(self) -> str:
        return f"<div>{''.join(map(_html, self.shown()))}</div>"


def _text(piece: Piece) -> str:
    if isinstance(piece, str):
        return "\n".join(part for line in piece.splitlines() for part in wrapped(line, _ROOM))
    return "\n".join(fit(piece.columns, piece.rows, _ROOM).lines())


def _html(piece: Piece) -> str:
    """A piece as HTML without scripts; whatever it says is text, as models may hold any name."""
    if isinstance(piece, str):
        return f'<pre style="white-space:pre-wrap">{html.escape(piece.rstrip())}</pre>'
    head = "".join(_cell("th", column, column.title) for column in piece.columns)
    body = "".join(
        f"<tr>{''.join(_cell('td', c, cell) for c, cell in zip(piece.columns, row, strict=True))}</tr>"
        for row in piece.rows
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return f'<div style="overflow-x:auto">{table}</div>'


def _cell(tag: str, column: Column, text: str) -> str:
    side = "left" if column.left else "right"
    return f'<{tag} style="{_CELL}{side}">{html.escape(text)}</{tag}>'

"""Vector programs: what a tile program becomes once every tile is vectors in named registers. Close to C, prints as C.

    Function(name, comments, body)
    Statement = Define(type, name, value) | Assign(name, value) | Do(text) | Note(text)
              | For(variable, lower, upper, body, step, unroll) | While(condition, body)
              | If(condition, then, otherwise)

Values are C expressions over names that the program itself defines, and over functions of `opweld_vector.h`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class Define:
    """A new name; without a value it is assigned later."""

    type: str
    name: str
    value: str | None = None


@dataclass(frozen=True)
class Assign:
    """A new value for a name."""

    name: str
    value: str


@dataclass(frozen=True)
class Do:
    """A call for its effect."""

    text: str


@dataclass(frozen=True)
class Note:
    """A comment line."""

    text: str


@dataclass(frozen=True)
class For:
    """`variable` counts from `lower` to below `upper`; `unroll` bodies are laid out in a row."""

    variable: str
    lower: str
    upper: str
    body: tuple[VectorStatement, ...]
    step: int = 1
    unroll: int = 1


@dataclass(frozen=True)
class While:
    """Repeats while the condition holds."""

    condition: str
    body: tuple[VectorStatement, ...]


@dataclass(frozen=True)
class If:
    """Either block."""

    condition: str
    then: tuple[VectorStatement, ...]
    otherwise: tuple[VectorStatement, ...] = ()


VectorStatement: TypeAlias = Define | Assign | Do | Note | For | While | If


@dataclass(frozen=True)
class GridAxis:
    """One axis of the linearised grid: its variable and its extent."""

    variable: str
    extent: str


@dataclass(frozen=True)
class Function:
    """A kernel: `header` once, then `body` for each iteration of the grid."""

    name: str
    header: tuple[VectorStatement, ...]
    grid: tuple[GridAxis, ...]
    body: tuple[VectorStatement, ...]

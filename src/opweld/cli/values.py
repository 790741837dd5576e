"""Texts of a command line as values. Imports the standard library only."""

from __future__ import annotations

from collections.abc import Iterable

from opweld.errors import OptionError
from opweld.option import DIGITS, pairs


def sizes(texts: Iterable[str] | None, option: str = "--dim") -> dict[str, int]:
    """The `--dim NAME=N` texts as numbers. Raises OptionError on one that is no positive whole number."""
    dims: dict[str, int] = {}
    for name, value in pairs(texts, option).items():
        if not value.isascii() or not value.isdigit() or len(value) > DIGITS or int(value) < 1:
            raise OptionError(f"{option} {name}={value[:40]}: expected a positive whole number, up to {DIGITS} digits")
        dims[name] = int(value)
    return dims

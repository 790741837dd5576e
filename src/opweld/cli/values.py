"""Texts of a command line as values. Imports the standard library only."""

from __future__ import annotations

from collections.abc import Iterable

from opweld.errors import OptionError

DIGITS = 12
"""Of a size: no memory holds more."""


def pairs(texts: Iterable[str] | None, option: str) -> dict[str, str]:
    """Splits `NAME=VALUE` texts. Raises OptionError on one without `=`, or on a name given twice."""
    values: dict[str, str] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise OptionError(f"{option} {text!r} is not NAME=VALUE")
        if name in values:
            raise OptionError(f"{option} gives {name!r} twice")
        values[name] = value
    return values


def sizes(texts: Iterable[str] | None, option: str = "--dim") -> dict[str, int]:
    """The `--dim NAME=N` texts as numbers. Raises OptionError on one that is no positive whole number."""
    dims: dict[str, int] = {}
    for name, value in pairs(texts, option).items():
        if not value.isascii() or not value.isdigit() or len(value) > DIGITS or int(value) < 1:
            raise OptionError(f"{option} {name}={value[:40]}: expected a positive whole number, up to {DIGITS} digits")
        dims[name] = int(value)
    return dims

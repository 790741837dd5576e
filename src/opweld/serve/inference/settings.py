"""What the file opweld.toml beside a model says of how it is served."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

from opweld.errors import OptionError

Versions: TypeAlias = "str | int | tuple[str, ...]"
"""Which versions of a model are served: "all", the newest so many, or those of these names."""


@dataclass(frozen=True)
class Padding:
    """How calls of unequal lengths share a run.

    Attributes:
        dim: the name of the dim that is padded to the longest call of a run, and cut back in outputs.
        values: by input, what is written behind what a call has.
    """

    dim: str
    values: Mapping[str, int | float]


@dataclass(frozen=True)
class Settings:
    """How a model is served.

    Attributes:
        versions: that are served.
        max_batch: rows of one run at most; 1: calls are not put together.
        target: seconds from a call to its answer that are aimed at.
        queue: calls that wait at most.
        threads: of one run at most; 0 for all processors.
        pad: how calls of unequal lengths share a run; None: they do not.
    """

    versions: Versions = 1
    max_batch: int = 32
    target: float = 0.05
    queue: int = 1024
    threads: int = 0
    pad: Padding | None = None


def read_settings(file: Path, usual: Settings) -> Settings:
    """The settings that a file says; those of `usual` where it says nothing.

    Raises OptionError naming the file, the key, and what was expected."""
    try:
        given = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise OptionError(f"{file}: cannot read settings: {error}") from error
    found: dict[str, Any] = {}
    for key, value in given.items():
        if key not in _KEYS:
            raise OptionError(f"{file}: {key!r} is no setting; there are {', '.join(_KEYS)}")
        name, check = _KEYS[key]
        try:
            found[name] = check(value)
        except _Unfit as expected:
            raise OptionError(f"{file}: {key} is {value!r}, expected {expected}") from None
    return Settings(**{**vars(usual), **found})


class _Unfit(Exception):  # noqa: N818 - it says what was expected, and never leaves this file
    """A value that is none, with what was expected."""


def _versions(value: object) -> Versions:
    expected = '"all", {latest = 2} or ["1", "3"]'
    if value == "all":
        return "all"
    if isinstance(value, dict):
        table = cast("dict[str, object]", value)
        if set(table) == {"latest"}:
            return _whole(1, expected)(table["latest"])
    if isinstance(value, list) and value:
        named = [str(one) for one in cast("list[object]", value) if isinstance(one, int | str)]
        if len(named) == len(cast("list[object]", value)) and all(is_version(one) for one in named):
            return tuple(named)
    raise _Unfit(expected)


def is_version(name: str) -> bool:
    """Whether it is a positive number, as versions are."""
    return name.isascii() and name.isdecimal() and not name.startswith("0")


def _whole(least: int, expected: str) -> Callable[[object], int]:
    def check(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise _Unfit(expected)
        return value

    return check


def _milliseconds(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise _Unfit("milliseconds, more than 0")
    return value / 1e3


def _padding(value: object) -> Padding:
    table = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    dim, values = table.get("dim"), table.get("values")
    if set(table) != {"dim", "values"} or not isinstance(dim, str) or not isinstance(values, dict):
        raise _Unfit('{dim = "seq", values = {input_ids = 0, attention_mask = 0}}')
    by_input = cast("dict[str, object]", values)
    found = {name: number for name, number in by_input.items() if isinstance(number, int | float)}
    if len(found) != len(by_input) or not found:
        raise _Unfit("values that are a number for each input which has the dim")
    return Padding(dim, found)


_KEYS: Final[Mapping[str, tuple[str, Callable[[object], Any]]]] = {
    "versions": ("versions", _versions),
    "max_batch": ("max_batch", _whole(1, "a whole number of rows, at least 1")),
    "target_ms": ("target", _milliseconds),
    "queue": ("queue", _whole(0, "a whole number of calls")),
    "threads": ("threads", _whole(0, "a whole number of threads, 0 for all processors")),
    "pad": ("pad", _padding),
}


def chosen(versions: Sequence[str], policy: Versions) -> list[str]:
    """Those of the versions of a model that are served, the oldest first. `versions`: all, in any order."""
    by_age = sorted(versions, key=int)
    if policy == "all":
        return by_age
    return by_age[-policy:] if isinstance(policy, int) else [one for one in by_age if one in policy]

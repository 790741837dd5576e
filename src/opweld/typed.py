"""JSON as values of dataclasses, and back: every field of its type, or an error that names it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import types
import typing
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, TypeVar, cast

from opweld.errors import ArtifactError

T = TypeVar("T")

AGAIN = "compile the model again"


def typed(kind: type[T], data: object, where: str) -> T:
    """`data`, from JSON, as a value of a dataclass whose fields are str, int, float, bool, tuples, mappings, unions or
    dataclasses of these. Raises ArtifactError for anything else; `where` says what it is."""
    return cast(T, _parse(kind, data, where))


def decoded(kind: type[T], text: str, where: str) -> T:
    """JSON text as `typed` takes it. Raises ArtifactError for what is no JSON, or is of another type."""
    try:
        data = cast(object, json.loads(text))
    except (ValueError, RecursionError) as error:
        raise ArtifactError(f"{where} is no JSON ({error}); {AGAIN}") from error
    return typed(kind, data, where)


def plain(value: object) -> Any:
    """A value that `typed` makes, as dicts, lists, texts and numbers, which JSON takes."""
    kind = type(value)
    if kind in _SCALARS:
        return value
    names = _names(kind)
    if names is not None:
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, tuple | list):
        return [plain(item) for item in cast("Sequence[object]", value)]
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in cast("Mapping[str, object]", value).items()}
    return value


_SCALARS = frozenset((str, int, float, bool, type(None)))
"""What nearly all values are."""


@cache
def _names(kind: Any) -> tuple[str, ...] | None:
    """The names of the fields of a dataclass; None of other types."""
    return tuple(entry.name for entry in dataclasses.fields(kind)) if dataclasses.is_dataclass(kind) else None


def _parse(kind: Any, data: object, where: str) -> Any:
    if dataclasses.is_dataclass(kind):
        if not isinstance(data, dict):
            raise _mismatch(where, "an object", data)
        given = cast(dict[str, object], data)
        values: dict[str, Any] = {}
        for name, hint, required in _fields(kind):
            if name in given:
                values[name] = _parse(hint, given[name], f"{where}: {name}")
            elif required:
                raise ArtifactError(f"{where} lacks {name!r}; {AGAIN}")
        return cast(type, kind)(**values)
    origin, arguments = typing.get_origin(kind), list[Any](typing.get_args(kind))
    if origin is tuple:
        if not isinstance(data, list):
            raise _mismatch(where, "a list", data)
        items = cast(list[object], data)
        kinds: list[Any] = arguments[:1] * len(items) if arguments[-1] is ... else arguments
        if len(kinds) != len(items):
            raise _mismatch(where, f"a list of {len(kinds)}", items)
        return tuple(_parse(kinds[i], item, f"{where}[{i}]") for i, item in enumerate(items))
    if origin in (dict, Mapping):
        if not isinstance(data, dict):
            raise _mismatch(where, "an object", data)
        entries = cast(dict[str, object], data).items()
        return {key: _parse(arguments[1], item, f"{where}[{key!r}]") for key, item in entries}
    if origin in (types.UnionType, typing.Union):
        for choice in arguments:
            with contextlib.suppress(ArtifactError):
                return _parse(choice, data, where)
        raise _mismatch(where, " or ".join(getattr(choice, "__name__", str(choice)) for choice in arguments), data)
    if kind is float and isinstance(data, int) and not isinstance(data, bool):
        return float(data)
    if not isinstance(data, kind) or (isinstance(data, bool) and kind is int):
        raise _mismatch(where, cast(type, kind).__name__, data)
    if kind is float and not math.isfinite(cast(float, data)):
        raise _mismatch(where, "a finite number", data)
    return data


@cache
def _fields(kind: Any) -> tuple[tuple[str, Any, bool], ...]:
    """Name, type, and whether it must be there, of each field of a dataclass."""
    hints = typing.get_type_hints(kind)
    missing = dataclasses.MISSING
    return tuple(
        (entry.name, hints[entry.name], entry.default is missing and entry.default_factory is missing)
        for entry in dataclasses.fields(kind)
    )


def _mismatch(where: str, expected: str, data: object) -> ArtifactError:
    return ArtifactError(f"{where} should be {expected}, but is {str(data)[:80]!r}; {AGAIN}")

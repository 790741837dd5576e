"""JSON of requests, and fields of it with their types checked."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar, cast

from opweld.serve.open_inference.parameters import Parameter
from opweld.serve.refusal import Refusal

T = TypeVar("T")

_SAID: Final[Mapping[type, str]] = {
    str: "a string",
    list: "an array",
    dict: "an object",
    bool: "true or false",
    int: "an integer",
}
ARRAY: Final[type[list[Any]]] = list
_OBJECT: Final[type[dict[str, Any]]] = dict
_NONE: Final[Mapping[str, Any]] = {}


def _constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON; send tensors that hold it as binary data")


_DECODER: Final = json.JSONDecoder(parse_constant=_constant)


def parsed(raw: bytes | memoryview) -> Mapping[str, Any]:
    """The object that JSON in UTF-8 holds; an empty one where there is nothing. Raises Refusal if it is none."""
    if not len(raw):
        return _NONE
    try:
        found: Any = _DECODER.decode(str(raw, "utf-8"))
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise Refusal(400, f"the request is no JSON: {reason}") from None
    if not isinstance(found, dict):
        raise Refusal(400, "the request is no JSON object")
    return cast(Mapping[str, Any], found)


def field(where: str, fields: Mapping[str, Any], name: str, kind: type[T]) -> T:
    """A field that must be there."""
    found = optional(where, fields, name, kind)
    if found is None:
        raise Refusal(400, f"{where} has no {name}, expected {_SAID[kind]}", param=name)
    return found


def optional(where: str, fields: Mapping[str, Any], name: str, kind: type[T]) -> T | None:
    """A field that may be left out, or null."""
    found = fields.get(name)
    if found is None or (isinstance(found, kind) and not (kind is int and isinstance(found, bool))):
        return found
    raise Refusal(400, f"{where}: {name} is not {_SAID[kind]}", param=name)


def parameters(where: str, fields: Mapping[str, Any]) -> Mapping[str, Parameter]:
    """The field `parameters`: names, and booleans, numbers or strings."""
    found = optional(where, fields, "parameters", _OBJECT)
    if not found:
        return _NONE
    for name, value in found.items():
        if not isinstance(value, (bool, int, float, str)):
            raise Refusal(400, f"{where}: parameter {name} is no boolean, number or string", param=name)
    return found


def objects(where: str, fields: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]] | None:
    """A field that is an array of objects; None where it is not given."""
    found = optional(where, fields, name, ARRAY)
    if found is not None and not all(isinstance(one, dict) for one in found):
        raise Refusal(400, f"{where}: {name} is not an array of objects", param=name)
    return found


def shape(where: str, fields: Mapping[str, Any]) -> Sequence[int]:
    """The field `shape`: integers."""
    found = field(where, fields, "shape", ARRAY)
    for size in found:
        if type(size) is not int:
            raise Refusal(400, f"{where}: shape is not an array of integers", param="shape")
    return found

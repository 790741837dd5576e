"""Converts lists, dicts and optionals of callers from and to the tensors of compiled code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any, cast

import numpy as np

from opweld.errors import InputError, RunError
from opweld.interface import Argument, Constant, Form, Listed, Mapped, Tensor, Text, tensors_of
from opweld.runtime import dtypes
from opweld.runtime.feed import prepare
from opweld.runtime.plan import Array


class Numbers:
    """The numbers of strings in one run: those of the model, and of others in the inputs."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = list(texts)
        self._numbers = {text: number for number, text in enumerate(texts)}

    def of(self, name: str, value: Any) -> Array:
        """The numbers of an array of strings. Raises InputError naming the input for anything else."""
        array = np.asarray(value)
        if array.dtype == np.int64:
            return array  # numbers already, for `run_tensors`
        if array.dtype.kind not in "OUST":
            raise InputError(f"input {name!r}: expected an array of strings, got {array.dtype}")
        found = [self._number(name, text) for text in array.ravel().tolist()]
        return np.array(found, np.int64).reshape(array.shape)

    def _number(self, name: str, text: Any) -> int:
        if isinstance(text, bytes):
            text = text.decode("utf-8", "replace")
        if not isinstance(text, str):
            raise InputError(f"input {name!r}: expected strings, got {type(text).__name__}")
        if text not in self._numbers:
            self._numbers[text] = len(self._texts)
            self._texts.append(text)
        return self._numbers[text]

    def texts(self, name: str, numbers: Array) -> Array:
        """The strings of numbers. Raises RunError naming the value for an unknown number."""
        if numbers.size and not 0 <= numbers.min() <= numbers.max() < len(self._texts):
            raise RunError(f"{name!r} holds the number of a string that does not exist")
        return np.array(self._texts, object)[numbers] if self._texts else np.empty(numbers.shape, object)


def take_apart(arguments: Sequence[Argument], feeds: Mapping[str, Any], numbers: Numbers) -> dict[str, Any]:
    """The tensors of the feeds, by name. They may also be fed by these names.

    Args:
        arguments: the inputs of the model.
        feeds: by name of input, an array, a list of arrays, or None for an empty optional, which may also be left out.
        numbers: of strings; extended by those in the feeds.

    Raises InputError naming the input where the model was compiled for another structure.
    """
    if not hasattr(feeds, "keys"):
        raise InputError(f"feeds must be a dict by input name, got {type(feeds).__name__}")
    found: dict[str, Any] = {}
    for argument in arguments:
        if argument.name in feeds:
            _take(argument.form, feeds[argument.name], argument.name, found, numbers)
        else:
            found |= {name: feeds[name] for name in tensors_of(argument.form) if name in feeds}
    known = {argument.name for argument in arguments}
    unknown = next((name for name in feeds if name not in known and name not in found), None)
    if unknown is not None:
        raise InputError(f"{unknown!r} is not an input of the model; they are {', '.join(map(repr, sorted(known)))}")
    return found


def _take(form: Form, value: Any, name: str, found: dict[str, Any], numbers: Numbers) -> None:
    match form:
        case Tensor(tensor):
            if value is None:
                raise InputError(f"input {name!r}: compiled for a tensor, but fed None{_again(name, None)}")
            found[tensor] = value
        case Text(tensor):
            found[tensor] = numbers.of(name, value)
        case Listed(items):
            if not isinstance(value, list | tuple):
                raise InputError(f"input {name!r}: expected a list of {len(items)} arrays, got {type(value).__name__}")
            values = cast("Sequence[Any]", value)
            if len(values) != len(items):
                raise InputError(
                    f"input {name!r}: the model was compiled for a list of {len(items)}, but {len(values)} are fed"
                    + _again(name, len(values))
                )
            for position, (item, element) in enumerate(zip(items, values, strict=True)):
                _take(item, element, f"{name}[{position}]", found, numbers)
        case Constant(dtype, shape, digits):
            array = prepare(name, value, dtypes.numpy_dtype(dtype))
            if array.shape != shape or array.tobytes() != bytes.fromhex(digits):
                raise InputError(f"input {name!r} is a constant of the compiled model, but is fed another value")
        case Mapped():
            raise InputError(f"input {name!r} is a map, which cannot be fed")
        case None:
            if value is not None:
                count = len(cast("Sequence[Any]", value)) if isinstance(value, list | tuple) else 1
                raise InputError(f"input {name!r}: the model was compiled for an empty optional" + _again(name, count))


def _again(name: str, length: int | None) -> str:
    return f"; compile it for that with lengths={{{name!r}: {length}}}"


def flattened(values: Sequence[Any]) -> list[Array]:
    """The tensors of outputs, in order; a list of dicts is one, with a column for each key."""
    found: list[Array] = []
    for value in values:
        if isinstance(value, list | tuple):
            rows = cast("Sequence[Any]", value)
            maps = bool(rows) and isinstance(rows[0], dict)
            found += [np.array([list(row.values()) for row in rows], np.float32)] if maps else flattened(rows)
        elif value is not None:
            found.append(np.asarray(value))
    return found


def put_together(arguments: Sequence[Argument], tensors: Mapping[str, Array], numbers: Numbers) -> list[Any]:
    """Inputs or outputs in the form of callers, from all their tensors by name, and the numbers of strings."""
    return [_put(argument.form, tensors, numbers) for argument in arguments]


def _put(form: Form, tensors: Mapping[str, Array], numbers: Numbers) -> Any:
    match form:
        case Tensor(name):
            return tensors[name]
        case Text(name):
            return numbers.texts(name, tensors[name])
        case Listed(items):
            return [_put(item, tensors, numbers) for item in items]
        case Mapped(scores, keys):
            rows = np.atleast_2d(tensors[scores])
            if rows.shape[-1] != len(keys):
                raise RunError(f"output {scores!r} has {rows.shape[-1]} columns for {len(keys)} labels")
            # A loop in C: for a classifier, the dicts take longer than the tensors.
            return list(map(dict, map(zip, repeat(keys), rows.tolist())))
        case Constant(dtype, shape, digits):
            return np.frombuffer(bytes.fromhex(digits), dtypes.numpy_dtype(dtype)).reshape(shape)
        case None:
            return None

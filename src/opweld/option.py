"""One option of a compilation: the values that it takes and its documentation. `options.py` is the table of them.

From an entry of the table follow the check of a value, from Python and from texts of the command line; the flag of each
command; the keyword argument of each function with its documentation; the part in the cache key; docs/options.md.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import json
import operator
import os
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, SupportsIndex, TypeVar, cast

from opweld.errors import OptionError

DIGITS = 12
"""The most digits of a number on the command line; no size of a tensor has more."""

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Kind:
    """The values of an option.

    Attributes:
        check: (name, value) -> the value as it is kept; raises OptionError for a wrong one, naming what is right.
        metavar: how the command line writes one.
        read: (flag, texts) -> the value, where the command line takes the flag several times; None where it takes one
            text, of the type `text`.
    """

    check: Callable[[str, Any], Any]
    metavar: str = ""
    read: Callable[[str, Iterable[str]], Any] | None = None
    text: type = str


@dataclass(frozen=True)
class Option:
    """The definition of an option.

    Attributes:
        kind: its values.
        help: what it does, in a few words; what the command line prints.
        more: further sentences of the documentation.
        flag: of the command line; empty for an option whose values have no text.
        key: (options, value) -> its part of the cache key, as JSON types; the value itself where None.
        rewriting: whether `opweld optimize` takes it too.
    """

    kind: Kind
    help: str
    more: str = ""
    flag: str = ""
    key: Callable[[Any, Any], object] | None = None
    rewriting: bool = False

    @property
    def documentation(self) -> str:
        """The whole documentation, as one or several sentences."""
        return f"{self.help}. {self.more}" if self.more else f"{self.help}."


@dataclass(frozen=True)
class Entry:
    """An option of the table by its name, with its default."""

    name: str
    default: Any
    option: Option


_METADATA = "option"


def option(
    default: Any,
    kind: Kind,
    help: str,
    *,
    more: str = "",
    flag: str = "",
    key: Callable[[Any, Any], object] | None = None,
    rewriting: bool = False,
) -> Any:
    """A field of the table; its arguments are the attributes of `Option`."""
    told = {_METADATA: Option(kind, help, more, flag, key, rewriting)}
    if isinstance(default, Mapping):
        return field(default_factory=lambda: cast("Mapping[str, Any]", default), hash=False, metadata=told)
    return field(default=default, hash=isinstance(default, str | int), metadata=told)


def entries(table: Any) -> tuple[Entry, ...]:
    """The options that a dataclass or an object of it has."""
    return tuple(
        Entry(one.name, one.default if one.default_factory is dataclasses.MISSING else {}, one.metadata[_METADATA])
        for one in dataclasses.fields(table)
        if _METADATA in one.metadata
    )


def documented(table: Any) -> Callable[[Function], Function]:
    """For a function with `**options: Unpack[CompileOptions]`: `help` and `inspect.signature` tell every option.

    Where its documentation says `options: ...`, that line becomes one entry an option."""

    def tell(function: Function) -> Function:
        parameters: list[inspect.Parameter] = []
        own = inspect.signature(function)
        for parameter in own.parameters.values():
            if parameter.kind is not parameter.VAR_KEYWORD:
                parameters.append(parameter)
                continue
            kind = inspect.Parameter.KEYWORD_ONLY
            parameters += [inspect.Parameter(entry.name, kind, default=entry.default) for entry in entries(table)]
        function.__dict__["__signature__"] = own.replace(parameters=parameters)
        lines: list[str] = []
        for line in (function.__doc__ or "").splitlines():
            indent = line[: len(line) - len(line.lstrip())]
            if line.lstrip().startswith("options: "):
                for entry in entries(table):
                    text = f"{entry.name}: {entry.option.documentation}"
                    lines += textwrap.wrap(text, 116, initial_indent=indent, subsequent_indent=f"{indent}    ")
            else:
                lines.append(line)
        function.__doc__ = "\n".join(lines)
        return function

    return tell


# ---- kinds of values ----


def choice(names: Sequence[str], metavar: str, installed: Callable[[], Sequence[str]] = tuple) -> Kind:
    """One of several names, or of those that installed packages add: these are looked for when it is none of the
    former."""

    def check(name: str, value: object) -> str:
        if not isinstance(value, str) or not (value in names or value in installed()):
            raise OptionError(f"{name} is {value!r}, expected one of {', '.join((*names, *installed()))}")
        return value

    return Kind(check, metavar)


def count(lowest: int, highest: int) -> Kind:
    """A whole number."""
    return Kind(lambda name, value: whole_number(name, value, lowest, highest), "N", text=int)


def sizes(lowest: int) -> Kind:
    """Whole numbers by name of symbolic dim."""

    def check(name: str, value: object) -> int:
        return whole_number(name, value, lowest, 2**63 - 1)

    return _named("a symbolic dim", "whole numbers by name of symbolic dim", {"batch": 1}, check, _digits, "N")


def per_input(expected: str, example: Mapping[str, Any], check: Callable[[str, Any], Any], *, item: str = "N") -> Kind:
    """A value by name of input: whole numbers, or with `item` VALUE whatever JSON says."""
    read = _digits if item == "N" else _json
    return _named("an input", f"{expected} by name of input", example, check, read, item)


def names(expected: str, metavar: str) -> Kind:
    """A list of names."""

    def check(name: str, value: object) -> tuple[str, ...]:
        if isinstance(value, str) or not isinstance(value, Iterable):
            raise OptionError(f"{name} is {value!r}, expected a list of {expected}")
        found = tuple(cast("Iterable[object]", value))
        for one in found:
            if not isinstance(one, str) or not one:
                raise OptionError(f"{name} holds {one!r}, expected {expected}")
        return cast("tuple[str, ...]", found)

    return Kind(check, metavar, lambda flag, texts: tuple(texts))


def texts_by_id() -> Kind:
    """Names of alternatives by the id of a decision."""

    def check(name: str, value: object) -> str:
        if not isinstance(value, str) or not value:
            raise OptionError(f"{name} is {value!r}, expected the name of an alternative")
        return value

    expected = "names of alternatives by id of a decision"
    return _named("the id of a decision", expected, {"ID": "ALTERNATIVE"}, check, lambda _, text: text, "ALTERNATIVE")


def names_by_name(expected: str, example: Mapping[str, str], *, of: str, item: str) -> Kind:
    """Names by name, where either may be a pattern with one `*`."""

    def check(name: str, value: object) -> str:
        if not isinstance(value, str) or not value:
            raise OptionError(f"{name} is {value!r}, expected the name of {of}")
        return value

    named = _named("an input", expected, example, check, lambda _, text: text, item)

    def checked(name: str, values: object) -> Mapping[str, str]:
        found = cast("Mapping[str, str]", named.check(name, values))
        for key, value in found.items():
            if key.count("*") > 1 or key.count("*") != value.count("*"):
                raise OptionError(f"{name} holds {key!r}: {value!r}, expected one * in both, or in neither")
        return found

    return dataclasses.replace(named, check=checked)


def file(expected: str) -> Kind:
    """The path of a file that can be read."""

    def check(name: str, value: object) -> Path | None:
        if value is None:
            return None
        if not isinstance(value, str | os.PathLike):
            raise OptionError(f"{name} is {value!r}, expected the path of {expected}")
        return Path(cast("str | os.PathLike[str]", value))

    return Kind(check, "FILE", text=Path)


def objects(expected: str) -> Kind:
    """A list of objects, which no text can say; what they are is checked where they are known."""

    def check(name: str, value: object) -> tuple[object, ...]:
        if isinstance(value, str) or not isinstance(value, Iterable):
            raise OptionError(f"{name} is {value!r}, expected a list of {expected}")
        return tuple(cast("Iterable[object]", value))

    return Kind(check)


def whole_number(name: str, value: object, lowest: int, highest: int) -> int:
    """A whole number of any type that is one, numpy's included; True and False are none. Raises OptionError."""
    number = None
    if not isinstance(value, bool) and isinstance(value, SupportsIndex):
        with contextlib.suppress(TypeError):  # an array of several elements
            number = operator.index(value)
    if number is None or not lowest <= number <= highest:
        raise OptionError(f"{name} is {value!r}, expected a whole number from {lowest} to {highest}")
    return number


def pairs(texts: Iterable[str] | None, flag: str) -> dict[str, str]:
    """Splits `NAME=VALUE` texts. Raises OptionError on one without `=`, or on a name given twice."""
    values: dict[str, str] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name or not value:
            raise OptionError(f"{flag} {text!r} is not NAME=VALUE")
        if name in values:
            raise OptionError(f"{flag} gives {name!r} twice")
        values[name] = value
    return values


def _named(
    of: str,
    expected: str,
    example: Mapping[str, Any],
    check_item: Callable[[str, Any], Any],
    read_item: Callable[[str, str], Any],
    item: str,
) -> Kind:
    """Values by name, kept as a mapping that nobody changes."""

    def check(name: str, values: object) -> Mapping[str, Any]:
        if not isinstance(values, Mapping):
            raise OptionError(f"{name} is {values!r}, expected {expected}, as {dict(example)!r}")
        found: dict[str, Any] = {}
        for key, value in cast("Mapping[object, object]", values).items():
            if not isinstance(key, str) or not key:
                raise OptionError(f"{name} has the key {key!r}, expected the name of {of}")
            found[key] = check_item(f"{name} {key!r}", value)
        return MappingProxyType(found)

    def read(flag: str, texts: Iterable[str]) -> dict[str, Any]:
        return {name: read_item(f"{flag} {name}={text[:40]}", text) for name, text in pairs(texts, flag).items()}

    name = "ID" if item == "ALTERNATIVE" else "NAME"
    return Kind(check, f"{name}={item}", read)


def _digits(what: str, text: str) -> int | None:
    if text == "none":
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= DIGITS):
        raise OptionError(f"{what}: expected a whole number, up to {DIGITS} digits")
    return int(text)


def _json(what: str, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise OptionError(f"{what}: expected a number, or a list as [1,2]") from error

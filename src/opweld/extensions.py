"""What other packages add to opweld: rules and operators, found through entry points of the groups below.

A package that fails to load is left out with a warning; models that do not need it compile as before."""

from __future__ import annotations

import hashlib
import pickle
import secrets
import sys
import warnings
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

RULES = "opweld.rules"
"""Entry points that are a rule or a pass, its class, or several of them."""

OPERATORS = "opweld.operators"
"""Entry points that are a module, which registers operators when it is imported."""

TARGETS = "opweld.targets"
"""Entry points that are a backend (`codegen.backend.Backend`), or its class, by the name of its target: one for each
target. opweld's own targets cannot be replaced."""

RUNTIMES = "opweld.runtimes"
"""Entry points that open artifacts, by name of the backend: a function or a class with the parameters of
`runtime.opened.Opened`. Running such an artifact imports nothing else."""

TEXTS = ("*.py", "*.c", "*.h")
"""Files of a package that are part of its digest; kernels may be in files of their own."""

_noted: dict[str, str] = {}
"""Packages that registered something, however they were imported, with a random number made at their last registration;
it replaces the text in the digest of a package whose source cannot be read."""


_sources: dict[str, str] = {}
"""The source of each registered kernel, which need not be in a file of the package."""

_numbers: WeakKeyDictionary[object, str] = WeakKeyDictionary()
"""A random number for each given rule whose source cannot be read."""


def load(group: str) -> tuple[tuple[str, object], ...]:
    """(title for messages, object) of each entry point of a group; imported once."""
    return _load(group, tuple(sys.path))


def count(group: str) -> int:
    """How many entry points installed packages have; none is imported."""
    return len(_entries(group, tuple(sys.path)))


def find(group: str, name: str) -> object | None:
    """The object of the entry point with a name, imported now; None where no installed package has one. Errors of its
    import are raised, because the user named it."""
    entry = next((entry for entry in _entries(group, tuple(sys.path)) if entry.name == name), None)
    return None if entry is None else entry.load()


def names(group: str) -> tuple[str, ...]:
    """The names of a group's entry points, in order; none is imported."""
    return tuple(dict.fromkeys(entry.name for entry in _entries(group, tuple(sys.path))))


def note(module: str, **sources: str) -> None:
    """Records that a module registered something, which changes its digest. `sources`: texts of kernels by name."""
    _noted[module.partition(".")[0]] = secrets.token_hex()
    _sources.update(sources)


def digest(given: Iterable[object] = ()) -> str:
    """A hash of the source of all extension packages, imported or not, and of the given rules: a part of the cache key,
    as other sources may compile differently."""
    groups = (RULES, OPERATORS, TARGETS)
    found = {entry.module.partition(".")[0] for group in groups for entry in _entries(group, tuple(sys.path))}
    times = {name: _noted.get(name, "") for name in (*found, *_noted)}
    texts = [f"{name}\0{_text_digest(name, tuple(sys.path), time) or time}" for name, time in sorted(times.items())]
    texts += (f"{name}\0{source}" for name, source in sorted(_sources.items()))
    texts += map(_rule_text, given)
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def _rule_text(rule: object) -> str:
    """The text of a given rule for the digest: its class, its fields, and the source of the class's package; a random
    number where that cannot be read, as in a notebook."""
    made = rule if isinstance(rule, type) else type(rule)
    package = made.__module__.partition(".")[0]
    digest, files = hashlib.sha256(), [] if package == "__main__" and hasattr(sys, "ps1") else list(_files(package))
    try:
        for file in files:
            digest.update(file.read_bytes())
        state = None if isinstance(rule, type) else rule.__getstate__()
        held = b"" if state is None else pickle.dumps(state)
    except Exception:  # noqa: BLE001 - what a rule holds may refuse to be pickled in whatever way
        files, held = [], b""
    told = digest.hexdigest() if files and "<locals>" not in made.__qualname__ else _number(rule)
    return "\0".join((made.__module__, made.__qualname__, told, held.hex()))


def _number(rule: object) -> str:
    """A random number, the same for the same object."""
    try:
        return _numbers.setdefault(rule, secrets.token_hex())
    except TypeError:  # it has no hash
        return secrets.token_hex()


def warn(title: str, why: str) -> None:
    """Says that something of another package is left out."""
    warnings.warn(f"{title} is left out: {why}", RuntimeWarning, stacklevel=3)


@cache
def _load(group: str, path: tuple[str, ...]) -> tuple[tuple[str, object], ...]:
    found: list[tuple[str, object]] = []
    for entry in _entries(group, path):
        title = f"entry point {entry.name!r} of {group} ({entry.value})"
        try:
            found.append((title, entry.load()))
        except Exception as error:  # noqa: BLE001 - a module of another package raises whatever it does
            warn(title, f"it does not load: {type(error).__name__}: {error}")
    return tuple(found)


@cache
def _entries(group: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """The entry points of a group in the packages on `path` (`sys.path`), in a fixed order."""
    from importlib.metadata import entry_points  # takes longer to import than all of opweld

    return tuple(sorted(entry_points(group=group), key=lambda entry: (entry.name, entry.value)))


@cache
def _text_digest(package: str, path: tuple[str, ...], time: str) -> str:
    """A digest of a package's or module's source; `time` invalidates the memo. Empty where it cannot be read."""
    digest, files = hashlib.sha256(), list(_files(package))
    for file in files:
        try:
            digest.update(file.read_bytes())
        except OSError:
            return ""
    return digest.hexdigest() if files else ""


def _files(package: str) -> Iterator[Path]:
    from importlib.util import find_spec

    module = sys.modules.get(package)
    if module is not None and getattr(module, "__spec__", None) is None:  # a script, or a notebook
        file = getattr(module, "__file__", None)
        yield from [] if file is None else [Path(file)]
        return
    spec = find_spec(package)
    if spec is None:
        return
    if spec.submodule_search_locations is not None:
        for folder in spec.submodule_search_locations:
            yield from sorted(file for kind in TEXTS for file in Path(folder).rglob(kind))
    elif spec.origin is not None:
        yield Path(spec.origin)

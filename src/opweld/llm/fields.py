"""Typed reading of what describes a model: config.json, the metadata of a GGUF file. Both are untrusted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from opweld.errors import ModelError

MOST = 1 << 31
"""No size of a model is larger: what is computed from sizes then fits everywhere."""
MOST_FEATURES = 1 << 16
"""No head has more features: each pair has a frequency, which is computed before any weight is seen."""
MOST_LAYERS = 4096
"""No model has more layers, or experts in a layer."""


class Fields:
    """Values by key, each of the type that is asked for.

    A key whose value is None counts as missing. All methods raise ModelError naming the file and the key."""

    def __init__(self, values: Mapping[str, object], file: str, prefix: str = "") -> None:
        self.values, self.file, self.prefix = values, file, prefix

    def __contains__(self, key: str) -> bool:
        return self.values.get(self.prefix + key) is not None

    def get(self, key: str) -> object:
        """The value as it is; None where it is missing."""
        return self.values.get(self.prefix + key)

    def integer(self, key: str, default: int | None = None, least: int = 1, most: int = MOST) -> int:
        """An integer in [least, most]; the default too, which may be computed of other values."""
        found = default if self.get(key) is None else self.get(key)
        if found is None:
            raise ModelError(f"{self.file}: {self.prefix}{key} is missing")
        if isinstance(found, bool) or not isinstance(found, int):
            raise ModelError(f"{self.file}: {self.prefix}{key} should be an integer, not {_shown(found)}")
        if not least <= found <= most:
            raise ModelError(f"{self.file}: {self.prefix}{key} is {found}, which is not in {least} to {most}")
        return found

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number."""
        found = self.get(key)
        if found is None:
            if default is None:
                raise ModelError(f"{self.file}: {self.prefix}{key} is missing")
            return default
        if isinstance(found, bool) or not isinstance(found, int | float) or not abs(found) < 1e38:
            raise ModelError(f"{self.file}: {self.prefix}{key} should be a finite number, not {_shown(found)}")
        return float(found)

    def positive(self, key: str, default: float | None = None) -> float:
        """A finite number above 0."""
        found = self.number(key, default)
        if found <= 0:
            raise ModelError(f"{self.file}: {self.prefix}{key} is {found}, it should be above 0")
        return found

    def cap(self, key: str) -> float | None:
        """A number above 0; None where it is missing or 0."""
        return self.positive(key) if self.get(key) else None

    def flag(self, key: str, default: bool = False) -> bool:
        """True or False."""
        found = self.get(key)
        if found is None:
            return default
        if not isinstance(found, bool):
            raise ModelError(f"{self.file}: {self.prefix}{key} should be true or false, not {_shown(found)}")
        return found

    def text(self, key: str, default: str | None = None) -> str:
        """A string."""
        found = self.get(key)
        if found is None:
            if default is None:
                raise ModelError(f"{self.file}: {self.prefix}{key} is missing")
            return default
        if not isinstance(found, str):
            raise ModelError(f"{self.file}: {self.prefix}{key} should be a string, not {_shown(found)}")
        return found

    def numbers(self, key: str) -> list[float]:
        """A list of finite numbers."""
        found = self.sequence(key)
        for one in found:
            if isinstance(one, bool) or not isinstance(one, int | float) or not abs(one) < 1e38:
                raise ModelError(f"{self.file}: {self.prefix}{key} should be a list of numbers, not of {_shown(one)}")
        return [float(one) for one in cast("list[float]", found)]

    def texts(self, key: str) -> list[str]:
        """A list of strings."""
        found = self.sequence(key)
        for one in found:
            if not isinstance(one, str):
                raise ModelError(f"{self.file}: {self.prefix}{key} should be a list of strings, not of {_shown(one)}")
        return cast("list[str]", found)

    def sequence(self, key: str) -> Sequence[object]:
        """A list."""
        found = self.get(key)
        if not isinstance(found, list | tuple):
            raise ModelError(f"{self.file}: {self.prefix}{key} should be a list, not {_shown(found)}")
        return cast("Sequence[object]", found)

    def inner(self, key: str) -> Fields:
        """What an object in it holds; nothing where it is missing."""
        found = self.get(key)
        if found is None:
            return Fields({}, f"{self.file}, {self.prefix}{key}")
        if not isinstance(found, dict):
            raise ModelError(f"{self.file}: {self.prefix}{key} should be an object, not {_shown(found)}")
        return Fields(cast("dict[str, object]", found), f"{self.file}, {self.prefix}{key}")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) < 60 else text[:57] + "..."

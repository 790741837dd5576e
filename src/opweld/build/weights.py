"""The weights file of an artifact, while it is written."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import numpy as np

ALIGNMENT = 64
"""Bytes; a packed operand that straddles cache lines costs a tenth of the speed."""


class Weights(Protocol):
    """What takes the images of an artifact's constants. `size`: bytes so far."""

    size: int

    def put(self, name: str, image: Callable[[], np.ndarray[Any, Any]]) -> int:
        """Takes an image; returns where it is."""
        ...


class NoWeights:
    """Takes images and makes none of them: for whoever wants to know what would be computed, and how."""

    def __init__(self) -> None:
        self.size = 0
        self._places = 0

    def put(self, name: str, image: Callable[[], np.ndarray[Any, Any]]) -> int:
        """Nowhere: a number that no other has."""
        self._places += 1
        return self._places


class WeightsFile:
    """Images one after the other, equal ones once. `size`: bytes so far."""

    def __init__(self, path: Path) -> None:
        self.size = 0
        self._offsets: dict[bytes, int] = {}
        self._file = path.open("wb")

    def __enter__(self) -> WeightsFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def put(self, name: str, image: Callable[[], np.ndarray[Any, Any]]) -> int:
        """Appends the image, aligned, unless the same bytes are there; returns the offset."""
        data = memoryview(np.ascontiguousarray(image()).view(np.uint8).reshape(-1).data)
        digest = hashlib.blake2b(data, digest_size=16).digest()
        if digest in self._offsets:
            return self._offsets[digest]
        offset = self.size
        self._offsets[digest] = offset
        padding = -data.nbytes % ALIGNMENT
        self._file.write(data)
        self._file.write(b"\0" * padding)
        self.size += data.nbytes + padding
        return offset

"""The weights file of an artifact, while it is written."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
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


HUGE_PAGE = 2 << 20
"""Bytes of a page of memory that a processor finds in one step fewer, and of which it remembers the places of far more.
File systems that can (XFS, ext4) keep in such pages what was written in whole ones, and map it so."""

_SAMPLE = 1024
"""Bytes of an image by which it is looked for."""


class WeightsFile:
    """Images one after the other, equal ones once. `size`: bytes so far.

    Images are told apart by their size and the checksum of a sample. Only those that share these are hashed: it takes as
    long as writing them, and few images are alike. A thread writes an image, and digests it, while the next one is made.
    """

    def __init__(self, path: Path) -> None:
        self.size = 0
        self._first: dict[tuple[int, int], int] = {}
        """Where the first image of a size and a sample is."""
        self._hashed: dict[tuple[int, int], dict[bytes, int]] = {}
        """Where images are that share these, by their hash."""
        self._file = path.open("w+b", buffering=HUGE_PAGE)
        self._written = 0
        self._digest = hashlib.sha256()
        self._writer = ThreadPoolExecutor(1, "opweld weights")
        self._last: Future[None] | None = None
        """The image that is being written."""

    def __enter__(self) -> WeightsFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.shutdown()
        self._file.close()

    def put(self, name: str, image: Callable[[], np.ndarray[Any, Any]]) -> int:
        """Appends the image, aligned, unless the same bytes are there; returns the offset. Raises OSError, also for
        the image before."""
        data = np.ascontiguousarray(image()).view(np.uint8).reshape(-1)
        sample = np.ascontiguousarray(data[:: max(1, data.nbytes // _SAMPLE)])
        alike = data.nbytes, zlib.crc32(sample.data)
        offset = self.size
        first = self._first.setdefault(alike, offset)
        if first != offset:
            hashed = self._hashed.get(alike)
            if hashed is None:
                hashed = self._hashed[alike] = {_hash(self._read(first, data.nbytes)): first}
            found = hashed.setdefault(_hash(data.data), offset)
            if found != offset:
                return found
        self._wait()
        self._last = self._writer.submit(self._append, data.data)
        self.size += data.nbytes + -data.nbytes % ALIGNMENT
        return offset

    def finish(self) -> str:
        """Waits until all is written; the SHA-256 of the file, in hexadecimal. Raises OSError."""
        self._wait()
        self._file.flush()
        return self._digest.hexdigest()

    def _wait(self) -> None:
        if self._last is not None:
            self._last.result()

    def _append(self, data: memoryview) -> None:
        for image in (data, memoryview(bytes(-data.nbytes % ALIGNMENT))):
            for piece in by_pages(image, self._written):
                self._file.write(piece)
            self._written += image.nbytes
            self._digest.update(image)

    def _read(self, offset: int, size: int) -> bytes:
        self._wait()
        self._file.seek(offset)
        data = self._file.read(size)
        self._file.seek(self.size)
        return data


def by_pages(data: memoryview, offset: int) -> Iterator[memoryview]:
    """The bytes in pieces that end where huge pages of a file do, in which they begin at `offset`: so that its buffer,
    of such a page, is written when it holds exactly one."""
    begin = 0
    while begin < data.nbytes:
        end = begin + HUGE_PAGE - (offset + begin) % HUGE_PAGE
        yield data[begin:end]
        begin = end


def _hash(data: bytes | memoryview) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()

"""The header of a GGUF file: metadata, and where each tensor lies.

https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. The package `gguf` reads headers too, one NumPy array a
string: seconds for a vocabulary. And it believes the lengths that a file states, which may be 2 ** 60.
"""

from __future__ import annotations

import mmap
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opweld.errors import DamagedModelError, MissingModelError, ModelError, UnsupportedError
from opweld.llm.gguf.blocks import FORMATS, NAMES

_STRING, _ARRAY = 8, 9
_SCALARS = {
    0: "<u1",
    1: "<i1",
    2: "<u2",
    3: "<i2",
    4: "<u4",
    5: "<i4",
    6: "<f4",
    7: "?",
    10: "<u8",
    11: "<i8",
    12: "<f8",
}
_LEAST_ENTRY = 13
"""Bytes of the shortest entry of metadata: the length of its key, its type, one byte."""
_LEAST_TENSOR = 24
"""Bytes of the shortest description of a tensor."""
_MOST_DIMENSIONS = 4


@dataclass(frozen=True)
class Tensor:
    """Where a tensor lies. shape: the slowest dimension first, as NumPy says it; start: bytes into the file."""

    name: str
    kind: int
    shape: tuple[int, ...]
    start: int


@dataclass(frozen=True, eq=False)
class Header:
    """A GGUF file, mapped. bytes: the whole file; metadata: by key, numbers, strings, and lists of them."""

    file: str
    metadata: dict[str, object]
    tensors: dict[str, Tensor]
    bytes: NDArray[np.uint8]


def read_header(path: Path) -> Header:
    """Maps a file and reads its header.

    Raises:
        MissingModelError: it cannot be opened.
        DamagedModelError: it is no GGUF file, or shorter than its header says.
        ModelError: the header contradicts itself.
        UnsupportedError: the version, byte order or format of a tensor is not read here.
    """
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < 24 or file.read(4) != b"GGUF":
                raise DamagedModelError(f"{path} is no GGUF file: it does not begin with GGUF; fetch it again")
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise MissingModelError(f"cannot open {path}: {error.strerror}") from error
    return _Reader(str(path), mapped).header()


class _Reader:
    """Reads a header from front to back. Every length is compared with what is left of the file before it is used."""

    def __init__(self, file: str, mapped: mmap.mmap) -> None:
        self.file, self.mapped, self.at = file, mapped, 4

    def header(self) -> Header:
        version = self.scalar("I")
        if version & 0xFFFF == 0:
            raise UnsupportedError(
                f"{self.file} is of a big-endian machine; convert it with gguf's gguf_convert_endian"
            )
        if version not in (2, 3):
            raise UnsupportedError(f"{self.file} is of version {version} of GGUF; opweld reads 2 and 3")
        tensors = self.count(_LEAST_TENSOR, "tensors")
        entries = self.count(_LEAST_ENTRY, "entries of metadata")
        metadata: dict[str, object] = {}
        for _ in range(entries):
            key = self.string("a key of the metadata")
            if key in metadata:
                raise ModelError(f"{self.file}: the metadata has {key} twice")
            metadata[key] = self.value(self.scalar("I"), key)
        if (parts := metadata.get("split.count")) not in (None, 0, 1):
            raise UnsupportedError(
                f"{self.file} is one of {parts} parts of a model; join them with llama-gguf-split --merge"
            )
        described = [self.tensor() for _ in range(tensors)]
        alignment = metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1) or alignment > 1 << 20:
            raise ModelError(f"{self.file}: general.alignment should be a power of two, not {alignment!r}")
        base = -(-self.at // alignment) * alignment
        found: dict[str, Tensor] = {}
        for tensor in described:
            if tensor.name in found:
                raise ModelError(f"{self.file}: there are two tensors {tensor.name}")
            found[tensor.name] = self.placed(tensor, base)
        return Header(self.file, metadata, found, np.frombuffer(self.mapped, np.uint8))

    def placed(self, tensor: Tensor, base: int) -> Tensor:
        """The tensor at its place in the file, which has room for it."""
        if tensor.kind not in FORMATS:
            name = NAMES.get(tensor.kind, f"number {tensor.kind}")
            known = ", ".join(form.name for form in FORMATS.values())
            raise UnsupportedError(
                f"{self.file}: {tensor.name} is of the type {name}; opweld reads {known}: quantize to one of them"
            )
        form, elements = FORMATS[tensor.kind], 1
        for length in tensor.shape:
            elements *= length
        if tensor.shape[-1] % form.elements:
            raise ModelError(
                f"{self.file}: rows of {tensor.name} have {tensor.shape[-1]} elements, which is no multiple of the "
                f"{form.elements} of a block of {form.name}"
            )
        start, size = base + tensor.start, elements // form.elements * form.bytes
        if start + size > len(self.mapped):
            raise DamagedModelError(
                f"{self.file} is truncated: {tensor.name} should end at byte {start + size}, the file has "
                f"{len(self.mapped)}; fetch it again"
            )
        return Tensor(tensor.name, tensor.kind, tensor.shape, start)

    def tensor(self) -> Tensor:
        """A description of a tensor; its start is relative to the data."""
        name = self.string("a tensor's name")
        dimensions = self.scalar("I")
        if not 1 <= dimensions <= _MOST_DIMENSIONS:
            raise ModelError(f"{self.file}: {name} has {dimensions} dimensions, it should have 1 to {_MOST_DIMENSIONS}")
        shape = [self.scalar("Q") for _ in range(dimensions)]
        if not all(shape):
            raise ModelError(f"{self.file}: {name} has the empty shape {shape[::-1]}")
        kind = self.scalar("I")
        return Tensor(name, kind, tuple(reversed(shape)), self.scalar("Q"))

    def value(self, kind: int, key: str) -> object:
        """A value of the metadata."""
        if kind == _STRING:
            return self.string(key)
        if kind == _ARRAY:
            return self.array(key)
        return self.numbers(kind, 1, key)[0]

    def array(self, key: str) -> list[Any]:
        kind = self.scalar("I")
        if kind == _STRING:
            return self.strings(self.count(8, f"strings of {key}"), key)
        return self.numbers(kind, self.scalar("Q"), key)

    def numbers(self, kind: int, count: int, key: str) -> list[Any]:
        if kind not in _SCALARS:
            raise ModelError(f"{self.file}: {key} is of the type {kind}, which GGUF does not define, or nested arrays")
        dtype = np.dtype(_SCALARS[kind])
        return np.frombuffer(self.taken(count * dtype.itemsize, key), dtype).tolist()

    def count(self, least: int, what: str) -> int:
        """A number of things of which each takes at least so many bytes."""
        found = self.scalar("Q")
        if found * least > len(self.mapped) - self.at:
            raise DamagedModelError(
                f"{self.file} is truncated or damaged: it should have {found} {what}, which do not fit; fetch it again"
            )
        return found

    def string(self, what: str) -> str:
        raw = self.taken(self.scalar("Q"), what)
        try:
            return raw.decode()
        except UnicodeDecodeError as error:
            raise ModelError(f"{self.file}: {what} is not UTF-8: {error}") from error

    def strings(self, count: int, what: str) -> list[str]:
        """So many, as `string` reads one: a vocabulary has 100,000s of them."""
        mapped, size, at, length_at = self.mapped, len(self.mapped), self.at, struct.Struct("<Q").unpack_from
        found: list[str] = []
        for _ in range(count):
            start = at + 8
            if start > size or (end := start + length_at(mapped, at)[0]) > size:
                self.at = at
                found.append(self.string(what))  # which says what is wrong
                break
            try:
                found.append(mapped[start:end].decode())
            except UnicodeDecodeError as error:
                raise ModelError(f"{self.file}: {what} is not UTF-8: {error}") from error
            at = end
        else:
            self.at = at
        return found

    def scalar(self, code: str) -> int:
        return struct.unpack("<" + code, self.taken(struct.calcsize("<" + code), "the header"))[0]

    def taken(self, size: int, what: str) -> bytes:
        """The next bytes."""
        if size > len(self.mapped) - self.at:
            raise DamagedModelError(f"{self.file} is truncated in {what}, at byte {self.at}; fetch it again")
        self.at += size
        return self.mapped[self.at - size : self.at]

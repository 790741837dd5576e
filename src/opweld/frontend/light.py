"""An ONNX file without its weights: each large tensor refers to where its bytes lie in the file.

Protobuf reads a message whole and copies every field of bytes, twice in Python. Of a model of 600 MB that is two
seconds, and three times its size in memory, before anything is known of it. Here the wire format is walked instead, no
deeper than large fields go, and the bytes of large tensors are skipped. What is unusual, or damaged, is left to
protobuf, which says what is wrong with it.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from google.protobuf.message import DecodeError, Message
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, StringStringEntryProto, TensorProto

LARGE_BYTES = 1 << 14
"""The least size of what is skipped, and of messages that are looked into."""

MAX_DEPTH = 100
"""The deepest nesting of messages, protobuf's own limit."""

_RAW = TensorProto.RAW_DATA_FIELD_NUMBER
_DATA = (_RAW, TensorProto.EXTERNAL_DATA_FIELD_NUMBER, TensorProto.DATA_LOCATION_FIELD_NUMBER)

_INSIDE: dict[tuple[type[Message], int], type[Message]] = {
    (ModelProto, ModelProto.GRAPH_FIELD_NUMBER): GraphProto,
    (GraphProto, GraphProto.INITIALIZER_FIELD_NUMBER): TensorProto,
    (GraphProto, GraphProto.NODE_FIELD_NUMBER): NodeProto,
    (NodeProto, NodeProto.ATTRIBUTE_FIELD_NUMBER): AttributeProto,
    (AttributeProto, AttributeProto.T_FIELD_NUMBER): TensorProto,
    (AttributeProto, AttributeProto.G_FIELD_NUMBER): GraphProto,
}
"""The messages in which weights may be, by the message and the number of the field that holds them."""

_VARINT, _BYTES = 0, 2
"""Wire types, the lowest three bits of a tag: an integer, and what has a length."""

_FIXED = {1: 8, 5: 4}
"""The bytes of numbers of fixed size, by their wire type."""


def read_light(path: Path) -> ModelProto | None:
    """The model with tensors of at least `LARGE_BYTES` as external data in the file itself; None if it holds none, or
    anything that this reader does not know. Raises OSError."""
    if "\\" in path.name or not path.name.isprintable():
        return None  # external data may not be called so
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        walk = _Walk(file, path.name)
        model = ModelProto()
        try:
            model.ParseFromString(walk.message(ModelProto, size, 0))
        except (_UnusualError, DecodeError, RuntimeError):
            return None
    return model if walk.skipped else None


class _UnusualError(Exception):
    """The file has what is left to protobuf."""


@dataclass
class _Walk:
    """A pass over the file; what it says of a tensor that it skips refers to `name`."""

    file: BinaryIO
    name: str
    skipped: int = 0

    def message(self, kind: type[Message], end: int, depth: int) -> bytes:
        """The message that lies between here and `end`, without weights."""
        parts: list[bytes] = []
        numbers: list[int] = []
        while self.file.tell() < end:
            tag = self._varint()
            number, wire = tag >> 3, tag & 7
            numbers.append(number)
            if wire == _BYTES:
                parts.append(self._field(kind, number, self._varint(), end, depth))
            else:
                parts += [_varint(tag), self._scalar(wire)]
        if self.file.tell() != end:
            raise _UnusualError
        if kind is TensorProto and sum(number in _DATA for number in numbers) > 1:
            raise _UnusualError  # which of them counts is protobuf's matter
        return b"".join(parts)

    def _field(self, kind: type[Message], number: int, length: int, end: int, depth: int) -> bytes:
        begin, inside = self.file.tell(), _INSIDE.get((kind, number))
        if begin + length > end or depth > MAX_DEPTH:
            raise _UnusualError
        if length >= LARGE_BYTES and kind is TensorProto and number == _RAW:
            self.file.seek(length, os.SEEK_CUR)
            self.skipped += 1
            place = {"location": self.name, "offset": str(begin), "length": str(length)}
            entries = [StringStringEntryProto(key=key, value=value) for key, value in place.items()]
            return TensorProto(data_location=TensorProto.EXTERNAL, external_data=entries).SerializeToString()
        if length >= LARGE_BYTES and inside is not None:
            content = self.message(inside, begin + length, depth + 1)
        else:
            content = self._bytes(length)
        return _varint(number << 3 | _BYTES) + _varint(len(content)) + content

    def _scalar(self, wire: int) -> bytes:
        if wire == _VARINT:
            return _varint(self._varint())
        if wire in _FIXED:
            return self._bytes(_FIXED[wire])
        raise _UnusualError

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 70, 7):
            byte = self._bytes(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise _UnusualError

    def _bytes(self, count: int) -> bytes:
        data = self.file.read(count)
        if len(data) < count:
            raise _UnusualError
        return data


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)

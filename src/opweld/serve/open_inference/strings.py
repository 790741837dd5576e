"""Strings as bytes: each after its length, a little-endian uint32."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from opweld.errors import InputError
from opweld.serve.inference.model import Array

_LENGTH = struct.Struct("<I")


def unpacked(name: str, packed: memoryview, shape: Sequence[int], count: int) -> Array:
    """The `count` strings of tensor `name` as bytes objects [shape]. Raises InputError where there are more or less."""
    strings: list[bytes] = []
    place, end = 0, len(packed)
    # Four bytes each at least: what is longer than that ends early, however large the shape is.
    while place < end and len(strings) < count:
        if end - place < 4:
            raise InputError(f"{name}: {end - place} bytes at the end of its data are no length of a string")
        (length,) = _LENGTH.unpack_from(packed, place)
        place += 4
        if length > end - place:
            raise InputError(
                f"{name}: string {len(strings)} is said to have {length} bytes, but {end - place} are left; write "
                "each as a little-endian uint32 length and its bytes"
            )
        strings.append(bytes(packed[place : place + length]))
        place += length
    if place < end or len(strings) < count:
        there = f"more than {count}" if place < end else str(len(strings))
        raise InputError(f"{name}: its data has {there} strings, its shape {list(shape)} asks for {count}")
    array = np.empty(count, object)
    array[:] = strings
    return array.reshape(shape)


def packed(array: Array) -> bytes:
    """Strings, `str` or `bytes`, in C order."""
    parts: list[bytes] = []
    for one in array.flat:
        raw = one.encode() if isinstance(one, str) else bytes(one)
        parts += (_LENGTH.pack(len(raw)), raw)
    return b"".join(parts)

"""The arguments of a kernel, as the driver reads them at a launch: an array of pointers to values."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from typing import Any, Final

_POINTER: Final = ctypes.c_uint64

_TYPES: Final[dict[str, Any]] = {
    "i1": ctypes.c_uint8, "i8": ctypes.c_int8, "i16": ctypes.c_int16, "i32": ctypes.c_int32, "i64": ctypes.c_int64,
    "u1": ctypes.c_uint8, "u8": ctypes.c_uint8, "u16": ctypes.c_uint16, "u32": ctypes.c_uint32, "u64": ctypes.c_uint64,
    "fp16": ctypes.c_uint16, "bf16": ctypes.c_uint16, "fp32": ctypes.c_float, "fp64": ctypes.c_double,
}  # fmt: skip
"""C types by those of Triton; `ctypes` has none of 16-bit floating point, whose bits are passed."""


class Arguments:
    """Values for the parameters of a kernel, kept for any number of launches.

    The driver copies them when it is asked to launch, or to record a launch in a graph: they may change afterwards.
    """

    def __init__(self, types: Sequence[str], values: Sequence[float] = ()) -> None:
        """Types as Triton writes them ("*bf16", "i32", "fp32"), and the first values; others are 0 or null.

        Raises ValueError for a type that has no value of its own, as a tensor descriptor."""
        unknown = [kind for kind in types if not kind.startswith("*") and kind not in _TYPES]
        if unknown:
            raise ValueError(f"a parameter of type {unknown[0]!r} cannot be passed: expected a pointer or a number")
        self._types = tuple(types)
        self._values: list[Any] = [_POINTER() if kind.startswith("*") else _TYPES[kind]() for kind in types]
        # An array of length 0 has no address; nobody reads the one element.
        self.pointers = (ctypes.c_void_p * max(len(types), 1))(*map(ctypes.addressof, self._values))
        for index, value in enumerate(values):
            self[index] = value

    def __len__(self) -> int:
        return len(self._values)

    def __setitem__(self, index: int, value: float) -> None:
        """Sets a value: an address, an integer that fits the type, or a number to round to it.

        Raises OverflowError for an integer that does not fit."""
        kind, slot = self._types[index], self._values[index]
        if kind == "fp16":
            slot.value = _half_bits(value)
        elif kind == "bf16":
            slot.value = _bfloat_bits(value)
        elif kind in ("fp32", "fp64"):
            slot.value = value
        else:
            slot.value = value
            if slot.value != value:  # ctypes takes the low bits
                raise OverflowError(f"{value} does not fit the parameter {index} of type {kind}")


def _half_bits(value: float) -> int:
    try:
        return int.from_bytes(struct.pack("<e", value), "little")
    except OverflowError:  # beyond the largest
        return 0xFC00 if value < 0 else 0x7C00


def _bfloat_bits(value: float) -> int:
    """Bits of the nearest bfloat16, ties to even."""
    bits = int.from_bytes(ctypes.c_float(value), "little")
    if value != value:
        return bits >> 16 | 0x40  # quiet, and no infinity
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16

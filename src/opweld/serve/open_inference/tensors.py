"""Tensors out of what a request says of them: nothing is believed, and numbers are views of what came."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from opweld.errors import InputError
from opweld.serve.inference.model import Array, TensorSpec
from opweld.serve.open_inference.datatypes import DTYPES, datatype_of
from opweld.serve.open_inference.strings import unpacked

_MOST_BYTES = 1 << 62
_MOST_DIMS = 64
"""That an array of NumPy has."""


class Declared:
    """An input as a request declares it, held against the model's.

    Attributes:
        dtype, shape: of the array. count: its elements.
    """

    def __init__(self, spec: TensorSpec, datatype: str, shape: Sequence[int]) -> None:
        """Raises InputError where the model takes no such tensor."""
        self.name, self.dtype, self.shape = spec.name, spec.dtype, tuple(shape)
        expected = datatype_of(spec.name, spec.dtype)
        if datatype != expected:
            known = "" if datatype in DTYPES else f", which is none of {', '.join(DTYPES)}"
            raise InputError(f"{spec.name} is sent as {datatype}{known}; the model takes {expected}")
        self.count = count_of(spec.name, self.shape, spec.dtype.itemsize)
        if not spec.fits(self.shape):
            expected = ", ".join(map(str, spec.shape or ()))
            raise InputError(f"{spec.name} has shape {list(shape)}, the model takes [{expected}]")

    def check_bytes(self, size: int, most: int) -> None:
        """Raises InputError where so many bytes are not this tensor, or more than `most` of strings."""
        if self.dtype.hasobject:
            if size > most:
                raise InputError(f"{self.name}: {size} bytes of strings, at most {most} are read")
        elif size != self.count * self.dtype.itemsize:
            raise InputError(
                f"{self.name}: {size} bytes of data, but {list(self.shape)} of {self.dtype} are "
                f"{self.count * self.dtype.itemsize}"
            )

    def of_bytes(self, raw: memoryview) -> Array:
        """The tensor that these bytes are: a view of them where they lie as a run reads them, unless they hold
        strings."""
        self.check_bytes(len(raw), len(raw))
        if self.dtype.hasobject:
            return unpacked(self.name, raw, self.shape, self.count)
        if self.dtype.kind == "b" and self.count and np.frombuffer(raw, np.uint8).max() > 1:
            raise InputError(f"{self.name}: a byte of its data is neither 0 nor 1, which a BOOL is")
        array = np.frombuffer(raw, self.dtype).reshape(self.shape)
        # A run would copy it as well, after it has looked at all else that it could be.
        return array if array.flags.aligned else array.copy()

    def of_values(self, values: Any, *, finite: bool) -> Array:
        """The tensor of these numbers, booleans or strings: a list, flat or nested, or a sequence of a message.

        Args:
            finite: refuses infinity and NaN, which JSON knows only as numbers that are too large.
        """
        if self.dtype.hasobject:
            return self._of_strings(values)
        kind = _kind(self.dtype)
        wanted, types, said = _VALUES[kind]
        # Before NumPy looks: of strings it would make an array whose elements are all as wide as the longest of them.
        if not _types(values) <= types:
            raise InputError(f"{self.name}: its data holds other values than {said}")
        try:
            found = np.array(values)
            if self.dtype == np.uint64 and found.dtype == np.float64:
                found = _unsigned(values)
        except (ValueError, OverflowError, RecursionError) as error:
            raise InputError(f"{self.name}: its data is no tensor: {error}") from None
        if found.size != self.count:
            raise InputError(f"{self.name}: {found.size} values in its data, its shape {list(self.shape)} asks for "
                             f"{self.count}")  # fmt: skip
        if not found.size:
            return np.zeros(self.shape, self.dtype)
        if found.dtype.kind not in wanted:
            raise InputError(f"{self.name}: its data holds other values than {said}")
        if kind in "iu":
            bounds = np.iinfo(self.dtype)
            # As Python's numbers: uint64 and int64 have no common type.
            if int(found.min()) < bounds.min or int(found.max()) > bounds.max:
                raise InputError(f"{self.name}: a value of its data is not from {bounds.min} to {bounds.max}")
            return found.astype(self.dtype).reshape(self.shape)
        with np.errstate(over="ignore"):
            array = found.astype(self.dtype)
        if finite and kind == "f" and not np.isfinite(array).all():
            raise InputError(f"{self.name}: a value of its data is too large for {self.dtype}")
        return array.reshape(self.shape)

    def _of_strings(self, values: Any) -> Array:
        try:
            found = np.array(values, object)
            strings = found.reshape(-1)
            if not all(isinstance(one, (str, bytes)) for one in strings):
                raise InputError(f"{self.name}: its data holds other values than strings")
            for one in strings:
                if isinstance(one, str):
                    one.encode()
        except (ValueError, RecursionError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError(f"{self.name}: its data is no tensor of strings: {error}") from None
        if len(strings) != self.count:
            raise InputError(
                f"{self.name}: {len(strings)} strings in its data, its shape {list(self.shape)} asks for {self.count}"
            )
        return strings.reshape(self.shape)


_VALUES = {
    "b": ("b", frozenset({bool}), "true and false"),
    "i": ("iu", frozenset({int}), "integers"),
    "u": ("iu", frozenset({int}), "integers"),
    "f": ("iuf", frozenset({int, float}), "numbers"),
}
"""By kind of a dtype: the kinds that NumPy finds in values that fit, their types, and what they are."""


def _types(values: Any) -> set[type]:
    """Of all that is in lists of lists."""
    found: set[type] = set()
    level: list[list[Any]] = [[values]]
    while level:
        here: set[type] = set()
        for one in level:
            here.update(map(type, one))
        level = [inner for one in level for inner in one if type(inner) is list] if list in here else []
        found |= here
    return found - {list}


def _unsigned(values: Any) -> Array:
    """Integers below and above 2^63, whose common type NumPy takes for float64."""
    found = np.array(values, object)
    if all(type(one) is int and 0 <= one < 1 << 64 for one in found.flat):
        return found.astype(np.uint64)
    return found


def _kind(dtype: np.dtype[Any]) -> str:
    # bfloat16 is of no kind.
    return dtype.kind if dtype.kind in _VALUES else "f"


def count_of(name: str, shape: Sequence[int], itemsize: int) -> int:
    """The elements of a shape. Raises InputError where a dim is negative, or no memory could hold them."""
    if len(shape) > _MOST_DIMS:
        raise InputError(f"{name} has {len(shape)} dims, at most {_MOST_DIMS} are possible")
    count, extent = 1, itemsize
    for size in shape:
        if size < 0:
            raise InputError(f"{name} has shape {list(shape)}; dims of a request are 0 or more")
        count *= size
        extent *= max(size, 1)
        if extent > _MOST_BYTES:
            raise InputError(f"{name} has shape {list(shape)}, which is larger than any memory")
    return count

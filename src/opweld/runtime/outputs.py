"""Memory for the outputs of runs, reused when the caller has dropped them.

A large allocation returns fresh pages from the operating system, each of which costs a page fault on first write: half
as much as the kernels themselves, if outputs are as large as a key/value cache. So a session keeps a few buffers that
no array refers to any more. There are a few sizes for each power of two, so that an output slightly longer than the
last one, as a cache that is fed back, can reuse one too."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Sizes: TypeAlias = "Sequence[tuple[tuple[int, ...], np.dtype[Any]]]"

LARGE = 1 << 17
"""Bytes from which an allocator requests memory from the operating system."""

KEPT = 2
"""The number of runs whose buffers are kept: outputs of one are often read by the next, or dropped after it."""

_ALIGNMENT = 64


class _Buffers:
    """The free buffers of a size, `most` at most."""

    def __init__(self) -> None:
        self.most = 0
        self.free: list[Array] = []


class Outputs:
    """Makes the arrays of one session's outputs. Thread-safe.

    Buffers are kept for the sizes of the last run only."""

    def __init__(self) -> None:
        self._last: tuple[Sizes, tuple[int, ...], dict[int, _Buffers]] = ((), (), {})

    def make(self, wanted: Sizes) -> list[Array]:
        """Arrays of these shapes and dtypes, uninitialised. `wanted` is the same object for the same shapes."""
        known, sizes, free = self._last
        if known is not wanted:
            sizes = tuple(math.prod(shape) * dtype.itemsize for shape, dtype in wanted)
            rooms = [_room(size) for size in sizes if size >= LARGE]
            # Lent buffers refer to the object, so it is kept while it is useful.
            free = {room: free.get(room) or _Buffers() for room in rooms}
            for room, buffers in free.items():
                buffers.most = KEPT * rooms.count(room)
            self._last = wanted, sizes, free
        return [
            np.empty(shape, dtype)
            if size < LARGE
            else _lent(_room(size), free[_room(size)])[:size].view(dtype).reshape(shape)
            for (shape, dtype), size in zip(wanted, sizes, strict=True)
        ]


def _room(size: int) -> int:
    """The bytes of the buffer for a large output: at most an eighth more, a multiple of the alignment."""
    step = 1 << (size.bit_length() - 4)
    return -(-size // step) * step


def _lent(size: int, buffers: _Buffers) -> Array:
    """An array of bytes whose memory is freed when no array refers to it."""
    try:
        memory = buffers.free.pop()
    except IndexError:
        whole = np.empty(size + _ALIGNMENT, np.uint8)
        start = -whole.ctypes.data % _ALIGNMENT
        memory = whole[start : start + size]
    return np.asarray(_Loan(memory, buffers))


class _Loan:
    """The base of an array and all its views; deleted with the last of them."""

    __slots__ = ("__array_interface__", "_buffers", "_memory")

    def __init__(self, memory: Array, buffers: _Buffers) -> None:
        self._memory = memory
        self._buffers = buffers
        self.__array_interface__ = memory.__array_interface__

    def __del__(self) -> None:
        if len(self._buffers.free) < self._buffers.most:
            self._buffers.free.append(self._memory)

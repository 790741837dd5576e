"""Memory of the host that stays in place, through which arrays are copied all at once: a copy of its own takes
microseconds, and more from memory that may move.

What comes from the GPU is given out as it came, in memory that is used again when nobody refers to it any more: a copy
into fresh pages takes longer than the transfer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from opweld.runtime.cuda.device import Device
from opweld.runtime.cuda.memory import Pinned
from opweld.runtime.plan import Array

STAGED = 32 << 20
"""The most bytes that are copied so: larger arrays come as fast from where they are."""
KEPT = 3
"""Pieces of memory that are kept: outputs of a run are often read when the next one has run."""


class Staging:
    """Memory for what is fed, and for what is found."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._fed: Array | None = None
        self.free: dict[int, Array] = {}
        """Memory that nobody has, by its address: given back by whichever thread drops the last array of it."""

    def inbox(self, size: int) -> Array | None:
        """Memory for so many bytes to be copied to the GPU, the same at every call; None for more than is staged."""
        if not 0 < size <= STAGED:
            return None
        if self._fed is None or len(self._fed) < size:
            self._fed = self._new(size)
        return self._fed[:size]

    def outbox(self, size: int) -> Array | None:
        """Memory for so many bytes from the GPU, nobody else's as long as the array or a part of it is there; None for
        more than is staged."""
        if not 0 < size <= STAGED:
            return None
        for address, room in list(self.free.items()):
            if len(room) >= size and self.free.pop(address, None) is not None:
                return np.asarray(_Lent(room, size, self.free))
        return np.asarray(_Lent(self._new(size), size, self.free))

    def _new(self, size: int) -> Array:
        return np.asarray(Pinned(self._device, 1 << max(12, (size - 1).bit_length())))


class _Lent:
    """Memory that goes back when no array refers to it."""

    def __init__(self, room: Array, size: int, free: dict[int, Array]) -> None:
        self._room, self._size, self._free = room, size, free

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return {"shape": (self._size,), "typestr": "|u1", "data": (self._room.ctypes.data, False), "version": 3}

    def __del__(self) -> None:
        if len(self._free) < KEPT:
            self._free[self._room.ctypes.data] = self._room


def parts_of(memory: Array, offsets: Sequence[int], sizes: Sequence[int]) -> list[Array]:
    """The bytes of several arrays that lie at offsets in memory."""
    return [memory[at:][:size] for at, size in zip(offsets, sizes, strict=True)]

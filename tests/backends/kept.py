"""States of the interpreter: arrays of NumPy, and how much of them is in use."""

from __future__ import annotations

import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from opweld.errors import InputError, StateError
from opweld.runtime import dtypes
from opweld.runtime.opened import Opened
from opweld.runtime.plan import Array
from opweld.runtime.state import State


class Kept(State):
    """Values in arrays. What a run replaces is computed apart, so that none that fails has begun to overwrite it."""

    def __init__(self, opened: Opened, shapes: Sequence[tuple[int, ...]]) -> None:
        super().__init__(opened, shapes)
        kinds = [(shape, dtypes.numpy_dtype(info.dtype)) for shape, info in zip(self.shapes, self.infos, strict=True)]
        try:
            self._arrays = [np.zeros(shape, dtype) for shape, dtype in kinds]
        except (MemoryError, ValueError) as error:
            raise InputError(f"the states need more memory than there is: {error}") from None
        self._used = np.zeros(len(kinds), np.int64)
        self._taken = threading.Lock()

    @contextmanager
    def taken(self) -> Generator[list[Array]]:
        """For one run: what programs are fed of it, the memory of each value, and where any grows the lengths."""
        if not self._taken.acquire(blocking=False):
            raise StateError(f"the state of {self.names[0]!r} is in use by another run: a run needs a state of its own")
        try:
            grows = any(info.axis is not None for info in self.infos)
            yield [*self._arrays, *([self._used] if grows else [])]
        finally:
            self._taken.release()

    def become(self, made: Mapping[str, Array]) -> None:
        """Takes what a run made of the values, by output."""
        for position, info in enumerate(self.infos):
            after = made[info.output]
            self._arrays[position][tuple(map(slice, after.shape))] = after
            if info.axis is not None:
                self._used[position] = after.shape[info.axis]

    def reset(self) -> None:
        """See `State`."""
        with self.taken():
            self._used[:] = 0
            for array in self._arrays:
                array[...] = 0

    def _memory(self, position: int) -> Array:
        return self._arrays[position]

    def _length(self, position: int) -> int:
        return int(self._used[position])

    def _set_length(self, position: int, length: int) -> None:
        with self.taken():
            self._used[position] = length

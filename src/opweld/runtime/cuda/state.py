"""States of a model on a GPU: values in memory of its own that lives between runs. Imports NumPy only."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from opweld.errors import StateError
from opweld.runtime import dtypes
from opweld.runtime.opened import Opened
from opweld.runtime.plan import Array
from opweld.runtime.state import State


class KeptBytes(ABC):
    """Bytes that live between runs, zero at first."""

    @abstractmethod
    def zero(self) -> None:
        """Makes them zero."""
        ...

    @abstractmethod
    def view(self) -> Array:
        """All of them, uint8: themselves where the processor can write them, else a copy."""
        ...

    @abstractmethod
    def write(self, array: Array) -> None:
        """Makes them those of an array, uint8, of as many."""
        ...


class CudaState(State):
    """Values on a GPU, which its kernels write in place. What `memory` gives is a copy, unless kernels are
    interpreted."""

    def __init__(
        self, opened: Opened, shapes: Sequence[tuple[int, ...]], grows_by: str, keep: Callable[[int], KeptBytes]
    ) -> None:
        """`grows_by`: the input with the lengths of what grows, empty where nothing does; `keep`: takes memory of so
        many bytes. Raises ShortageError where there is not as much."""
        super().__init__(opened, shapes)
        self._dtypes = [dtypes.numpy_dtype(info.dtype) for info in self.infos]
        self.held = tuple(
            keep(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize)
            for shape, dtype in zip(self.shapes, self._dtypes, strict=True)
        )
        self._used, self._grows_by = np.zeros(len(self.infos), np.int64), grows_by
        self._taken = threading.Lock()
        self._lost = False

    @contextmanager
    def run(self) -> Generator[dict[str, Array]]:
        """Takes the state for a run, and gives what tells its sizes, by input: arrays of each shape, which nobody
        reads, and the lengths. Then comes `begin`, and `done` where it went well.

        Raises StateError where another run has it, or it is lost."""
        with self._alone():
            if self._lost:
                raise StateError(
                    f"a run that failed has overwritten a part of the state of {self.names[0]!r}: reset or load it"
                )
            empty = np.zeros((), np.uint8)
            fed: dict[str, Array] = {
                name: np.broadcast_to(empty, shape) for name, shape in zip(self.names, self.shapes, strict=True)
            }
            if self._grows_by:
                fed[self._grows_by] = self._used.copy()
            yield fed

    def begin(self) -> None:
        """Says within `run` that values are written: unless `done` follows, those that runs replace are lost."""
        self._lost = any(info.axis is None for info in self.infos)

    def done(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Says that a run went well, and the shapes of the values after it."""
        for position, info in enumerate(self.infos):
            if info.axis is not None:
                self._used[position] = shapes[info.name][info.axis]
        self._lost = False

    def bytes_of(self, name: str) -> KeptBytes:
        """The memory of a value."""
        return self.held[self._position(name)]

    def reset(self) -> None:
        """See `State`."""
        with self._alone():
            for held in self.held:
                held.zero()
            self._used[:] = 0
            self._lost = False

    @contextmanager
    def _alone(self) -> Generator[None]:
        if not self._taken.acquire(blocking=False):
            raise StateError(f"the state of {self.names[0]!r} is in use by another run: a run needs a state of its own")
        try:
            yield
        finally:
            self._taken.release()

    def _memory(self, position: int) -> Array:
        return self.held[position].view().view(self._dtypes[position]).reshape(self.shapes[position])

    def _write(self, position: int, array: Array) -> None:
        memory = self._memory(position)
        memory[tuple(map(slice, array.shape))] = array
        self.held[position].write(memory.reshape(-1).view(np.uint8))

    def _length(self, position: int) -> int:
        return int(self._used[position])

    def _set_length(self, position: int, length: int) -> None:
        with self._alone():
            self._used[position] = length

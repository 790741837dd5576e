"""Values that live between runs, in memory of their own: what `Session.new_state` makes and `Session.run` writes.

Here is what all backends' states have in common; where the values lie is the backend's. Imports NumPy only."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from opweld.errors import InputError
from opweld.interface import StateInfo, shape_text
from opweld.runtime import dtypes
from opweld.runtime.plan import Array

if TYPE_CHECKING:  # which opens artifacts that have states
    from opweld.runtime.opened import Opened

Capacity: TypeAlias = "int | Mapping[str, int] | None"
"""How long what grows may become: one number for all, or by name."""


class State(ABC):
    """What a model keeps from one run to the next. One run at a time may use it; others need a state of their own.

    A run that fails leaves what grows as it was; where it had begun to overwrite a value that runs replace, the state
    is lost until it is reset or loaded.

    Attributes:
        infos: its values, in the order of the model's inputs. shapes: of their memory, with capacities.
        opened: the artifact whose runs may use it.
    """

    def __init__(self, opened: Opened, shapes: Sequence[tuple[int, ...]]) -> None:
        """Zeros, and empty where it grows."""
        self.opened, self.infos, self.shapes = opened, opened.manifest.states, tuple(shapes)
        self._positions = {info.name: position for position, info in enumerate(self.infos)}

    # ------------------------------------------------------------------------------------------- what it holds

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the values, which are those of the inputs that they are."""
        return tuple(self._positions)

    @property
    def lengths(self) -> dict[str, int]:
        """How much of each value that grows is in use, along its axis."""
        return {info.name: self._length(p) for p, info in enumerate(self.infos) if info.axis is not None}

    @property
    def in_use(self) -> str:
        """How much of each capacity, in words; empty where nothing grows."""
        used = ((p, info.name, info.axis) for p, info in enumerate(self.infos) if info.axis is not None)
        return ", ".join(f"{name} {self._length(p)} of {self.shapes[p][axis]}" for p, name, axis in used)

    @property
    def plans(self) -> int:
        """How many plans runs with this state needed: one for the shapes of what is fed, whatever the lengths. 0 of a
        backend that makes none."""
        return 0

    def memory(self, name: str) -> Array:
        """All memory of a value, with its capacity; not a copy, unless it lies on a GPU. Raises InputError for an
        unknown name."""
        return self._memory(self._position(name))

    def __getitem__(self, name: str) -> Array:
        """What a value is now, a part of its memory and not a copy, unless it lies on a GPU: the next run changes
        it."""
        position = self._position(name)
        axis, memory = self.infos[position].axis, self._memory(position)
        return memory if axis is None else memory[(*[slice(None)] * axis, slice(self._length(position)))]

    def arrays(self) -> dict[str, Array]:
        """What all values are now, copied: `load` takes it."""
        return {name: self[name].copy() for name in self.names}

    # ------------------------------------------------------------------------------------------------ changing it

    @abstractmethod
    def reset(self) -> None:
        """Back to zeros, and to nothing where it grows. Raises StateError while a run uses it."""
        ...

    def load(self, arrays: Mapping[str, Any]) -> None:
        """Makes the values what the arrays say, by name; of those that are not named, what they are initially.

        Raises InputError for an array of another dtype or shape, or longer than the capacity; StateError while a run
        uses it."""
        checked = {self._position(name): self._fitting(name, array) for name, array in arrays.items()}
        self.reset()
        for position, array in checked.items():
            axis = self.infos[position].axis
            self._write(position, array)
            if axis is not None:
                self._set_length(position, array.shape[axis])

    def copy(self, capacity: Capacity = None) -> State:
        """Another state with the same values; `capacity`: as for `Session.new_state`, that of this one where None."""
        lengths = lengths_of(self.infos, capacity) if capacity is not None else {}
        shapes = [
            shape if info.axis is None else _with(shape, info.axis, lengths.get(info.name, shape[info.axis]))
            for info, shape in zip(self.infos, self.shapes, strict=True)
        ]
        made = self.opened.new_state(shapes)
        made.load({name: self[name] for name in self.names})
        return made

    def __repr__(self) -> str:
        told = (
            f"{info.name} {info.dtype}{list(shape)}"
            + ("" if info.axis is None else f" with {self.lengths[info.name]} in use")
            for info, shape in zip(self.infos, self.shapes, strict=True)
        )
        return f"<opweld State {', '.join(told)}>"

    # ---------------------------------------------------------------------------------- where a backend has its values

    @abstractmethod
    def _memory(self, position: int) -> Array:
        """All memory of a value, of its shape in `shapes`: an array that writes to it, or a copy of what lies in memory
        of another device."""
        ...

    def _write(self, position: int, array: Array) -> None:
        """Makes the beginning of a value, along each axis, an array that fits."""
        self._memory(position)[tuple(map(slice, array.shape))] = array

    @abstractmethod
    def _length(self, position: int) -> int:
        """How much is in use of a value that grows."""
        ...

    @abstractmethod
    def _set_length(self, position: int, length: int) -> None:
        """Says how much is in use. Raises StateError while a run uses it."""
        ...

    def _fitting(self, name: str, value: Any) -> Array:
        position = self._position(name)
        info, shape, array = self.infos[position], self.shapes[position], np.asarray(value)
        fits = array.ndim == len(shape) and all(
            size == own or (axis == info.axis and size < own)
            for axis, (size, own) in enumerate(zip(array.shape, shape, strict=True))
        )
        if not fits or array.dtype != dtypes.numpy_dtype(info.dtype):
            most = "" if info.axis is None else f" (axis {info.axis} may be shorter)"
            raise InputError(
                f"state {name!r}: expected {info.dtype} {list(shape)}{most}, got {array.dtype} {list(array.shape)}"
            )
        return array

    def _position(self, name: str) -> int:
        try:
            return self._positions[name]
        except KeyError:
            known = ", ".join(map(repr, self.names))
            raise InputError(f"{name!r} is no state of the model; its states are {known}") from None


def shapes_of(infos: Sequence[StateInfo], capacity: Capacity, dims: Mapping[str, int] | None) -> list[tuple[int, ...]]:
    """The shapes that memory of these values has, capacities included; see `Session.new_state`."""
    lengths = lengths_of(infos, capacity)
    known = dict(dims or {})
    named = {dim for info in infos for axis, dim in enumerate(info.shape) if axis != info.axis and isinstance(dim, str)}
    unknown = sorted(set(known) - named)
    if unknown:
        raise InputError(
            f"dims: no state has a dim {unknown[0]!r}; their dims are {', '.join(sorted(named)) or 'fixed'}"
        )
    return [_shape(info, lengths, known) for info in infos]


def lengths_of(infos: Sequence[StateInfo], capacity: Capacity) -> dict[str, int]:
    """The capacity of each value that grows. Raises InputError for one of which none is said."""
    growing = [info.name for info in infos if info.axis is not None]
    if isinstance(capacity, Mapping):
        unknown = next((name for name in capacity if name not in growing), None)
        if unknown is not None:
            raise InputError(f"capacity: {unknown!r} is no state that grows; those are {', '.join(growing) or 'none'}")
        found = dict(capacity)
    else:
        found = {} if capacity is None else dict.fromkeys(growing, capacity)
    for name in growing:
        if found.get(name, 0) < 1:
            raise InputError(f"state {name!r} grows: say how long it may become, as new_state(capacity=4096)")
    return found


def _shape(info: StateInfo, lengths: Mapping[str, int], dims: Mapping[str, int]) -> tuple[int, ...]:
    shape: list[int] = []
    for axis, dim in enumerate(info.shape):
        size = lengths[info.name] if axis == info.axis else dims.get(dim, -1) if isinstance(dim, str) else dim
        if size < 0:
            raise InputError(
                f"state {info.name!r} has the shape {shape_text(info.shape)}: say the size of axis {axis}, as "
                f"new_state(dims={{{dim!r}: 1}})"
            )
        shape.append(size)
    return tuple(shape)


def _with(shape: tuple[int, ...], axis: int, size: int) -> tuple[int, ...]:
    return (*shape[:axis], size, *shape[axis + 1 :])

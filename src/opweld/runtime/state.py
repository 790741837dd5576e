"""Values that live between runs, in memory of their own: what `Session.new_state` makes and `Session.run` writes."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from opweld.errors import InputError, StateError
from opweld.interface import StateInfo, shape_text
from opweld.runtime import dtypes
from opweld.runtime.bind import Module, runtime_error
from opweld.runtime.library import MESSAGE_BYTES, OK, STATE_BUSY, STATE_LOST, Tensor, address
from opweld.runtime.plan import Array

Capacity: TypeAlias = "int | Mapping[str, int] | None"
"""How long what grows may become: one number for all, or by name."""

Kinds: TypeAlias = "tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]"
"""Shape and dtype of each output."""


class _Memory:
    """What the runtime made, freed when neither a state nor an array of its values is left."""

    def __init__(self, module: Module, handle: int) -> None:
        # The module must outlive the state: the finalizer refers to it.
        weakref.finalize(self, _free, module, handle).atexit = False


class State:
    """What a model keeps from one run to the next. One run at a time may use it; others need a state of their own.

    A run that fails leaves what grows as it was; where it had begun to overwrite a value that runs replace, the state
    is lost until it is reset or loaded.

    Attributes:
        infos: its values, in the order of the model's inputs.
    """

    def __init__(self, module: Module, infos: Sequence[StateInfo], shapes: Sequence[tuple[int, ...]]) -> None:
        """Zeros, and empty where it grows; `shapes` with capacities. Raises InputError where there is no memory."""
        self.infos = tuple(infos)
        self._module = module
        self._shapes = tuple(shapes)
        self._message = ctypes.create_string_buffer(MESSAGE_BYTES)
        tensors = (Tensor * len(self.infos))()
        for tensor, shape in zip(tensors, shapes, strict=True):
            tensor.rank = len(shape)
            tensor.shape[: len(shape)] = shape
        handle = ctypes.c_void_p()
        library = module.library
        status = library.opw_state_make(module.handle, tensors, ctypes.byref(handle), self._message, MESSAGE_BYTES)
        if status != OK or handle.value is None:
            raise runtime_error(status, self._message.value)
        self.handle: int = handle.value
        self._owner = _Memory(module, handle.value)
        self._positions = {info.name: position for position, info in enumerate(self.infos)}
        self._memory = tuple(map(self._whole, range(len(self.infos))))

    def _whole(self, position: int) -> Array:
        tensor, dtype = Tensor(), dtypes.numpy_dtype(self.infos[position].dtype)
        self._module.library.opw_state_tensor(self.handle, position, ctypes.byref(tensor))
        shape = self._shapes[position]
        count = int(np.prod(shape, dtype=np.int64))
        memory: Any = (ctypes.c_char * max(1, count * dtype.itemsize)).from_address(tensor.data)
        memory.owner = self._owner  # as long as there is an array, there is its memory
        return np.frombuffer(memory, dtype, count).reshape(shape)

    # ------------------------------------------------------------------------------------------- what it holds

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the values, which are those of the inputs that they are."""
        return tuple(self._positions)

    @property
    def lengths(self) -> dict[str, int]:
        """How much of each value that grows is in use, along its axis."""
        length = self._module.library.opw_state_length
        return {info.name: length(self.handle, p) for p, info in enumerate(self.infos) if info.axis is not None}

    @property
    def plans(self) -> int:
        """How many plans runs with this state needed: one for the shapes of what is fed, whatever the lengths."""
        return self._module.library.opw_state_plans(self.handle)

    def memory(self, name: str) -> Array:
        """All memory of a value, with its capacity; not a copy. Raises InputError for an unknown name."""
        return self._memory[self._position(name)]

    def __getitem__(self, name: str) -> Array:
        """What a value is now, a part of its memory and not a copy: the next run changes it."""
        position = self._position(name)
        axis, memory = self.infos[position].axis, self._memory[position]
        if axis is None:
            return memory
        used = self._module.library.opw_state_length(self.handle, position)
        return memory[(*[slice(None)] * axis, slice(used))]

    def arrays(self) -> dict[str, Array]:
        """What all values are now, copied: `load` takes it."""
        return {name: self[name].copy() for name in self.names}

    # ------------------------------------------------------------------------------------------------ changing it

    def reset(self) -> None:
        """Back to zeros, and to nothing where it grows. Raises StateError while a run uses it."""
        self._check(self._module.library.opw_state_reset(self.handle, self._message, MESSAGE_BYTES))

    def load(self, arrays: Mapping[str, Any]) -> None:
        """Makes the values what the arrays say, by name; of those that are not named, what they are initially.

        Raises InputError for an array of another dtype or shape, or longer than the capacity; StateError while a run
        uses it."""
        checked = {self._position(name): self._fitting(name, array) for name, array in arrays.items()}
        self.reset()
        for position, array in checked.items():
            axis, memory = self.infos[position].axis, self._memory[position]
            memory[tuple(map(slice, array.shape))] = array
            if axis is not None:
                length = array.shape[axis]
                library = self._module.library
                self._check(library.opw_state_set_length(self.handle, position, length, self._message, MESSAGE_BYTES))

    def copy(self, capacity: Capacity = None) -> State:
        """Another state with the same values; `capacity`: as for `Session.new_state`, that of this one where None."""
        lengths = lengths_of(self.infos, capacity) if capacity is not None else {}
        shapes = [
            shape if info.axis is None else _with(shape, info.axis, lengths.get(info.name, shape[info.axis]))
            for info, shape in zip(self.infos, self._shapes, strict=True)
        ]
        made = State(self._module, self.infos, shapes)
        made.load({name: self[name] for name in self.names})
        return made

    def _fitting(self, name: str, value: Any) -> Array:
        position = self._position(name)
        info, shape, array = self.infos[position], self._shapes[position], np.asarray(value)
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

    def _check(self, status: int) -> None:
        if status != OK:
            raise state_error(status, self._message.value)

    # ------------------------------------------------------------------------------------------------------ runs

    def begin(self, module: Module, arrays: list[Array], threads: int, outputs: int) -> Kinds:
        """Takes the state for a run with these arrays; returns what its outputs are. Then comes `run` or `cancel`.

        Raises StateError where another run has it or it is lost, AssumptionError and InputError as binding does."""
        if module is not self._module:
            raise InputError("the state was made by another session; make one with this session's new_state()")
        library, plan = module.library, ctypes.c_void_p()
        message = ctypes.create_string_buffer(MESSAGE_BYTES)
        status = library.opw_state_begin(
            self.handle, module.tensors(arrays), threads, ctypes.byref(plan), message, MESSAGE_BYTES
        )
        if status != OK or plan.value is None:
            raise state_error(status, message.value)
        return module.outputs_of(plan.value, outputs)

    def run(self, arrays: list[Array], outputs: list[Array]) -> None:
        """Runs what was begun, and gives the state back."""
        message = ctypes.create_string_buffer(MESSAGE_BYTES)
        read = (ctypes.c_void_p * len(arrays))(*map(address, arrays))
        written = (ctypes.c_void_p * len(outputs))(*map(address, outputs))
        status = self._module.library.opw_state_run(self.handle, read, written, message, MESSAGE_BYTES)
        if status != OK:
            raise state_error(status, message.value)

    def cancel(self) -> None:
        """Gives the state back without a run."""
        self._module.library.opw_state_cancel(self.handle)

    def __repr__(self) -> str:
        told = (
            f"{info.name} {info.dtype}{list(shape)}"
            + ("" if info.axis is None else f" with {self.lengths[info.name]} in use")
            for info, shape in zip(self.infos, self._shapes, strict=True)
        )
        return f"<opweld State {', '.join(told)}>"


def new_state(module: Module, infos: Sequence[StateInfo], capacity: Capacity, dims: Mapping[str, int] | None) -> State:
    """See `Session.new_state`."""
    if not infos:
        raise InputError("the model has no states; compile it with states={'past': 'present'} for it to have some")
    lengths = lengths_of(infos, capacity)
    known = dict(dims or {})
    named = {dim for info in infos for axis, dim in enumerate(info.shape) if axis != info.axis and isinstance(dim, str)}
    unknown = sorted(set(known) - named)
    if unknown:
        raise InputError(
            f"dims: no state has a dim {unknown[0]!r}; their dims are {', '.join(sorted(named)) or 'fixed'}"
        )
    return State(module, infos, [_shape(info, lengths, known) for info in infos])


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


def state_error(status: int, message: bytes) -> Exception:
    """The error for a status other than OK of a call about a state."""
    if status in (STATE_BUSY, STATE_LOST):
        return StateError(message.decode(errors="replace"))
    return runtime_error(status, message)


def _free(module: Module, handle: int) -> None:
    module.library.opw_state_free(handle)

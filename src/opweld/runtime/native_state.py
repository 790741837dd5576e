"""States of the C runtime: an `opw_state`, and NumPy's view of its memory."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from opweld.errors import StateError, UnsupportedError
from opweld.runtime import dtypes
from opweld.runtime.bind import Module, runtime_error
from opweld.runtime.library import MESSAGE_BYTES, OK, STATE_BUSY, STATE_LOST, Tensor, address
from opweld.runtime.plan import Array, PlanDescription
from opweld.runtime.profile import TIMING_FIELDS, Clocked
from opweld.runtime.state import State

if TYPE_CHECKING:  # which makes states
    from opweld.runtime.native import Native

Kinds: TypeAlias = "tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]"
"""Shape and dtype of each output."""


class _Handle:
    """What the runtime made, freed when neither a state nor an array of its values is left."""

    def __init__(self, module: Module, handle: int) -> None:
        # The module must outlive the state: the finalizer refers to it.
        weakref.finalize(self, _free, module, handle).atexit = False


class NativeState(State):
    """Values in memory of the C runtime, which compiled code writes in place."""

    def __init__(self, opened: Native, module: Module, shapes: Sequence[tuple[int, ...]]) -> None:
        """See `State`. Raises InputError where there is no memory."""
        super().__init__(opened, shapes)
        self._module = module
        self._message = ctypes.create_string_buffer(MESSAGE_BYTES)
        tensors = (Tensor * len(self.infos))()
        for tensor, shape in zip(tensors, self.shapes, strict=True):
            tensor.rank = len(shape)
            tensor.shape[: len(shape)] = shape
        handle = ctypes.c_void_p()
        library = module.library
        status = library.opw_state_make(module.handle, tensors, ctypes.byref(handle), self._message, MESSAGE_BYTES)
        if status != OK or handle.value is None:
            raise runtime_error(status, self._message.value)
        self.handle: int = handle.value
        self._owner = _Handle(module, handle.value)
        self._views = tuple(map(self._view, range(len(self.infos))))

    def _view(self, position: int) -> Array:
        tensor, dtype = Tensor(), dtypes.numpy_dtype(self.infos[position].dtype)
        self._module.library.opw_state_tensor(self.handle, position, ctypes.byref(tensor))
        shape = self.shapes[position]
        count = int(np.prod(shape, dtype=np.int64))
        memory: Any = (ctypes.c_char * max(1, count * dtype.itemsize)).from_address(tensor.data)
        memory.owner = self._owner  # as long as there is an array, there is its memory
        return np.frombuffer(memory, dtype, count).reshape(shape)

    @property
    def plans(self) -> int:
        """See `State`."""
        return self._module.library.opw_state_plans(self.handle)

    def reset(self) -> None:
        """See `State`."""
        self._check(self._module.library.opw_state_reset(self.handle, self._message, MESSAGE_BYTES))

    def _memory(self, position: int) -> Array:
        return self._views[position]

    def _length(self, position: int) -> int:
        return self._module.library.opw_state_length(self.handle, position)

    def _set_length(self, position: int, length: int) -> None:
        library = self._module.library
        self._check(library.opw_state_set_length(self.handle, position, length, self._message, MESSAGE_BYTES))

    def _check(self, status: int) -> None:
        if status != OK:
            raise _error(status, self._message.value)

    # ------------------------------------------------------------------------------------------------------ runs

    def begin(self, arrays: list[Array], threads: int, outputs: int) -> tuple[int, Kinds]:
        """Takes the state for a run with these arrays; returns its opw_plan, valid until the run is over, and what its
        outputs are. Then comes `run`, `clocked` or `cancel`.

        Raises StateError where another run has it or it is lost, AssumptionError and InputError as binding does."""
        module, plan = self._module, ctypes.c_void_p()
        message = ctypes.create_string_buffer(MESSAGE_BYTES)
        status = module.library.opw_state_begin(
            self.handle, module.tensors(arrays), threads, ctypes.byref(plan), message, MESSAGE_BYTES
        )
        if status != OK or plan.value is None:
            raise _error(status, message.value)
        return plan.value, module.outputs_of(plan.value, outputs)

    def run(self, arrays: list[Array], outputs: list[Array]) -> None:
        """Runs what was begun, and gives the state back."""
        self._run(self._module.library.opw_state_run, arrays, outputs)

    def clocked(self, plan: PlanDescription, arrays: list[Array], outputs: list[Array]) -> Clocked:
        """Like `run`, with the clocks of the steps of its plan."""
        run = getattr(self._module.library, "opw_state_run_timed", None)
        if run is None:
            self.cancel()
            raise UnsupportedError("the artifact's runtime does not time runs with a state: compile the model again")
        timings, wall = np.empty((plan.threads, len(plan.steps), TIMING_FIELDS), np.int64), ctypes.c_int64()
        self._run(run, arrays, outputs, address(timings), ctypes.byref(wall))
        return Clocked(wall.value, timings)

    def _run(self, run: Callable[..., int], arrays: list[Array], outputs: list[Array], *clocks: Any) -> None:
        message = ctypes.create_string_buffer(MESSAGE_BYTES)
        read = (ctypes.c_void_p * len(arrays))(*map(address, arrays))
        written = (ctypes.c_void_p * len(outputs))(*map(address, outputs))
        status = run(self.handle, read, written, *clocks, message, MESSAGE_BYTES)
        if status != OK:
            raise _error(status, message.value)

    def cancel(self) -> None:
        """Gives the state back without a run."""
        self._module.library.opw_state_cancel(self.handle)


def _error(status: int, message: bytes) -> Exception:
    """The error for a status other than OK of a call about a state."""
    if status in (STATE_BUSY, STATE_LOST):
        return StateError(message.decode(errors="replace"))
    return runtime_error(status, message)


def _free(module: Module, handle: int) -> None:
    module.library.opw_state_free(handle)

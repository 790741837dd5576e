"""States of the C runtime: an `opw_state`, and NumPy's view of its memory."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from sys import getrefcount
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from opweld.errors import AssumptionError, StateError, UnsupportedError
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

Make: TypeAlias = "Callable[[Kinds], list[Array]]"
"""Returns memory for outputs."""


class _Handle:
    """What the runtime made, freed when neither a state nor an array of its values is left."""

    def __init__(self, module: Module, handle: int) -> None:
        # The module must outlive the state: the finalizer refers to it.
        weakref.finalize(self, _free, module, handle).atexit = False


class _Call:
    """What a run is called with; a later run whose inputs have the same shapes has the same but for addresses. Between
    two steps of a language model its weights have passed through the caches: what a run does in Python it does at the
    speed of memory.

    Attributes:
        shapes: of the inputs. tensors: the inputs. read, written: addresses of inputs, and of outputs.
        kinds: what outputs are; None where they depend on how long the state is.
    """

    __slots__ = ("kinds", "message", "plan", "read", "shapes", "tensors", "written")

    def __init__(self, module: Module, arrays: list[Array], shapes: tuple[tuple[int, ...], ...]) -> None:
        self.shapes = shapes
        self.tensors = module.tensors(arrays)
        self.read = (ctypes.c_void_p * len(arrays))(*map(address, arrays))
        self.written = (ctypes.c_void_p * module.n_outputs)()
        self.message = ctypes.create_string_buffer(MESSAGE_BYTES)
        self.plan = ctypes.c_void_p()
        self.kinds: Kinds | None = None

    def feed(self, arrays: list[Array]) -> None:
        """Takes other arrays of the same shapes."""
        read = self.read
        for i, (tensor, array) in enumerate(zip(self.tensors, arrays, strict=True)):
            tensor.data = read[i] = address(array)


class NativeState(State):
    """Values in memory of the C runtime, which compiled code writes in place."""

    def __init__(self, opened: Native, module: Module, shapes: Sequence[tuple[int, ...]]) -> None:
        """See `State`. Raises InputError where there is no memory."""
        super().__init__(opened, shapes)
        self._opened, self._module = opened, module
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
        self._grows = any(info.axis is not None for info in self.infos)
        # That of the last run, while no run has begun; and that of the run that has.
        self._spare: list[_Call] = []
        self._begun: _Call | None = None
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

    def begin(self, arrays: list[Array], threads: int) -> tuple[int, Kinds]:
        """Takes the state for a run with these arrays; returns its opw_plan, valid until the run is over, and what its
        outputs are. Then comes `run`, `clocked` or `cancel`.

        Raises StateError where another run has it or it is lost, AssumptionError and InputError as binding does."""
        shapes = _shapes(arrays)
        try:
            call = self._spare.pop()
        except IndexError:
            call = None
        if call is None or call.shapes != shapes:
            call = _Call(self._module, arrays, shapes)
        else:
            call.feed(arrays)
        plan, kinds = self.begin_call(call, threads)
        self._begun = call
        return plan, kinds

    def begin_call(self, call: _Call, threads: int) -> tuple[int, Kinds]:
        """Like `begin`, with what a run is called with; then comes `run_call` or `cancel`."""
        module = self._module
        status = module.library.opw_state_begin(
            self.handle, call.tensors, threads, ctypes.byref(call.plan), call.message, MESSAGE_BYTES
        )
        plan = call.plan.value
        if status != OK or plan is None:
            raise _error(status, call.message.value)
        kinds = call.kinds or self._opened.same_kinds(module.outputs_of(plan, module.n_outputs))
        if not self._grows:
            call.kinds = kinds
        return plan, kinds

    def bind(self, arrays: list[Array], threads: int, make: Make) -> BoundRun:
        """Runs with these arrays. make: memory for outputs."""
        return BoundRun(self, _Call(self._module, arrays, _shapes(arrays)), arrays, threads, make)

    def run(self, outputs: list[Array]) -> None:
        """Runs what was begun, and gives the state back."""
        self._run(self._module.library.opw_state_run, outputs)

    def clocked(self, plan: PlanDescription, outputs: list[Array]) -> Clocked:
        """Like `run`, with the clocks of the steps of its plan."""
        run = getattr(self._module.library, "opw_state_run_timed", None)
        if run is None:
            self.cancel()
            raise UnsupportedError("the artifact's runtime does not time runs with a state: compile the model again")
        timings, wall = np.empty((plan.threads, len(plan.steps), TIMING_FIELDS), np.int64), ctypes.c_int64()
        self._run(run, outputs, address(timings), ctypes.byref(wall))
        return Clocked(wall.value, timings)

    def _run(self, run: Callable[..., int], outputs: list[Array], *clocks: Any) -> None:
        call, self._begun = self._begun, None
        assert call is not None, "a run that has begun"
        for i, array in enumerate(outputs):
            call.written[i] = address(array)
        self.run_call(call, run, *clocks)
        self._spare[:] = (call,)

    def run_call(self, call: _Call, run: Callable[..., int] | None = None, *clocks: Any) -> None:
        """Runs what was begun with this, and gives the state back. run: the runtime's function, and more arguments."""
        run = run or self._module.library.opw_state_run
        status = run(self.handle, call.read, call.written, *clocks, call.message, MESSAGE_BYTES)
        if status != OK:
            raise _error(status, call.message.value)

    def cancel(self) -> None:
        """Gives the state back without a run."""
        self._begun = None
        self._module.library.opw_state_cancel(self.handle)


class BoundRun:
    """A run with a state that is repeated, see `Session.bind`: it is called with what was made once."""

    def __init__(self, state: NativeState, call: _Call, arrays: list[Array], threads: int, make: Make) -> None:
        self._state, self._call, self._arrays, self._threads, self._make = state, call, arrays, threads, make
        self._kinds: Kinds | None = None

    def __call__(self) -> list[Array]:
        """The outputs."""
        state, call = self._state, self._call
        try:
            _, kinds = state.begin_call(call, self._threads)
        except AssumptionError as error:
            state.opened.check_shapes(self._arrays)
            raise state.opened.explained(error, self._arrays, state) from None
        if kinds is not self._kinds or [getrefcount(owner) for owner in self._owners] != self._alone:
            try:
                self._take(self._make(kinds))
            except BaseException:
                state.cancel()
                raise
            self._kinds = kinds
        state.run_call(call)
        return [array[...] for array in self._outputs]

    def _take(self, outputs: list[Array]) -> None:
        """Has runs write to these arrays. Callers get views, each of which refers to the owner of its memory."""
        self._outputs = outputs
        self._owners = [array if array.base is None else array.base for array in outputs]
        self._alone = [getrefcount(owner) for owner in self._owners]
        self._call.written[:] = [address(array) for array in outputs]


def _shapes(arrays: list[Array]) -> tuple[tuple[int, ...], ...]:
    return tuple([array.shape for array in arrays])


def _error(status: int, message: bytes) -> Exception:
    """The error for a status other than OK of a call about a state."""
    if status in (STATE_BUSY, STATE_LOST):
        return StateError(message.decode(errors="replace"))
    return runtime_error(status, message)


def _free(module: Module, handle: int) -> None:
    module.library.opw_state_free(handle)

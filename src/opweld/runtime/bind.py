"""An open module and its cache of plans by input shapes."""

from __future__ import annotations

import ctypes
import threading
import weakref
from collections import OrderedDict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from opweld.errors import ArtifactError, AssumptionError, InputError, OpweldError, RunError
from opweld.runtime import dtypes
from opweld.runtime.library import (
    INVALID_INPUT,
    MESSAGE_BYTES,
    NO_VARIANT,
    OK,
    TOO_LARGE,
    Tensor,
    address,
    load,
)
from opweld.runtime.plan import Array, PlanDescription, Step

PLAN_CAPACITY: Final = 256
"""The capacity of a module's cache of plans (least recently used)."""


def runtime_error(status: int, message: bytes) -> OpweldError:
    """The error for a status other than OK."""
    text = message.decode(errors="replace")
    if status == NO_VARIANT:
        return AssumptionError(text)
    if status in (INVALID_INPUT, TOO_LARGE):
        return InputError(text)
    return RunError(text)


@dataclass(frozen=True, eq=False)
class Plan:
    """A plan for one set of input shapes. Valid only while its module is open.

    Attributes:
        handle: the opw_plan. outputs: shape and dtype of each output.
        threads: the most that a phase uses. steps: the number of kernels.
    """

    handle: int
    outputs: tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]
    threads: int
    steps: int


class Module:
    """An artifact folder, opened by the C runtime, and its plans. Thread-safe. Closed when nothing refers to it."""

    def __init__(self, folder: Path, runtime: Path) -> None:
        """Raises ArtifactError when the folder's module does not load, or not on this machine."""
        library = load(runtime)
        message = ctypes.create_string_buffer(MESSAGE_BYTES)
        handle = library.opw_open(bytes(folder.absolute()), message, MESSAGE_BYTES)
        if not handle:
            raise ArtifactError(message.value.decode(errors="replace"))
        self.library = library
        self.handle: int = handle
        # At exit, threads of the pool may still compute; the operating system frees the memory.
        weakref.finalize(self, library.opw_close, handle).atexit = False
        inputs = range(library.opw_input_count(handle))
        self.input_dtypes: tuple[int, ...] = tuple(library.opw_input_dtype(handle, i) for i in inputs)
        self.input_ranks: tuple[int, ...] = tuple(library.opw_input_rank(handle, i) for i in inputs)
        self.by_value = tuple(i for i in inputs if library.opw_input_by_value(handle, i))
        self.n_outputs: int = library.opw_output_count(handle)
        self.n_segments: int = library.opw_segments(handle)
        self._plans: OrderedDict[Any, Plan] = OrderedDict()
        self._last: tuple[Any, Plan] | None = None
        self._lock = threading.Lock()

    def find(self, key: Any) -> Plan | None:
        """The cached plan of `key`, or None."""
        last = self._last
        if last is not None and last[0] == key:  # Most callers feed the same shapes again; no lock, half a microsecond.
            return last[1]
        with self._lock:
            plan = self._plans.get(key)
            if plan is not None:
                self._plans.move_to_end(key)
                self._last = (key, plan)
            return plan

    def make(self, key: Any, arrays: list[Array], threads: int) -> Plan:
        """Makes a plan and caches it under `key`.

        Args:
            key: of the shapes of `arrays`, and the bytes of by-value inputs.
            arrays: one for each input, of its dtype, C-contiguous.
            threads: maximum, 0 for all available processors; the same in all calls.

        Raises AssumptionError when no variant fits, InputError when a rank is wrong or the plan needs too much memory.
        """
        plan = self._bind(arrays, threads)
        with self._lock:
            self._plans[key] = plan
            while len(self._plans) > PLAN_CAPACITY:
                self._plans.popitem(last=False)
        return plan

    def fits(self, arrays: list[Array], threads: int) -> bool:
        """Whether some variant takes these shapes; only by-value arrays are read."""
        try:
            self._bind(arrays, threads)
        except InputError:
            return False
        return True

    def call(self, arrays: list[Array], threads: int, runner: Any = None) -> list[Array]:
        """Computes the outputs of a program with dynamic control flow, into new arrays; `runner`: an opw_runner that
        runs each segment.

        Raises AssumptionError when no variant of a segment fits, InputError, and OpweldError naming the node when a
        kernel meets a bad index.
        """
        handle = ctypes.c_void_p()
        message = ctypes.create_string_buffer(MESSAGE_BYTES)
        tensors = self.tensors(arrays)
        made, library = ctypes.byref(handle), self.library
        if runner is None:
            status = library.opw_call(self.handle, tensors, threads, made, message, MESSAGE_BYTES)
        else:
            status = library.opw_call_with(self.handle, tensors, threads, runner, None, made, message, MESSAGE_BYTES)
        if status != OK or handle.value is None:
            raise runtime_error(status, message.value)
        try:
            return [self._copied(handle, i) for i in range(self.n_outputs)]
        finally:
            self.library.opw_result_free(handle)

    def _copied(self, result: ctypes.c_void_p, number: int) -> Array:
        tensor = Tensor()
        self.library.opw_result_output(result, number, ctypes.byref(tensor))
        shape, dtype = tuple(tensor.shape[: tensor.rank]), dtypes.numpy_dtype(dtypes.NAMES[tensor.dtype])
        array = np.empty(shape, dtype)
        if array.nbytes:
            ctypes.memmove(address(array), tensor.data, array.nbytes)
        return array

    def tensors(self, arrays: list[Array]) -> ctypes.Array[Tensor]:
        """The arrays as opw_tensor: one for each input, of its dtype, C-contiguous."""
        tensors = (Tensor * len(arrays))()
        for tensor, array, dtype in zip(tensors, arrays, self.input_dtypes, strict=True):
            tensor.data = address(array)
            tensor.dtype = dtype
            tensor.rank = array.ndim
            tensor.shape[: array.ndim] = array.shape
        return tensors

    def _bind(self, arrays: list[Array], threads: int) -> Plan:
        tensors = self.tensors(arrays)
        handle = ctypes.c_void_p()
        message = ctypes.create_string_buffer(MESSAGE_BYTES)
        status = self.library.opw_bind(self.handle, tensors, threads, ctypes.byref(handle), message, MESSAGE_BYTES)
        if status != OK or handle.value is None:
            raise runtime_error(status, message.value)
        outputs = self.outputs_of(handle.value, self.n_outputs)
        plan = Plan(handle.value, outputs, self.library.opw_plan_threads(handle), self.library.opw_plan_steps(handle))
        weakref.finalize(plan, self.library.opw_plan_release, handle.value).atexit = False
        return plan

    def outputs_of(self, plan: int, count: int) -> tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]:
        """Shape and dtype of the outputs of an opw_plan."""
        outputs: list[tuple[tuple[int, ...], np.dtype[Any]]] = []
        tensor = Tensor()
        for i in range(count):
            self.library.opw_plan_output(plan, i, ctypes.byref(tensor))
            outputs.append((tuple(tensor.shape[: tensor.rank]), dtypes.numpy_dtype(dtypes.NAMES[tensor.dtype])))
        return tuple(outputs)

    def describe(self, plan: Plan) -> PlanDescription:
        """The description of a plan of this module."""
        return describe(self.library, plan.handle, plan.outputs)


def describe(
    library: ctypes.CDLL, handle: int, outputs: tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]
) -> PlanDescription:
    """The description of an opw_plan with these outputs."""
    steps = tuple(
        Step(
            library.opw_plan_step_name(handle, i).decode(errors="replace"),
            library.opw_plan_step_origin(handle, i).decode(errors="replace"),
            library.opw_plan_step_phase(handle, i),
            library.opw_plan_step_threads(handle, i),
            library.opw_plan_step_bytes(handle, i),
            library.opw_plan_step_flops(handle, i),
            library.opw_plan_step_work(handle, i),
        )
        for i in range(library.opw_plan_steps(handle))
    )
    return PlanDescription(
        outputs=outputs,
        variant=library.opw_plan_variant_name(handle).decode(errors="replace"),
        arena=library.opw_plan_arena(handle),
        total=library.opw_plan_sum(handle),
        live=library.opw_plan_live(handle),
        scratch=library.opw_plan_scratch(handle),
        threads=library.opw_plan_threads(handle),
        steps=steps,
    )

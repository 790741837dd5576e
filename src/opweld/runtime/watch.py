"""Watched runs: after each phase, a callback gets the memory of its steps. Imports NumPy only."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from opweld.errors import ArtifactError
from opweld.runtime.bind import Module, Plan, runtime_error
from opweld.runtime.library import MESSAGE_BYTES, OK, address
from opweld.runtime.plan import Array, Seen

_WATCH: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))


def run_watched(module: Module, plan: Plan, arrays: Sequence[Array], seen: Seen) -> list[Array]:
    """The outputs of a plan for its inputs, computed one phase after the other on this thread.

    Raises ArtifactError for an artifact whose runtime cannot be watched, OpweldError naming the node when a kernel
    meets a bad index, and the errors of `seen`."""
    function = watch_function(module)
    raised: list[BaseException] = []
    outputs = [np.empty(shape, dtype) for shape, dtype in plan.outputs]
    given = (ctypes.c_void_p * len(arrays))(*(address(array) for array in arrays))
    made = (ctypes.c_void_p * len(outputs))(*(address(array) for array in outputs))
    message = ctypes.create_string_buffer(MESSAGE_BYTES)
    watch = watcher(seen, raised)
    status = function(module.handle, plan.handle, given, made, watch, None, message, MESSAGE_BYTES)
    if raised:
        raise raised[0]
    if status != OK:
        raise runtime_error(status, message.value)
    return outputs


def watch_function(module: Module) -> Callable[..., int]:
    """opw_run_watched. Raises ArtifactError for an artifact whose runtime has none."""
    try:
        function = module.library.opw_run_watched
    except AttributeError as error:
        raise ArtifactError("the artifact is of an older opweld, and shows no steps; compile it again") from error
    function.restype = ctypes.c_int32
    pointers = (ctypes.c_void_p,) * 4
    function.argtypes = (*pointers, _WATCH, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    return function


def denormals_function(module: Module) -> Callable[[], int] | None:
    """opw_denormals_met; None for an artifact whose runtime has none."""
    function = getattr(module.library, "opw_denormals_met", None)
    if function is not None:
        function.restype, function.argtypes = ctypes.c_int32, ()
    return function


def watcher(seen: Seen, raised: list[BaseException]) -> Any:
    """An opw_watch that calls `seen`, up to the first error, which is put into `raised`. Must outlive the call."""

    def told(_: object, step: int, buffers: Any) -> None:
        try:
            if not raised:
                seen(step, buffers)
        except BaseException as error:  # noqa: BLE001 - C knows no exceptions
            raised.append(error)

    return _WATCH(told)

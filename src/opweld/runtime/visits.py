"""Observes a call segment by segment: its plans, clocks and memory. Imports NumPy only."""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from opweld.runtime import dtypes
from opweld.runtime.bind import Module, describe
from opweld.runtime.library import KERNEL_ERROR, Tensor
from opweld.runtime.plan import Array, Entered, PlanDescription, Seen, Visit
from opweld.runtime.profile import TIMING_FIELDS, Clocked
from opweld.runtime.watch import watch_function, watcher

_RUNNER: Final = ctypes.CFUNCTYPE(
    ctypes.c_int32,
    ctypes.c_void_p,
    ctypes.c_int32,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.POINTER(Tensor),
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_size_t,
)


@dataclass(frozen=True)
class Turn:
    """A segment about to run: its number; its opw_model, opw_plan and its bound inputs; the other arguments of
    opw_run."""

    segment: int
    model: int
    plan: int
    tensors: Any
    run: tuple[Any, Any, Any, Any]


def call_by_turns(module: Module, arrays: list[Array], threads: int, take: Callable[[Turn], int]) -> list[Array]:
    """The outputs of a model whose segments are run by `take`, which returns the status of each.

    Raises the errors of `Module.call` and of `take`."""
    raised: list[BaseException] = []

    def told(
        _: object, segment: int, model: int, plan: int, tensors: Any, inputs: int, outputs: int, message: int, room: int
    ) -> int:
        try:
            said = ctypes.cast(message, ctypes.c_char_p)
            return take(Turn(segment, model, plan, tensors, (inputs, outputs, said, room)))
        except BaseException as error:  # noqa: BLE001 - C knows no exceptions
            raised.append(error)
            return KERNEL_ERROR

    try:
        return module.call(arrays, threads, _RUNNER(told))
    except Exception:
        if raised:
            raise raised[0] from None
        raise


def plan_of_call(module: Module, arrays: list[Array], threads: int) -> tuple[list[Array], PlanDescription]:
    """The outputs of a call, and the plans that it executed."""
    seen: list[tuple[int, PlanDescription]] = []

    def take(turn: Turn) -> int:
        seen.append((turn.segment, describe(module.library, turn.plan, ())))
        return module.library.opw_run(turn.model, turn.plan, *turn.run)

    outputs = call_by_turns(module, arrays, threads, take)
    return outputs, joined(seen, outputs)


def joined(seen: Sequence[tuple[int, PlanDescription]], outputs: Sequence[Array]) -> PlanDescription:
    """Plans that ran one after the other, each with the number of its segment, as one."""
    steps, visits, phases = list[Any](), list[Visit](), 0
    for segment, plan in seen:
        visits.append(Visit(segment, plan.variant, len(steps), len(plan.steps)))
        steps += [replace(step, phase=step.phase + phases) for step in plan.steps]
        phases += 1 + max((step.phase for step in plan.steps), default=-1)
    plans = [plan for _, plan in seen]
    return PlanDescription(
        tuple((array.shape, array.dtype) for array in outputs),
        ", ".join(dict.fromkeys(visit.variant for visit in visits)),
        *(max((getattr(plan, name) for plan in plans), default=0) for name in ("arena", "total", "live", "scratch")),
        threads=max((plan.threads for plan in plans), default=1),
        steps=tuple(steps),
        visits=tuple(visits),
    )


def clock_call(module: Module, arrays: list[Array], threads: int) -> tuple[list[Array], Clocked]:
    """The outputs of a call, and the clocks of its segments, since it began."""
    made: list[tuple[int, Array]] = []
    began = time.monotonic_ns()

    def take(turn: Turn) -> int:
        library, duration = module.library, ctypes.c_int64()
        shape = (library.opw_plan_threads(turn.plan), library.opw_plan_steps(turn.plan), TIMING_FIELDS)
        timings = np.empty(shape, np.int64)
        inputs, outputs, *message = turn.run
        at = time.monotonic_ns() - began
        pointers = timings.ctypes.data, ctypes.byref(duration)
        status = library.opw_run_timed(turn.model, turn.plan, inputs, outputs, *pointers, *message)
        made.append((at, timings))
        return status

    outputs = call_by_turns(module, arrays, threads, take)
    wall = time.monotonic_ns() - began
    most = max((timings.shape[0] for _, timings in made), default=1)
    whole = np.zeros((most, sum(timings.shape[1] for _, timings in made), TIMING_FIELDS), np.int64)
    first = 0
    for at, timings in made:
        own = whole[: timings.shape[0], first : first + timings.shape[1]]
        own[...] = timings
        own[..., :2] += np.where(timings[..., 3:] > 0, at, 0)
        first += timings.shape[1]
    return outputs, Clocked(wall, whole)


def watch_call(module: Module, arrays: list[Array], seen: Seen, entered: Entered | None = None) -> list[Array]:
    """The outputs of a call on this thread, one phase after the other; steps count on from segment to segment.

    Raises the errors of `run_watched`."""
    function = watch_function(module)
    first = 0

    def take(turn: Turn) -> int:
        nonlocal first
        library, raised, begun = module.library, list[BaseException](), first
        if entered is not None:
            name = library.opw_plan_variant_name(turn.plan).decode(errors="replace")
            entered(name, [_viewed(turn.tensors[i]) for i in range(library.opw_input_count(turn.model))])
        watch = watcher(lambda step, buffers: seen(begun + step, buffers), raised)
        inputs, outputs, *message = turn.run
        status = function(turn.model, turn.plan, inputs, outputs, watch, None, *message)
        first += library.opw_plan_steps(turn.plan)
        if raised:
            raise raised[0]
        return status

    return call_by_turns(module, arrays, 1, take)


def _viewed(tensor: Tensor) -> Array:
    """The data of a tensor, while the segment runs."""
    shape, dtype = tuple(tensor.shape[: tensor.rank]), dtypes.numpy_dtype(dtypes.NAMES[tensor.dtype])
    count = math.prod(shape)
    if not count:
        return np.empty(shape, dtype)
    memory = (ctypes.c_uint8 * (count * dtype.itemsize)).from_address(tensor.data)
    return np.ctypeslib.as_array(memory).view(dtype).reshape(shape)

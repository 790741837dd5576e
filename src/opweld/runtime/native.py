"""Artifacts of the C backend: module.so, opened by the C runtime in runtime.so. Imports NumPy only."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from opweld.build.artifact import RUNTIME, Manifest
from opweld.errors import ArtifactError, AssumptionError
from opweld.runtime import dtypes
from opweld.runtime.bind import Module, Plan, describe, runtime_error
from opweld.runtime.library import MESSAGE_BYTES, OK, address
from opweld.runtime.native_state import BoundRun, NativeState
from opweld.runtime.opened import Choose, Opened
from opweld.runtime.outputs import Outputs
from opweld.runtime.plan import Array, Entered, PlanDescription, Seen
from opweld.runtime.profile import TIMING_FIELDS, Clocked
from opweld.runtime.state import State
from opweld.runtime.visits import clock_call, plan_of_call, watch_call
from opweld.runtime.watch import denormals_function, run_watched


class _Call:
    """The pointer arrays, the message and the duration of one call; reused by later calls of the same artifact."""

    __slots__ = ("inputs", "message", "outputs", "run_ns")

    def __init__(self, n_inputs: int, n_outputs: int) -> None:
        self.inputs = (ctypes.c_void_p * n_inputs)()
        self.outputs = (ctypes.c_void_p * n_outputs)()
        self.message = ctypes.create_string_buffer(MESSAGE_BYTES)
        self.run_ns = ctypes.c_int64()


_ARCHITECTURES: Final = {"aarch64": "aarch64", "arm64": "aarch64", "x86_64": "x86-64", "amd64": "x86-64"}
"""Prefixes of names of targets, by the system's name of the architecture."""


def _check_architecture(folder: Path, manifest: Manifest) -> None:
    """Raises ArtifactError for code of another architecture: the error of a loader is not specific.

    Missing features of a processor are reported by the runtime."""
    machine = platform.machine()
    here = _ARCHITECTURES.get(machine.lower())
    if any(manifest.target.startswith(other) for other in set(_ARCHITECTURES.values()) - {here}):
        features = f" ({manifest.features})" if manifest.features else ""
        raise ArtifactError(
            f"{folder} was built for {manifest.target}{features}, and this machine is {machine}: "
            "compile the model again, on this machine or with --target"
        )


class Native(Opened):
    """Compiled C, called without copies; calls release the GIL. Plans are cached by shapes."""

    def __init__(self, folder: Path, manifest: Manifest, threads: int) -> None:
        """Raises ArtifactError when the module does not load, or is for another processor."""
        super().__init__(folder, manifest, threads)
        _check_architecture(folder, manifest)
        self._module = Module(folder, folder / RUNTIME)
        codes = self._module.input_dtypes
        if (len(codes), self._module.n_outputs) != (len(manifest.inputs), len(manifest.outputs)):
            raise ArtifactError(f"{folder}: manifest and module disagree on inputs; compile the model again")
        self.dtypes = tuple(dtypes.numpy_dtype(dtypes.NAMES[code]) for code in codes)
        self.ranks = self._module.input_ranks
        self.has_dynamic_control_flow = self._module.n_segments > 0
        self._calls: list[_Call] = []
        self._outputs = Outputs()
        self._kinds: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self._run = self._module.library.opw_run

    def run(self, arrays: list[Array], shapes: list[Any]) -> list[Array]:
        """See `Opened`."""
        if self.has_dynamic_control_flow:
            self.check_shapes(arrays)
            return self._module.call(arrays, self.threads)
        plan = self._bind(arrays, shapes)
        outputs = self._outputs.make(plan.outputs)
        self._execute(plan, arrays, outputs)
        return outputs

    def run_into(self, arrays: list[Array], choose: Choose) -> list[Array]:
        """See `Opened`: nothing is copied if shapes of outputs are known before the run."""
        if self.has_dynamic_control_flow:
            return super().run_into(arrays, choose)
        plan = self._plan(arrays)
        chosen = zip(choose(plan.outputs, arrays), plan.outputs, strict=True)
        targets = [np.empty(*kind) if target is None else target for target, kind in chosen]
        self._execute(plan, arrays, targets)
        return targets

    def check(self, arrays: list[Array]) -> None:
        """See `Opened`."""
        if self.has_dynamic_control_flow:
            super().check(arrays)
        else:
            self._plan(arrays)

    def fits(self, arrays: list[Array]) -> bool:
        """See `Opened`."""
        return self._module.fits(arrays, 1)

    def plan(self, arrays: list[Array]) -> PlanDescription:
        """See `Opened`; a model with dynamic control flow is run for it."""
        if self.has_dynamic_control_flow:
            self.check_shapes(arrays)
            return plan_of_call(self._module, arrays, self.threads)[1]
        return self._module.describe(self._plan(arrays))

    def clocked(self, arrays: list[Array]) -> tuple[list[Array], Clocked]:
        """See `Opened`: hardly slower than a run."""
        if self.has_dynamic_control_flow:
            self.check_shapes(arrays)
            return clock_call(self._module, arrays, self.threads)
        return self._execute_timed(self._plan(arrays), arrays)

    def watch(self, arrays: list[Array], seen: Seen, entered: Entered | None) -> list[Array]:
        """See `Opened`: one phase after the other on this thread."""
        if self.has_dynamic_control_flow:
            self.check_shapes(arrays)
            return watch_call(self._module, arrays, seen, entered)
        plan = self._plan(arrays)
        if entered is not None:
            entered(self._module.describe(plan).variant, arrays)
        return run_watched(self._module, plan, arrays, seen)

    def denormal_steps(self, arrays: list[Array]) -> tuple[int, ...]:
        """See `Opened`."""
        met = denormals_function(self._module)
        if met is None:
            return ()
        found: list[bool] = []

        def seen(step: int, _: Sequence[int]) -> None:
            found.append(bool(met()))  # of its phase, where it is the first of it

        met()  # what happened before the run
        self.watch(arrays, seen, None)
        phases = [step.phase for step in self.plan(arrays).steps]
        slow = {phase for phase, here in zip(phases, found, strict=True) if here}
        return tuple(number for number, phase in enumerate(phases) if phase in slow)

    def new_state(self, shapes: Sequence[tuple[int, ...]]) -> NativeState:
        """See `Opened`."""
        return NativeState(self, self._module, shapes)

    def run_state(self, arrays: list[Array], state: State) -> list[Array]:
        """See `Opened`."""
        assert isinstance(state, NativeState)
        _, outputs = self._begin(arrays, state)
        state.run(outputs)
        return outputs

    def bind_state(self, arrays: list[Array], state: State) -> BoundRun:
        """See `Opened`: it is bound anew where that depends on more than shapes."""
        assert isinstance(state, NativeState)
        return state.bind(arrays, self.threads, self._outputs.make)

    def clocked_state(self, arrays: list[Array], state: State) -> tuple[list[Array], PlanDescription, Clocked]:
        """See `Opened`: hardly slower than a run, but for the description."""
        assert isinstance(state, NativeState)
        plan, outputs = self._begin(arrays, state)
        try:
            kinds = tuple((array.shape, array.dtype) for array in outputs)
            description = describe(self._module.library, plan, kinds)
        except BaseException:
            state.cancel()
            raise
        return outputs, description, state.clocked(description, outputs)

    def _begin(self, arrays: list[Array], state: NativeState) -> tuple[int, list[Array]]:
        """Takes the state for a run; the opw_plan of the run, and memory for its outputs."""
        try:
            plan, kinds = state.begin(arrays, self.threads)
        except AssumptionError as error:
            self.check_shapes(arrays)
            raise self.explained(error, arrays, state) from None
        try:
            return plan, self._outputs.make(kinds)
        except BaseException:
            state.cancel()
            raise

    def same_kinds(self, kinds: tuple[Any, ...]) -> tuple[Any, ...]:
        """The object that equal kinds of outputs have been: the key for reusing their memory."""
        return self._kinds.setdefault(kinds, kinds)

    def _plan(self, arrays: list[Array]) -> Plan:
        return self._bind(arrays, [array.shape for array in arrays])

    def _bind(self, arrays: list[Array], shapes: list[Any]) -> Plan:
        for i in self._module.by_value:
            shapes.append(arrays[i].tobytes())
        key = tuple(shapes)
        return self._module.find(key) or self._make_plan(key, arrays)

    def _make_plan(self, key: Any, arrays: list[Array]) -> Plan:
        self.check_shapes(arrays)
        try:
            return self._module.make(key, arrays, self.threads)
        except AssumptionError as error:
            raise self.explained(error, arrays) from None

    def _execute(self, plan: Plan, arrays: list[Array], outputs: Sequence[Array]) -> None:
        try:
            call = self._calls.pop()
        except IndexError:
            call = _Call(len(arrays), len(outputs))
        pointers = call.inputs
        for i, array in enumerate(arrays):
            pointers[i] = address(array)
        pointers = call.outputs
        for i, array in enumerate(outputs):
            pointers[i] = address(array)
        status = self._run(self._module.handle, plan.handle, call.inputs, call.outputs, call.message, MESSAGE_BYTES)
        if status != OK:
            raise runtime_error(status, call.message.value)
        self._calls.append(call)

    def _execute_timed(self, plan: Plan, arrays: list[Array]) -> tuple[list[Array], Clocked]:
        outputs = self._outputs.make(plan.outputs)
        clocks = Clocked(0, np.empty((plan.threads, plan.steps, TIMING_FIELDS), np.int64))
        try:
            call = self._calls.pop()
        except IndexError:
            call = _Call(len(arrays), len(outputs))
        call.inputs[:] = [address(array) for array in arrays]
        call.outputs[:] = [address(array) for array in outputs]
        status = self._module.library.opw_run_timed(
            self._module.handle,
            plan.handle,
            call.inputs,
            call.outputs,
            address(clocks.timings),
            ctypes.byref(call.run_ns),
            call.message,
            MESSAGE_BYTES,
        )
        if status != OK:
            raise runtime_error(status, call.message.value)
        clocks.wall = call.run_ns.value
        self._calls.append(call)
        return outputs, clocks

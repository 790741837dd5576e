"""Runs an artifact: checks feeds, finds the plan of their shapes, calls the compiled code. Imports numpy only."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from opweld.build import artifact
from opweld.errors import ArtifactError, AssumptionError, InputError
from opweld.runtime import dtypes
from opweld.runtime.advice import advice
from opweld.runtime.bind import Array, Module, Plan, PlanDescription, runtime_error
from opweld.runtime.feed import check_shape, check_target, prepare
from opweld.runtime.library import MESSAGE_BYTES, OK, address
from opweld.runtime.outputs import Outputs
from opweld.runtime.profile import TIMING_FIELDS, Clocked, Profile, profile_of
from opweld.runtime.state import Capacity, Kinds, State, new_state
from opweld.runtime.structure import Numbers, put_together, take_apart
from opweld.runtime.visits import clock_call, plan_of_call, watch_call
from opweld.runtime.watch import Entered, Seen, run_watched

_USABLE: Final = 0x101
"""Array flags C_CONTIGUOUS and ALIGNED, as `flags.num` has them."""


class _Call:
    """The pointer arrays, the message and the duration of one call; used again by later calls of the same session."""

    __slots__ = ("inputs", "message", "outputs", "run_ns")

    def __init__(self, n_inputs: int, n_outputs: int) -> None:
        self.inputs = (ctypes.c_void_p * n_inputs)()
        self.outputs = (ctypes.c_void_p * n_outputs)()
        self.message = ctypes.create_string_buffer(MESSAGE_BYTES)
        self.run_ns = ctypes.c_int64()


_ARCHITECTURES = {"aarch64": "aarch64", "arm64": "aarch64", "x86_64": "x86-64", "amd64": "x86-64"}
"""How names of targets begin, by what systems call a machine."""


def _check_architecture(folder: Path, manifest: artifact.Manifest) -> None:
    """Raises ArtifactError for code of another architecture: a loader only says that it cannot.

    What a processor of this one lacks, the runtime says."""
    machine = platform.machine()
    here = _ARCHITECTURES.get(machine.lower())
    if any(manifest.target.startswith(other) for other in set(_ARCHITECTURES.values()) - {here}):
        features = f" ({manifest.features})" if manifest.features else ""
        raise ArtifactError(
            f"{folder} was built for {manifest.target}{features}, and this machine is {machine}: "
            "compile the model again, on this machine or with --target"
        )


class Session:
    """An open artifact. Any number of threads may run it at the same time; calls release the GIL.

    Attributes:
        folder: of the artifact. manifest: what it is. threads: at most so many a run, 0 for all available processors.
        input_names: the names that feeds must have. output_names: of what `run` returns, in its order.
        structure: of inputs and outputs of which some are no tensors; None where all are.
        decides: whether the model decides as it runs: a size, a branch or the end of a loop hangs on data.
    """

    def __init__(self, folder: str | Path, *, threads: int | None = None, verify: bool = False) -> None:
        """Opens the artifact `folder`.

        Args:
            folder: what `opweld compile` wrote.
            threads: at most so many a run, and never more than processors; 0 for all processors of this machine; the
                manifest's default where None.
            verify: check the digests of its files, not only their sizes.

        Raises ArtifactError when it is missing, damaged, of another format, or for another processor.
        """
        self.folder = Path(folder)
        self.manifest = artifact.read(self.folder, verify=verify)
        _check_architecture(self.folder, self.manifest)
        self.threads = self.manifest.threads if threads is None else threads
        self._module = Module(self.folder, self.folder / artifact.RUNTIME)
        codes = self._module.input_dtypes
        if (len(codes), self._module.n_outputs) != (len(self.manifest.inputs), len(self.manifest.outputs)):
            raise ArtifactError(f"{self.folder}: manifest and module disagree on inputs; compile the model again")
        self.structure = self.manifest.structure
        inputs, outputs = (self.structure or self.manifest).inputs, (self.structure or self.manifest).outputs
        self.input_names = tuple(argument.name for argument in inputs)
        self.output_names = tuple(argument.name for argument in outputs)
        self._made = tuple(info.name for info in self.manifest.outputs)
        self._inputs = [
            (info.name, dtypes.numpy_dtype(dtypes.NAMES[code]))
            for info, code in zip(self.manifest.inputs, codes, strict=True)
        ]
        self.decides = self._module.n_segments > 0
        self._states = self.manifest.states
        self._kinds: dict[Kinds, Kinds] = {}
        self._calls: list[_Call] = []
        self._outputs = Outputs()
        self._run = self._module.library.opw_run

    def run(self, feeds: Mapping[str, Any], state: State | None = None) -> list[Any]:
        """Computes all outputs, in the model's order, as new arrays.

        Args:
            feeds: an array for every input name, of the model's dtype and rank. Arrays that are not C-contiguous,
                aligned and of native byte order are copied first. A sequence is a list of arrays, an optional that
                holds nothing is None.
            state: what the model keeps from one run to the next, for a model with states; the run writes it.

        Outputs are arrays, or lists of arrays, lists of dicts, or None, as the model has it.

        Raises InputError when a feed is missing, unknown or wrong; AssumptionError when the shapes violate what the
        model was compiled under; OpweldError naming the node when a kernel meets a bad index; StateError where the
        state is in use, or lost.
        """
        if state is not None or self._states:
            return self._run_state(feeds, state)
        if self.structure is None:
            return self._compute(feeds)
        numbers = Numbers(self.structure.texts)
        return self._put_together(self._compute(take_apart(self.structure.inputs, feeds, numbers)), numbers)

    def new_state(self, capacity: Capacity = None, dims: Mapping[str, int] | None = None) -> State:
        """Values that live between runs, zero and empty at first, for runs of this session.

        Args:
            capacity: how long what grows may become, one number for all or by name of the input. Its memory is used up
                as it grows.
            dims: sizes of other symbolic dims of the states, as {"batch": 2}.

        Raises InputError for a capacity or size that is missing, or more than there is memory for.
        """
        return new_state(self._module, self._states, capacity, dims)

    def run_tensors(self, feeds: Mapping[str, Any]) -> list[Array]:
        """Like `run`, but returns what compiled code gives: the arrays of `manifest.outputs`."""
        return self._compute(self._tensors(feeds))

    def as_declared(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Feeds of which some may be tensors of a sequence by their own names, as the model declares its inputs."""
        if self.structure is None:
            return dict(feeds)
        numbers = Numbers(self.structure.texts)
        tensors = take_apart(self.structure.inputs, feeds, numbers)
        return dict(zip(self.input_names, put_together(self.structure.inputs, tensors, numbers), strict=True))

    def run_into(self, feeds: Mapping[str, Array], outputs: Mapping[str, Array]) -> list[Array]:
        """Like `run_tensors`, but writes into the arrays of `outputs`, by name; nothing is copied. Others are new.

        Raises InputError also when such an array is of an unknown name, of another shape or dtype than the output,
        read-only, not C-contiguous, or overlaps an input or another output.
        """
        if self.decides:
            return self._call_into(feeds, outputs)
        arrays, plan = self._bind(self._tensors(feeds))
        targets = self._check_outputs(plan.outputs, arrays, outputs)
        self._execute(plan, arrays, targets)
        return targets

    def plan(self, feeds: Mapping[str, Array]) -> PlanDescription:
        """What `run(feeds)` does: output shapes, memory, steps. Runs nothing, but a model that decides as it runs, of
        which shapes alone do not tell what it does."""
        if self.decides:
            return plan_of_call(self._module, self._checked(feeds), self.threads)[1]
        return self._module.describe(self._bind(self._tensors(feeds))[1])

    def check(self, feeds: Mapping[str, Array]) -> None:
        """Raises what `run(feeds)` would for feeds that do not fit; a model that decides as it runs is run for it."""
        if self.decides:
            self.run(feeds)
        else:
            self._bind(self._tensors(feeds))

    def advice(self, feeds: Mapping[str, Array]) -> str:
        """For feeds that no variant takes: which sizes fit, of one open dim at a time. Tries them, runs nothing; empty
        for a model that decides as it runs."""
        if self.decides:
            return ""
        arrays, _ = self._feed(self._tensors(feeds))
        infos = self.manifest.inputs
        return advice(infos, [a.shape for a in arrays], lambda shapes: self._module.fits(_shaped(arrays, shapes), 1))

    def profile(self, feeds: Mapping[str, Array]) -> Profile:
        """Like `run`, and tells what every thread did of every step, and when."""
        if self.decides:
            arrays = self._checked(feeds)
            description = plan_of_call(self._module, arrays, self.threads)[1]
            outputs, clocks = clock_call(self._module, arrays, self.threads)
        else:
            arrays, plan = self._bind(self._tensors(feeds))
            outputs, clocks = self._execute_timed(plan, arrays)
            description = self._module.describe(plan)
        return profile_of(self._put_together(outputs), description, clocks.wall, clocks.timings)

    def clocked(self, feeds: Mapping[str, Array]) -> Clocked:
        """Like `run_tensors`, but gives what the clocks of `profile` said, as it came: hardly slower than a run."""
        if self.decides:
            return clock_call(self._module, self._checked(feeds), self.threads)[1]
        arrays, plan = self._bind(self._tensors(feeds))
        return self._execute_timed(plan, arrays)[1]

    def watch(self, feeds: Mapping[str, Array], seen: Seen, entered: Entered | None = None) -> list[Array]:
        """Like `run_tensors`, one phase after the other on this thread; `seen` is shown the memory of its steps, as the
        plan numbers them, and `entered` told of each segment before.

        Raises whatever they raise."""
        if self.decides:
            return watch_call(self._module, self._checked(feeds), seen, entered)
        arrays, plan = self._bind(self._tensors(feeds))
        if entered is not None:
            entered(self._module.describe(plan).variant, arrays)
        return run_watched(self._module, plan, arrays, seen)

    def _tensors(self, feeds: Mapping[str, Any]) -> Mapping[str, Any]:
        """What is fed, as compiled code has it."""
        if self.structure is None:
            return feeds
        return take_apart(self.structure.inputs, feeds, Numbers(self.structure.texts))

    # ---- the light path: what every run does ----

    def _compute(self, feeds: Mapping[str, Any]) -> list[Array]:
        """The outputs of compiled code for its inputs."""
        if self.decides:
            return self._call(self._feed(feeds)[0])
        arrays, plan = self._bind(feeds)
        outputs = self._outputs.make(plan.outputs)
        self._execute(plan, arrays, outputs)
        return outputs

    def _run_state(self, feeds: Mapping[str, Any], state: State | None) -> list[Array]:
        """A run that finds what one before it kept."""
        if not self._states:
            raise InputError("the model has no states; compile it with states={'past': 'present'} for it to have some")
        if state is None:
            names = _list(tuple(info.name for info in self._states))
            raise InputError(f"the model keeps {names} between runs: make a state with new_state(), and run with it")
        arrays, _ = self._feed(feeds)
        try:
            kinds = state.begin(self._module, arrays, self.threads, self._module.n_outputs)
        except AssumptionError as error:
            raise self._explained(error, arrays, state) from None
        try:
            # Equal ones are one object, by which the memory of outputs is found again.
            outputs = self._outputs.make(self._kinds.setdefault(kinds, kinds))
        except BaseException:
            state.cancel()
            raise
        state.run(arrays, outputs)
        return outputs

    def _explained(self, error: AssumptionError, arrays: list[Array], state: State) -> InputError:
        """What does not fit: the inputs, or what is left of a capacity."""
        self._check_shapes(arrays)
        shapes = ", ".join(f"{name} {array.shape}" for (name, _), array in zip(self._inputs, arrays, strict=True))
        used = ", ".join(
            f"{name} {length} of {state.memory(name).shape[info.axis or 0]}"
            for info in self._states
            for name, length in state.lengths.items()
            if name == info.name
        )
        grown = f"; of the states are in use: {used}; state.copy(capacity=N) makes one with more room" if used else ""
        return AssumptionError(f"{error}; the inputs are {shapes}{grown}")

    def _feed(self, feeds: Mapping[str, Array]) -> tuple[list[Array], list[Any]]:
        """The arrays in the order of the inputs, and their shapes."""
        arrays: list[Array] = []
        shapes: list[Any] = []
        try:
            get = feeds.get
        except AttributeError:
            raise InputError(f"feeds must be a dict of arrays by input name, got {type(feeds).__name__}") from None
        for name, dtype in self._inputs:
            array = get(name)
            if type(array) is not np.ndarray or array.dtype is not dtype or array.flags.num & _USABLE != _USABLE:
                array = self._prepare(feeds, name, dtype)
            arrays.append(array)
            shapes.append(array.shape)
        if len(feeds) != len(arrays):
            self._refuse_unknown(feeds)
        return arrays, shapes

    def _call(self, arrays: list[Array]) -> list[Array]:
        self._check_shapes(arrays)
        return self._module.call(arrays, self.threads)

    def _bind(self, feeds: Mapping[str, Array]) -> tuple[list[Array], Plan]:
        if self._states:
            raise InputError("the model keeps values between runs: this needs a model without states, compile it so")
        arrays, shapes = self._feed(feeds)
        for i in self._module.by_value:
            shapes.append(arrays[i].tobytes())
        key = tuple(shapes)
        plan = self._module.find(key)
        return arrays, plan or self._make_plan(key, arrays)

    def _execute(self, plan: Plan, arrays: list[Array], outputs: list[Array]) -> None:
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

    # ---- what only some runs do ----

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

    def _put_together(self, outputs: list[Array], numbers: Numbers | None = None) -> list[Any]:
        if self.structure is None:
            return outputs
        tensors = dict(zip(self._made, outputs, strict=True))
        return put_together(self.structure.outputs, tensors, numbers or Numbers(self.structure.texts))

    def _prepare(self, feeds: Mapping[str, Array], name: str, dtype: np.dtype[Any]) -> Array:
        if name not in feeds:
            raise InputError(f"input {name!r} is missing; the model's inputs are {_list(self.input_names)}")
        return prepare(name, feeds[name], dtype)

    def _refuse_unknown(self, feeds: Mapping[str, Array]) -> None:
        known = set(self.input_names)
        for name in feeds:
            if name not in known:
                raise InputError(f"{name!r} is no input of the model; its inputs are {_list(self.input_names)}")

    def _check_shapes(self, arrays: list[Array]) -> None:
        for info, rank, array in zip(self.manifest.inputs, self._module.input_ranks, arrays, strict=True):
            check_shape(info.name, array.shape, rank, info.shape)

    def _checked(self, feeds: Mapping[str, Array]) -> list[Array]:
        """The arrays that a model that decides as it runs is called with."""
        arrays, _ = self._feed(self._tensors(feeds))
        self._check_shapes(arrays)
        return arrays

    def _call_into(self, feeds: Mapping[str, Array], outputs: Mapping[str, Array]) -> list[Array]:
        """What a model computes that decides as it runs, copied where the caller wants it."""
        arrays, _ = self._feed(self._tensors(feeds))
        made = self._call(arrays)
        targets = self._check_outputs([(array.shape, array.dtype) for array in made], arrays, outputs)
        for name, target, array in zip(self._made, targets, made, strict=True):
            if name in outputs:
                target[...] = array
        return [t if name in outputs else a for name, t, a in zip(self._made, targets, made, strict=True)]

    def _make_plan(self, key: Any, arrays: list[Array]) -> Plan:
        self._check_shapes(arrays)
        try:
            return self._module.make(key, arrays, self.threads)
        except AssumptionError as error:
            shapes = ", ".join(f"{name} {array.shape}" for (name, _), array in zip(self._inputs, arrays, strict=True))
            raise AssumptionError(f"{error}; the inputs are {shapes}") from None

    def _check_outputs(
        self,
        kinds: Sequence[tuple[tuple[int, ...], np.dtype[Any]]],
        arrays: list[Array],
        outputs: Mapping[str, Array],
    ) -> list[Array]:
        unknown = next((name for name in outputs if name not in self._made), None)
        if unknown is not None:
            raise InputError(f"{unknown!r} is no output of the model; its outputs are {_list(self._made)}")
        targets: list[Array] = []
        for name, (shape, dtype) in zip(self._made, kinds, strict=True):
            if name in outputs:
                target = check_target(name, outputs[name], shape, dtype)
                if any(np.may_share_memory(target, other) for other in (*arrays, *targets)):
                    raise InputError(f"output {name!r}: its memory overlaps that of an input or another output")
            else:
                target = np.empty(shape, dtype)
            targets.append(target)
        return targets


def _shaped(arrays: Sequence[Array], shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    """Arrays of these shapes, which take no memory where they differ."""
    pairs = zip(arrays, shapes, strict=True)
    return [a if a.shape == shape else np.broadcast_to(np.zeros((), a.dtype), shape) for a, shape in pairs]


def _list(names: tuple[str, ...]) -> str:
    return ", ".join(repr(name) for name in names) or "none"

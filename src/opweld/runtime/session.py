"""Runs an artifact: checks feeds, finds the plan of their shapes, calls the compiled code. Imports numpy only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import numpy as np

from opweld.build import artifact
from opweld.errors import InputError
from opweld.runtime.advice import advice
from opweld.runtime.feed import check_target, prepare
from opweld.runtime.opened import Kinds
from opweld.runtime.plan import Array, Entered, PlanDescription, Seen
from opweld.runtime.profile import Clocked, Profile, profile_of
from opweld.runtime.runtimes import opened
from opweld.runtime.state import Capacity, State, shapes_of
from opweld.runtime.structure import Numbers, flattened, put_together, take_apart

_USABLE: Final = 0x101
"""Array flags C_CONTIGUOUS and ALIGNED, as in `flags.num`."""


_NO_STATES: Final = "the model has no states; compile it with states={'past': 'present'} for it to have some"


class Session:
    """An open artifact. Thread-safe; runs release the GIL.

    Attributes:
        folder: of the artifact. manifest: its description. threads: maximum of a run, 0 for all available processors.
        input_names: the names of feeds. output_names: of the results of `run`, in order.
        structure: of inputs and outputs, if some are not tensors; else None.
        has_dynamic_control_flow: whether a size, a branch or the end of a loop depends on data.
    """

    def __init__(self, folder: str | Path, *, threads: int | None = None, verify: bool = False) -> None:
        """Opens the artifact `folder`.

        Args:
            folder: written by `opweld compile`.
            threads: maximum of a run, at most the processors; 0 for all processors of this machine; the
                manifest's default if None.
            verify: check the digests of its files, not only their sizes.

        Raises ArtifactError when it is missing, damaged, of another format, for another processor, or of a backend that
        is not installed.
        """
        self.folder = Path(folder)
        self.manifest = artifact.read(self.folder, verify=verify)
        self.threads = self.manifest.threads if threads is None else threads
        self._opened = opened(self.folder, self.manifest, self.threads)
        self.structure = self.manifest.structure
        inputs, outputs = (self.structure or self.manifest).inputs, (self.structure or self.manifest).outputs
        self.input_names = tuple(argument.name for argument in inputs)
        self.output_names = tuple(argument.name for argument in outputs)
        self._made = tuple(info.name for info in self.manifest.outputs)
        names = (info.name for info in self.manifest.inputs)
        self._inputs = list(zip(names, self._opened.dtypes, strict=True))
        self.has_dynamic_control_flow = self._opened.has_dynamic_control_flow
        self._states = self.manifest.states

    def run(self, feeds: Mapping[str, Any], state: State | None = None) -> list[Any]:
        """Computes all outputs, in the model's order, as new arrays.

        Args:
            feeds: an array for every input name, of the model's dtype and rank. Arrays that are not C-contiguous,
                aligned and of native byte order are copied first. A sequence is a list of arrays, an optional that
                is empty is None. A model that was compiled for a GPU takes arrays there, too, by DLPack or
                `__cuda_array_interface__`; then its results are arrays there (`runtime.cuda.array.DeviceArray`).
            state: the persistent values of a model with states, updated by the run.

        Outputs are arrays, or lists of arrays, lists of dicts, or None, depending on the model.

        Raises InputError when a feed is missing, unknown or wrong; AssumptionError when the shapes violate what the
        model was compiled under; OpweldError naming the node when a kernel meets a bad index; StateError where the
        state is in use, or invalid.
        """
        if state is not None or self._states:
            return self._run_state(feeds, state)
        if self.structure is None:
            return self._compute(feeds)
        numbers = Numbers(self.structure.texts)
        return self._put_together(self._compute(take_apart(self.structure.inputs, feeds, numbers)), numbers)

    def bind(self, feeds: Mapping[str, Array], state: State) -> Callable[[], list[Array]]:
        """A run of a model with states whose inputs stay where they are: each call is `run(feeds, state)` with what the
        arrays hold by then, and leaves out what was found out about them once.

        Outputs are arrays that nobody refers to: new ones where those of a call before are still in use.

        Raises InputError also for an array that `run` would have to copy."""
        arrays, _ = self._feed(feeds)
        for name, array in zip(self.input_names, arrays, strict=True):
            if array is not feeds[name]:
                raise InputError(f"input {name!r}: expected an array of {array.dtype} that is C-contiguous and aligned")
        return self._opened.bind_state(arrays, self._check_state(state))

    def new_state(self, capacity: Capacity = None, dims: Mapping[str, int] | None = None) -> State:
        """Persistent values for runs of this session, initially zero and empty.

        Args:
            capacity: maximum lengths of growing values, one number for all or by name of the input. Memory is committed
                as they grow.
            dims: sizes of other symbolic dims of the states, as {"batch": 2}.

        Raises InputError for a capacity or size that is missing, or too large for the memory.
        """
        if not self._states:
            raise InputError(_NO_STATES)
        return self._opened.new_state(shapes_of(self._states, capacity, dims))

    def free_memory(self) -> int:
        """Bytes that nobody uses of the memory that states and runs take: the processor's, or the GPU's, where the
        weights are put then if they are not there."""
        return self._opened.free_memory()

    def run_tensors(self, feeds: Mapping[str, Any]) -> list[Array]:
        """Like `run`, but returns the arrays of `manifest.outputs`."""
        self._check_stateless()
        return self._compute(self._tensors(feeds))

    def run_values(self, feeds: Mapping[str, Any]) -> list[Array]:
        """Like `run_tensors`, with strings instead of their numbers."""
        if self.structure is None or not self.structure.texts:
            return self.run_tensors(feeds)
        return flattened(self.run(feeds))

    def as_declared(self, feeds: Mapping[str, Any]) -> dict[str, Any]:
        """Converts feeds, some of which may be tensors of a sequence by their own names, to the declared inputs."""
        if self.structure is None:
            return dict(feeds)
        numbers = Numbers(self.structure.texts)
        tensors = take_apart(self.structure.inputs, feeds, numbers)
        return dict(zip(self.input_names, put_together(self.structure.inputs, tensors, numbers), strict=True))

    def run_into(self, feeds: Mapping[str, Array], outputs: Mapping[str, Array]) -> list[Array]:
        """Like `run_tensors`, but writes into the arrays of `outputs`, by name. Others are new.

        Nothing is copied, unless an array overlaps an input, as a key cache that is past and present at once: such an
        output is computed elsewhere, and copied at the end of the run. A model that is compiled with `states` writes it
        in place.

        Raises InputError also when such an array is of an unknown name, of another shape or dtype than the output,
        read-only, not C-contiguous, or overlaps another output.
        """

        def choose(kinds: Kinds, arrays: Sequence[Array]) -> list[Array | None]:
            return [
                None if target is None or any(np.may_share_memory(target, array) for array in arrays) else target
                for target in self._check_outputs(kinds, outputs)
            ]

        made = self._opened.run_into(self._arrays(feeds), choose)
        for number, name in enumerate(self._made):
            target = outputs.get(name)
            if target is not None and made[number] is not target:
                target[...] = made[number]
                made[number] = target
        return made

    def plan(self, feeds: Mapping[str, Array]) -> PlanDescription:
        """The plan of `run(feeds)`: output shapes, memory, steps. Runs nothing, except a model with dynamic control
        flow, whose plan depends on data."""
        return self._opened.plan(self._arrays(feeds))

    def check(self, feeds: Mapping[str, Array]) -> None:
        """Raises the errors of `run(feeds)` for feeds that do not fit; runs a model with dynamic control flow."""
        self._opened.check(self._arrays(feeds))

    def advice(self, feeds: Mapping[str, Array]) -> str:
        """For feeds that no variant accepts: sizes that fit, of one dynamic dim at a time. Runs nothing; empty
        for a model with dynamic control flow, and for arrays on a GPU."""
        if self.has_dynamic_control_flow or self._lies_on_gpu(feeds):
            return ""
        arrays, _ = self._feed(self._tensors(feeds))
        infos = self.manifest.inputs
        return advice(infos, [a.shape for a in arrays], lambda shapes: self._opened.fits(_shaped(arrays, shapes)))

    def profile(self, feeds: Mapping[str, Array], state: State | None = None) -> Profile:
        """Like `run`, with the times of every thread in every step."""
        if state is not None or self._states:
            made, plan, clocks = self._opened.clocked_state(self._feed(feeds)[0], self._check_state(state))
            return profile_of(made, plan, clocks.wall, clocks.timings)
        arrays = self._arrays(feeds)
        description = self._opened.plan(arrays)
        outputs, clocks = self._opened.clocked(arrays)
        return profile_of(self._put_together(outputs), description, clocks.wall, clocks.timings)

    def clocked(self, feeds: Mapping[str, Array]) -> Clocked:
        """Like `run_tensors`, but returns the raw clocks of `profile`: hardly slower than a run."""
        return self._opened.clocked(self._arrays(feeds))[1]

    def watch(self, feeds: Mapping[str, Array], seen: Seen, entered: Entered | None = None) -> list[Array]:
        """Like `run_tensors`, one phase after the other on this thread; `seen` is called with the memory of its steps,
        as the plan numbers them, and `entered` before each segment.

        Raises their errors too."""
        return self._opened.watch(self._arrays(feeds), seen, entered)

    def denormal_steps(self, feeds: Mapping[str, Array]) -> tuple[int, ...]:
        """The steps of a run, as its plan numbers them, that compute with denormal numbers: those below the smallest
        normal one of their type, 1.2e-38 of float32, for which some processors take 100 times longer. Steps that run
        concurrently count together. Runs once, on this thread; empty where the processor or the artifact's runtime does
        not tell."""
        return self._opened.denormal_steps(self._arrays(feeds))

    def _arrays(self, feeds: Mapping[str, Any]) -> list[Array]:
        """The feeds in the order of the inputs."""
        self._check_stateless()
        return self._feed(self._tensors(feeds))[0]

    def _check_stateless(self) -> None:
        if self._states:
            names = _list(tuple(info.name for info in self._states))
            raise InputError(f"the model has the states {names}: only run(feeds, state) runs it; compile it without")

    def _tensors(self, feeds: Mapping[str, Any]) -> Mapping[str, Any]:
        """The feeds as inputs of compiled code."""
        if self.structure is None:
            return feeds
        return take_apart(self.structure.inputs, feeds, Numbers(self.structure.texts))

    # ---- the fast path: every run ----

    def _compute(self, feeds: Mapping[str, Any]) -> list[Array]:
        """The outputs of compiled code for its inputs."""
        if self._opened.takes_gpu_arrays and self._lies_on_gpu(feeds):
            return self._opened.run_on_gpu(self._values(feeds))
        arrays, shapes = self._feed(feeds)
        return self._opened.run(arrays, shapes)

    def _run_state(self, feeds: Mapping[str, Any], state: State | None) -> list[Array]:
        """A run with states."""
        return self._opened.run_state(self._feed(feeds)[0], self._check_state(state))

    def _check_state(self, state: State | None) -> State:
        """The state of a run; raises InputError where there is none, and where it is another session's."""
        if not self._states:
            raise InputError(_NO_STATES)
        if state is None:
            names = _list(tuple(info.name for info in self._states))
            raise InputError(f"the model keeps {names} between runs: make a state with new_state(), and run with it")
        if state.opened is not self._opened:
            raise InputError("the state was made by another session; make one with this session's new_state()")
        return state

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

    # ---- the slow path: some runs ----

    def _lies_on_gpu(self, feeds: Any) -> bool:
        from opweld.runtime.cuda.array import is_on_gpu

        return isinstance(feeds, Mapping) and any(map(is_on_gpu, cast("Mapping[str, Any]", feeds).values()))

    def _values(self, feeds: Mapping[str, Any]) -> list[Any]:
        """The feeds in the order of the inputs: arrays on a GPU as they are."""
        from opweld.runtime.cuda.array import is_on_gpu

        values: list[Any] = []
        for name, dtype in self._inputs:
            value = feeds.get(name)
            values.append(value if is_on_gpu(value) else self._prepare(feeds, name, dtype))
        if len(feeds) != len(values):
            self._refuse_unknown(feeds)
        return values

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
                raise InputError(f"{name!r} is not an input of the model; its inputs are {_list(self.input_names)}")

    def _check_outputs(self, kinds: Kinds, outputs: Mapping[str, Array]) -> list[Array | None]:
        unknown = next((name for name in outputs if name not in self._made), None)
        if unknown is not None:
            raise InputError(f"{unknown!r} is not an output of the model; its outputs are {_list(self._made)}")
        targets: list[Array | None] = []
        for name, (shape, dtype) in zip(self._made, kinds, strict=True):
            if name not in outputs:
                targets.append(None)
                continue
            target = check_target(name, outputs[name], shape, dtype)
            if any(np.may_share_memory(target, other) for other in targets if other is not None):
                raise InputError(f"output {name!r}: its memory overlaps that of another output")
            targets.append(target)
        return targets


def _shaped(arrays: Sequence[Array], shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    """Arrays of these shapes, without memory if they differ."""
    pairs = zip(arrays, shapes, strict=True)
    return [a if a.shape == shape else np.broadcast_to(np.zeros((), a.dtype), shape) for a, shape in pairs]


def _list(names: tuple[str, ...]) -> str:
    return ", ".join(repr(name) for name in names) or "none"

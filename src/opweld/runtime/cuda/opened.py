"""Opens what the CUDA backend compiled: on a GPU by the driver alone, or in Triton's interpreter where that is asked
for."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np

from opweld.build.artifact import WEIGHTS, Manifest
from opweld.errors import ArtifactError, AssumptionError, InputError
from opweld.interface import TensorInfo
from opweld.runtime import dtypes
from opweld.runtime.cuda.array import Borrowed, DeviceArray, Held, borrowed, ordinal_of
from opweld.runtime.cuda.bound import Bound, bind, bytes_of
from opweld.runtime.cuda.device import is_interpreted
from opweld.runtime.cuda.program import PROGRAM, Program, Variant
from opweld.runtime.cuda.resident import Resident
from opweld.runtime.cuda.state import CudaState, KeptBytes
from opweld.runtime.flow import Stack, run_flow
from opweld.runtime.opened import Opened
from opweld.runtime.plan import Array, PlanDescription, Step
from opweld.runtime.profile import TIMING_FIELDS, Clocked
from opweld.runtime.state import State

PLANS = 64
"""The most shapes whose plans are remembered."""


class OnDevice(Protocol):
    """A tensor on the GPU, such as PyTorch's: dense."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its sizes."""
        ...

    @property
    def nbytes(self) -> int:
        """Its bytes."""
        ...

    def data_ptr(self) -> int:
        """Its address."""
        ...


Empty: TypeAlias = Callable[["tuple[int, ...]", str], OnDevice]
"""Makes a dense tensor on the GPU of a shape and a dtype by NumPy's name of it."""


class Machine(Protocol):
    """What runs a bound variant. Streams are the caller's; without one, the machine's own, which is waited for."""

    def run(self, bound: Bound, arrays: list[Array], kept: Sequence[Any] = ()) -> list[Array]:
        """The outputs, as new arrays. `kept`: what `keep` made for each state, which the run writes."""
        ...

    def free_memory(self) -> int:
        """Bytes that nobody uses."""
        ...

    def keep(self, size: int) -> KeptBytes:
        """Memory of so many bytes that lives between runs. Raises ShortageError where there is not as much."""
        ...

    def run_between(
        self, bound: Bound, inputs: Sequence[int | Array], outputs: Sequence[int], stream: int | None = None
    ) -> None:
        """A run of memory of the device, by address, and of arrays of the host, into memory of the device."""
        ...

    @property
    def handle(self) -> int:
        """Its own stream, for other libraries to order their work by."""
        ...

    def allocate(self, size: int) -> Held:
        """New memory of the device."""
        ...

    def after(self, stream: int) -> None:
        """Has its own stream wait for another one."""
        ...

    def read(self, array: Array, address: int, stream: int | None = None) -> None:
        """Fills an array of the host from memory of the device."""
        ...

    def write(self, address: int, array: Array, stream: int | None = None) -> None:
        """Fills memory of the device from an array of the host."""
        ...


class Cuda(Opened):
    """An artifact of the CUDA backend."""

    takes_gpu_arrays = True

    def __init__(self, folder: Path, manifest: Manifest, threads: int) -> None:
        """Raises ArtifactError where the program is damaged."""
        super().__init__(folder, manifest, threads)
        self._program = Program.loads((folder / PROGRAM).read_text(encoding="utf-8"), str(folder / PROGRAM))
        self.has_dynamic_control_flow = self._program.flow.has_dynamic_control_flow
        known = {info.name for info in (*manifest.inputs, *manifest.states)}
        self._lengths = next((name for name in self._program.flow.inputs if name not in known), "")
        self._bound: OrderedDict[Any, Bound] = OrderedDict()
        self._lock = threading.Lock()
        self._machines: dict[int, Machine] = {}
        self._read = {s.input for variant in self._program.variants.values() for s in variant.symbols if s.by_value}
        """The inputs whose elements sizes depend on."""

    @property
    def machine(self) -> Machine:
        """The first GPU, see `machine_of`."""
        return self.machine_of(0)

    def machine_of(self, ordinal: int) -> Machine:
        """The GPU of a number, with the model's weights; it is taken when the model first runs there, so that one can
        be compiled and saved where there is none.

        Raises ArtifactError where the code is for another GPU, DeviceError where there is none."""
        with self._lock:
            if ordinal not in self._machines:
                self._machines[ordinal] = self._taken(ordinal)
            return self._machines[ordinal]

    def _taken(self, ordinal: int) -> Machine:
        path, folder = self.folder / WEIGHTS, self.folder
        weights = np.asarray(np.memmap(path, np.uint8, "r")) if path.stat().st_size else np.empty(0, np.uint8)
        if is_interpreted():
            from opweld.runtime.cuda.interpreted import Interpreted

            return Interpreted(folder, self._program, weights)
        if not self._program.architecture and self._program.codes:
            raise ArtifactError(
                f"{folder} was compiled for Triton's interpreter (TRITON_INTERPRET=1) and has no machine code; compile "
                "the model again"
            )
        return Resident(folder, self._program, weights, ordinal)

    def run(self, arrays: list[Array], shapes: list[Any]) -> list[Array]:
        """See `Opened`."""
        self.check_shapes(arrays)
        fed = dict(zip(self._program.flow.inputs, arrays, strict=True))
        try:
            return run_flow(self._program.flow, fed, self._take, _Arrays())
        except AssumptionError as error:
            raise self.explained(error, arrays) from None

    def run_on_device(
        self, inputs: Sequence[OnDevice | Array], empty: Empty, stream: int | None = None, ordinal: int = 0
    ) -> list[Any]:
        """The outputs, in memory that `empty` makes.

        Args:
            inputs: what lies on the GPU of this number, dense; or arrays of the host, which are copied there.
            stream: of the caller's, to which the work is given; nobody waits for it. Without one, the model's own,
                whose work is done at the end.

        Elements that sizes depend on, and all values of a model with dynamic control flow, go through the host, which
        waits for them. Raises AssumptionError for shapes that no variant accepts, RunError as `Resident.run_between`
        does."""
        if self.manifest.states:
            self._refuse("keeps states, and runs on arrays of the host only")
        machine = self.machine_of(ordinal)
        names = self._program.flow.inputs
        fed: dict[str, Any] = dict(zip(names, inputs, strict=True))
        read = names if self.has_dynamic_control_flow else self._read
        for number, name in enumerate(names):
            if name in read and not isinstance(fed[name], np.ndarray):
                array = np.empty(fed[name].shape, self.dtypes[number])
                machine.read(array, fed[name].data_ptr(), stream)
                fed[name] = array
        if self.has_dynamic_control_flow:
            arrays = [fed[name] for name in names]
            results = self.run(arrays, [array.shape for array in arrays])
            infos = zip(results, self.manifest.outputs, strict=True)
            copies = [(array, empty(array.shape, info.dtype)) for array, info in infos]
            for array, copy in copies:
                machine.write(copy.data_ptr(), array, stream)
            return [copy for _, copy in copies]
        self.check_shapes([fed[name] for name in names])
        try:
            _, bound = self._first_that_fits(0, fed)
        except AssumptionError as error:
            raise self.explained(error, [fed[name] for name in names]) from None
        outputs = bound.variant.outputs
        shapes = (shape for shape, _ in bound.outputs)
        made = {out.name: empty(shape, out.dtype) for out, shape in zip(outputs, shapes, strict=True)}
        given = [fed[value.name] for value in bound.variant.inputs]
        addresses: list[int | Array] = [v if isinstance(v, np.ndarray) else v.data_ptr() for v in given]
        machine.run_between(bound, addresses, [made[out.name].data_ptr() for out in outputs], stream)
        return [made[name] for name in self._program.flow.results]

    def run_on_gpu(self, values: Sequence[Any]) -> list[Any]:
        """See `Opened`. The results are there when it returns."""
        ordinals = {ordinal_of(value) for value in values if not isinstance(value, np.ndarray)}
        if len(ordinals) > 1:
            raise InputError(f"inputs lie on different GPUs, {', '.join(f'cuda:{n}' for n in sorted(ordinals))}")
        ordinal = ordinals.pop()
        machine = self.machine_of(ordinal)
        given: list[Any] = []
        for info, value in zip(self.manifest.inputs, values, strict=True):
            given.append(value if isinstance(value, np.ndarray) else self._borrowed(info, value, machine))

        def empty(shape: tuple[int, ...], dtype: str) -> DeviceArray:
            size = math.prod(shape) * dtypes.numpy_dtype(dtype).itemsize
            return DeviceArray(shape, dtype, ordinal, machine.allocate(size), machine)

        return self.run_on_device(given, empty, None, ordinal)

    def _borrowed(self, info: TensorInfo, value: Any, machine: Machine) -> Borrowed:
        found = borrowed(info.name, value, machine.handle)
        if found.dtype != info.dtype:
            raise InputError(f"input {info.name!r}: expected dtype {info.dtype}, got {found.dtype} on the GPU")
        if found.waits_for is not None:
            machine.after(found.waits_for)
        return found

    def free_memory(self) -> int:
        """See `Opened`."""
        return self.machine.free_memory()

    def new_state(self, shapes: Sequence[tuple[int, ...]]) -> CudaState:
        """See `Opened`."""
        return CudaState(self, shapes, self._lengths, self.machine.keep)

    def run_state(self, arrays: list[Array], state: State) -> list[Array]:
        """See `Opened`."""
        return self._run_state(arrays, state, self.machine.run)[0]

    def clocked_state(self, arrays: list[Array], state: State) -> tuple[list[Array], PlanDescription, Clocked]:
        """See `Opened`, and `clocked`."""
        machine, clocks = self.machine, list[tuple[float, float]]()
        if not isinstance(machine, Resident):
            return super().clocked_state(arrays, state)

        def run(bound: Bound, fed: list[Array], kept: Sequence[Any]) -> list[Array]:
            made, times = machine.run_clocked(bound, fed, kept)
            clocks.extend(times)
            return made

        outputs, bound = self._run_state(arrays, state, run)
        return outputs, _description(bound), _clocked(clocks)

    def _run_state(
        self, arrays: list[Array], state: State, run: Callable[[Bound, list[Array], Sequence[Any]], list[Array]]
    ) -> tuple[list[Array], Bound]:
        """The outputs of a run with a state, and what was run."""
        assert isinstance(state, CudaState)
        self.check_shapes(arrays)
        with state.run() as kept:
            bound = self._bind_state(arrays, state, kept)
            values = {**dict(zip((info.name for info in self.manifest.inputs), arrays, strict=True)), **kept}
            names = [value.before.name for value in bound.variant.states]
            state.begin()
            made = run(bound, [values[fed.name] for fed in bound.variant.inputs], [*map(state.bytes_of, names)])
            state.done(dict(zip(names, bound.states, strict=True)))
        by_name = dict(zip((fed.name for fed in bound.variant.outputs), made, strict=True))
        return [by_name[info.name] for info in self.manifest.outputs], bound

    def _bind_state(self, arrays: list[Array], state: CudaState, kept: Mapping[str, Array]) -> Bound:
        fed = dict(zip((info.name for info in self.manifest.inputs), arrays, strict=True))
        try:
            return self._first_that_fits(0, {**fed, **kept})[1]
        except AssumptionError as error:
            raise self.explained(error, arrays, state) from None

    def fits(self, arrays: list[Array]) -> bool:
        """See `Opened`."""
        fed = dict(zip(self._program.flow.inputs, arrays, strict=True))
        for variant in self._program.flow.segments[0].variants:
            try:
                self._bind(self._program.variants[variant.name], fed)
            except AssumptionError:
                continue
            return True
        return False

    def plan(self, arrays: list[Array]) -> PlanDescription:
        """See `Opened`; not of models with dynamic control flow."""
        if self.has_dynamic_control_flow:
            return super().plan(arrays)
        self.check_shapes(arrays)
        _, bound = self._first_that_fits(0, dict(zip(self._program.flow.inputs, arrays, strict=True)))
        return _description(bound)

    def clocked(self, arrays: list[Array]) -> tuple[list[Array], Clocked]:
        """See `Opened`: by events of the device around each step, so that launches are not hidden, as they are in the
        graph that a run is."""
        if self.has_dynamic_control_flow or not isinstance(self.machine, Resident):
            return super().clocked(arrays)
        self.check_shapes(arrays)
        _, bound = self._first_that_fits(0, dict(zip(self._program.flow.inputs, arrays, strict=True)))
        outputs, times = self.machine.run_clocked(bound, arrays)
        return outputs, _clocked(times)

    def _take(self, number: int, values: Mapping[str, Array]) -> tuple[int, Mapping[str, Array]]:
        position, bound = self._first_that_fits(number, values)
        made = self.machine.run(bound, [values[fed.name] for fed in bound.variant.inputs])
        return position, {fed.name: array for fed, array in zip(bound.variant.outputs, made, strict=True)}

    def _first_that_fits(self, number: int, values: Mapping[str, Array]) -> tuple[int, Bound]:
        refused: AssumptionError | None = None
        for position, variant in enumerate(self._program.flow.segments[number].variants):
            try:
                return position, self._bind(self._program.variants[variant.name], values)
            except AssumptionError as error:
                refused = error
        assert refused is not None, f"segment {number} has no variant"
        raise refused

    def _bind(self, variant: Variant, values: Mapping[str, Array]) -> Bound:
        read = {source.input for source in variant.symbols if source.by_value}
        fed = (*variant.inputs, *(kept.before for kept in variant.states))
        shapes = tuple(values[value.name].shape for value in fed)
        key = variant.name, shapes, tuple(values[name].tobytes() for name in sorted(read))
        with self._lock:
            found = self._bound.get(key)
            if found is not None:
                self._bound.move_to_end(key)
                return found
        found = bind(variant, values)
        with self._lock:
            self._bound[key] = found
            if len(self._bound) > PLANS:
                self._bound.popitem(last=False)
        return found


def _description(bound: Bound) -> PlanDescription:
    steps = tuple(
        Step(step.name or step.kind, ", ".join(step.origin), number, 1, 0, 0, 0)
        for number, step in enumerate(bound.expanded())
    )
    total = sum(
        bytes_of(buffer, elements)
        for buffer, elements in zip(bound.variant.buffers, bound.elements, strict=True)
        if buffer.kind == "arena"
    )
    outputs = tuple((shape, np.dtype(dtype)) for shape, dtype in bound.outputs)
    return PlanDescription(outputs, bound.variant.name, bound.arena, total, bound.arena, 0, 1, steps)


def _clocked(times: Sequence[tuple[float, float]]) -> Clocked:
    spans = [(int(begin * 1e9), int(end * 1e9), int((end - begin) * 1e9), 1) for begin, end in times]
    return Clocked(spans[-1][1] if spans else 0, np.array([spans], np.int64).reshape(1, len(spans), TIMING_FIELDS))


class _Arrays:
    """Values between segments are arrays of the host."""

    def empty(self, stack: Stack) -> Array:
        return np.empty((0, *stack.dims), dtypes.numpy_dtype(stack.dtype))

    def append(self, stack: Array, added: Array) -> Array:
        return np.concatenate([stack, added[None]]) if len(stack) else added[None]

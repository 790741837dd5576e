"""A variant and its memory on a GPU, ready to run for certain shapes: a graph of what its steps give a stream."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from opweld.errors import RunError
from opweld.runtime import dtypes
from opweld.runtime.cuda.arguments import Arguments
from opweld.runtime.cuda.bound import ALIGNMENT, Bound, bytes_of
from opweld.runtime.cuda.host import call_host
from opweld.runtime.cuda.memory import Memory, Pinned
from opweld.runtime.cuda.module import Function
from opweld.runtime.cuda.program import Launch
from opweld.runtime.cuda.staged import parts_of
from opweld.runtime.cuda.stream import Event, Graph, Stream
from opweld.runtime.plan import Array

if TYPE_CHECKING:
    from opweld.runtime.cuda.resident import Resident

HELD = 256 << 20
"""Bytes that are copied to keep the device busy."""
COPIED, LAUNCHED = 150, 40
"""Microseconds that such a copy takes at least, and that it takes at most to launch a kernel and to record an event."""

NODE = 1 << 20
"""A kernel of a graph is given another address where so many bytes need not be copied for it: below, the copy is
cheaper than telling the driver."""

ALIGNED = 16
"""What addresses are multiples of that kernels are given: machine code relies on it."""


class _Kernel:
    """A launch among the steps of a run, and its node in the graph.

    places: the arguments that are addresses of buffers: (position, number of the buffer)."""

    def __init__(
        self,
        function: Function,
        grid: tuple[int, int, int],
        arguments: Arguments,
        places: Sequence[tuple[int, int]],
    ) -> None:
        self._function, self._grid, self._arguments, self.places = function, grid, arguments, places
        self._node = 0

    def give(self, stream: Stream, capturing: bool = False) -> None:
        """Gives a stream the launch; remembers its node where that is captured."""
        self._function.launch(self._grid, stream, self._arguments)
        if capturing and 0 not in self._grid:
            self._node = stream.captured()

    def move(self, addresses: Sequence[int], graph: Graph | None) -> None:
        """Takes the buffers from where they are now, also in a graph that was captured."""
        for position, number in self.places:
            self._arguments[position] = addresses[number]
        if graph is not None and self._node:
            graph.change(self._node, self._function.node(self._grid, self._arguments))


class Prepared:
    """A bound variant with memory of its own on the GPU.

    The arena and the words of run-time errors lie in one piece of memory. Inputs and outputs lie where the caller has
    them, or in another piece of its own (`own`). What runs is captured in a graph once, whose kernels are given other
    addresses when those change, unless functions of the processor stand in between, or sizes are elements of what is
    fed, so that the next run has others. What lives between runs is at `kept`."""

    def __init__(self, resident: Resident, bound: Bound, kept: Sequence[int] = ()) -> None:
        self.bound, self._resident = bound, resident
        variant = bound.variant
        self._reports = [step for step in (*variant.steps, *variant.inner) if step.errors]
        self._numbers = {id(step): number + 1 for number, step in enumerate(self._reports)}
        arena = _aligned(bound.arena)
        self._memory = Memory(resident.device, arena + 4 * len(self._reports))
        self._error = self._memory.address + arena
        self._told = Pinned(resident.device, 4 * len(self._reports)) if self._reports else None
        self._words = np.zeros(0, np.int32) if self._told is None else np.asarray(self._told).view(np.int32)
        self._words[:] = 0
        given = {(b.kind, b.index): number for number, b in enumerate(variant.buffers)}
        self.inputs = [given["input", number] for number in range(len(variant.inputs))]
        """The numbers of their buffers."""
        self.outputs = [given["output", number] for number in range(len(variant.outputs))]
        self._own: Memory | None = None
        self._addresses = [0] * len(variant.buffers)
        for number, buffer in enumerate(variant.buffers):
            if buffer.kind == "constant":
                self._addresses[number] = resident.weights.address + buffer.index
            elif buffer.kind == "arena":
                self._addresses[number] = self._memory.address + bound.places[number]
            elif buffer.kind == "state":
                self._addresses[number] = kept[buffer.index]
        self._kernels: list[_Kernel] = []
        self._fixed: set[int] = set()
        """Buffers that not only kernels use."""
        self._work: list[Callable[[Stream, bool], None]] = []
        for step in variant.steps:
            self._add(step, {})
        self._users = {
            number: [kernel for kernel in self._kernels if any(number == own for _, own in kernel.places)]
            for number in (*self.inputs, *self.outputs)
        }
        self._graph: Graph | None = None
        self.done = Event(resident.device, timing=False)
        """Behind the last run, copies of its results included: another one, on whatever stream, waits for it."""
        self._captured = all(step.kind != "host" for step in variant.steps) and not variant.sizes_by_value
        self._offsets, total = dict[int, int](), 0
        for number in (*self.inputs, *self.outputs):
            self._offsets[number] = total
            total += _aligned(bytes_of(variant.buffers[number], bound.elements[number]))
        self._own_bytes, self.bytes = total, self._memory.size + total
        """All that it takes of the GPU, with memory for inputs and outputs."""

    def own(self, number: int) -> int:
        """The address of an input or output in the memory that the variant keeps for them."""
        if self._own is None:
            self._own = Memory(self._resident.device, self._own_bytes)
        return self._own.address + self._offsets[number]

    def feed(self, stream: Stream, arrays: Sequence[Array]) -> None:
        """Copies arrays of the host to its own memory for inputs. What was fed before must have arrived."""
        offsets, sizes = [self._offsets[number] for number in self.inputs], self.bound.inputs
        box = self._resident.staging.inbox(_extent(offsets, sizes))
        if box is None:
            for number, array in zip(self.inputs, arrays, strict=True):
                stream.copy_in(self.own(number), np.ascontiguousarray(array))
            return
        for part, array in zip(parts_of(box, offsets, sizes), arrays, strict=True):
            part[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        stream.copy_in(self.own(self.inputs[0]), box)

    def found(self, stream: Stream) -> list[Array]:
        """The outputs in its own memory as new arrays, behind what the stream was given. Raises what `check` does."""
        first = self._offsets[self.outputs[0]] if self.outputs else 0
        offsets = [self._offsets[number] - first for number in self.outputs]
        kinds = self.bound.outputs
        sizes = self.bound.output_bytes
        box = self._resident.staging.outbox(_extent(offsets, sizes))
        if box is None:
            outputs = [np.empty(shape, dtype) for shape, dtype in kinds]
            for array, number in zip(outputs, self.outputs, strict=True):
                stream.copy_out(array, self.own(number))
        else:
            parts = zip(parts_of(box, offsets, sizes), kinds, strict=True)
            outputs = [part.view(dtype).reshape(shape) for part, (shape, dtype) in parts]
            stream.copy_out(box, self.own(self.outputs[0]))
        self.check(stream)
        return outputs

    def reaches(self, number: int, address: int, size: int) -> bool:
        """Whether kernels are to use an input or output where a caller has it."""
        users = self._users[number]
        return number not in self._fixed and not address % ALIGNED and bool(users) and size >= NODE * len(users)

    def launch(self, stream: Stream, addresses: Mapping[int, int]) -> None:
        """Gives a stream all of a run; `addresses` of inputs and outputs, by the numbers of their buffers."""
        moved = {number for number, address in addresses.items() if self._addresses[number] != address}
        for number in moved:
            self._addresses[number] = addresses[number]
        for kernel in dict.fromkeys(kernel for number in moved for kernel in self._users[number]):
            kernel.move(self._addresses, self._graph)
        if not self._captured:
            self._record(stream)
            return
        if self._graph is None:
            self._graph = self._resident.stream.capture(lambda: self._record(self._resident.stream, True))
        self._graph.launch(stream)

    def _record(self, stream: Stream, capturing: bool = False) -> None:
        if self._reports:
            stream.fill(self._error, 0, 4 * len(self._reports))
        for work in self._work:
            work(stream, capturing)

    def clocked(self, stream: Stream, addresses: Mapping[int, int]) -> list[tuple[float, float]]:
        """Runs step by step, without the graph, between events of the device: the seconds since the first at which each
        began and ended. Copies before the first keep the device busy until all steps are given to it."""
        for number, address in addresses.items():
            self._addresses[number] = address
        for kernel in self._kernels:
            kernel.move(self._addresses, self._graph)
        held = Memory(self._resident.device, 2 * HELD)
        for _ in range(1 + len(self._work) * LAUNCHED // COPIED):
            stream.copy(held.address, held.address + HELD, HELD)
        marks = [Event(self._resident.device) for _ in range(len(self._work) + 1)]
        if self._reports:
            stream.fill(self._error, 0, 4 * len(self._reports))
        marks[0].record(stream)
        for work, mark in zip(self._work, marks[1:], strict=True):
            work(stream, False)
            mark.record(stream)
        stream.synchronize()
        times = [mark.elapsed(marks[0]) for mark in marks]
        return list(itertools.pairwise(times))

    def check(self, stream: Stream) -> None:
        """Waits for the stream. Raises RunError where a kernel reported an error: that of the earliest step."""
        self.report(stream)
        stream.synchronize()
        self.raise_reported()

    def report(self, stream: Stream) -> None:
        """Has what kernels report come to the host."""
        if self._told is not None:
            stream.copy_out(self._words, self._error)

    def raise_reported(self) -> None:
        """Raises RunError where a run that is done reported an error, once."""
        if self._told is None:
            return
        words = self._words.tolist()
        if any(words):
            self._words[:] = 0
            raise RunError(next(step.errors[code - 1] for step, code in zip(self._reports, words, strict=True) if code))

    # --------------------------------------------------------------------------------------------------------- steps

    def _add(self, step: Launch, counts: Mapping[str, int]) -> None:
        if step.kind == "loop":
            for number in range(self.bound.size(step.count)):
                for inner in step.body:
                    self._add(self.bound.variant.inner[inner], {**counts, step.symbol: number})
        elif step.kind == "kernel":
            self._add_kernel(step, counts)
        else:
            self._fixed.update(step.buffers)
            if step.kind == "copy":
                first, second = (self.bound.size(offset, counts) for offset in step.offsets)
                size = self.bound.size(step.bytes)
                self._work.append(lambda stream, _: self._copy(step, first, second, size, stream))
            else:
                self._work.append(lambda stream, _: self._on_host(step, stream))

    def _copy(self, step: Launch, first: int, second: int, size: int, stream: Stream) -> None:
        source, target = (self._addresses[number] for number in step.buffers)
        stream.copy(target + second, source + first, size)

    def _add_kernel(self, step: Launch, counts: Mapping[str, int]) -> None:
        function, types = self._resident.function(step.code)
        values: list[int] = []
        places: list[tuple[int, int]] = []
        for position, argument in enumerate(step.arguments):
            if argument.kind == "buffer":
                places.append((position, argument.buffer))
                values.append(self._addresses[argument.buffer])
            elif argument.kind == "error":
                values.append(self._error + 4 * (self._numbers[id(step)] - 1))
            else:
                values.append(self.bound.size(argument.size, counts))
        arguments = Arguments(types, values)  # what the compiler added at the end stays null
        sizes = (*self.bound.grid(step, counts), 1, 1)
        self._kernels.append(_Kernel(function, (sizes[0], sizes[1], sizes[2]), arguments, places))
        self._work.append(self._kernels[-1].give)

    def _on_host(self, step: Launch, stream: Stream) -> None:
        operands = int(step.offsets[0])
        memory: list[Array] = []
        for position, number in enumerate(step.buffers):
            buffer = self.bound.variant.buffers[number]
            array = np.empty(self.bound.elements[number], dtypes.numpy_dtype(buffer.dtype))
            if position < operands:
                stream.copy_out(array, self._addresses[number])
            memory.append(array)
        stream.synchronize()
        call_host(step, self.bound, memory)
        for number, array in list(zip(step.buffers, memory, strict=True))[operands:]:
            stream.copy_in(self._addresses[number], array)
        stream.synchronize()  # the arrays go


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def _extent(offsets: Sequence[int], sizes: Sequence[int]) -> int:
    """From the first of some pieces to the end of the last one."""
    return max((at + size for at, size in zip(offsets, sizes, strict=True)), default=0)

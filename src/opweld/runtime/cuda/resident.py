"""Runs a compiled model on a GPU by the driver alone: weights and machine code are there once, a run is a graph."""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from opweld.errors import ArtifactError, RunError
from opweld.runtime import dtypes
from opweld.runtime.cuda.arguments import Arguments
from opweld.runtime.cuda.bound import ALIGNMENT, Bound, bytes_of
from opweld.runtime.cuda.device import Device
from opweld.runtime.cuda.host import call_host
from opweld.runtime.cuda.memory import Memory
from opweld.runtime.cuda.module import Function, Module
from opweld.runtime.cuda.program import Launch, Program
from opweld.runtime.cuda.stream import Event, Graph, Stream
from opweld.runtime.plan import Array

HELD = 256 << 20
"""Bytes that are copied to keep the device busy."""
COPIED, LAUNCHED = 150, 40
"""Microseconds that such a copy takes at least, and that it takes at most to launch a kernel and to record an event."""

PREPARED = 8
"""The most shapes whose memory and graph are kept."""


class Prepared:
    """A bound variant with memory of its own on the GPU, where its inputs are fed and its outputs found.

    Everything lies in one piece of memory: the arena, inputs, outputs, and the word of run-time errors. What runs is
    captured in a graph once, unless functions of the processor stand in between."""

    def __init__(self, resident: Resident, bound: Bound) -> None:
        self.bound, self._resident = bound, resident
        self._addresses: list[int] = []
        offsets, total = _offsets(bound)
        self._memory = Memory(resident.device, total + ALIGNMENT)
        self._error = self._memory.address + total
        for number, buffer in enumerate(bound.variant.buffers):
            base = resident.weights.address if buffer.kind == "constant" else self._memory.address
            self._addresses.append(base + (buffer.index if buffer.kind == "constant" else offsets[number]))
        given = [b for b in bound.variant.buffers if b.kind in ("input", "output")]
        at = {(b.kind, b.index): self._addresses[bound.variant.buffers.index(b)] for b in given}
        self.inputs = [at["input", number] for number in range(len(bound.variant.inputs))]
        self.outputs = [at["output", number] for number in range(len(bound.variant.outputs))]
        self._reports = [step for step in (*bound.variant.steps, *bound.variant.inner) if step.errors]
        self._numbers = {id(step): number + 1 for number, step in enumerate(self._reports)}
        self._work: list[Callable[[Stream], None]] = []
        for step in bound.variant.steps:
            self._add(step, {})
        self._graph: Graph | None = None
        self.done = Event(resident.device, timing=False)
        """Behind the last run, copies of its results included: another one, on whatever stream, waits for it."""
        self._captured = all(step.kind != "host" for step in bound.variant.steps)

    def launch(self, stream: Stream) -> None:
        """Gives a stream all of a run."""
        if not self._captured:
            self._record(stream)
            return
        if self._graph is None:
            self._graph = self._resident.stream.capture(lambda: self._record(self._resident.stream))
        self._graph.launch(stream)

    def _record(self, stream: Stream) -> None:
        if self._reports:
            stream.fill(self._error, 0, 4 * len(self._reports))
        for work in self._work:
            work(stream)

    def clocked(self, stream: Stream) -> list[tuple[float, float]]:
        """Runs step by step, without the graph, between events of the device: the seconds since the first at which each
        began and ended. Copies before the first keep the device busy until all steps are given to it."""
        held = Memory(self._resident.device, 2 * HELD)
        for _ in range(1 + len(self._work) * LAUNCHED // COPIED):
            stream.copy(held.address, held.address + HELD, HELD)
        marks = [Event(self._resident.device) for _ in range(len(self._work) + 1)]
        if self._reports:
            stream.fill(self._error, 0, 4 * len(self._reports))
        marks[0].record(stream)
        for work, mark in zip(self._work, marks[1:], strict=True):
            work(stream)
            mark.record(stream)
        stream.synchronize()
        times = [mark.elapsed(marks[0]) for mark in marks]
        return list(itertools.pairwise(times))

    def check(self, stream: Stream) -> None:
        """Waits for the stream. Raises RunError where a kernel reported an error: that of the earliest step."""
        if self._reports:
            words = np.zeros(len(self._reports), np.int32)
            stream.copy_out(words, self._error)
            stream.synchronize()
            for step, code in zip(self._reports, words, strict=True):
                if code:
                    raise RunError(step.errors[int(code) - 1])
        else:
            stream.synchronize()

    # --------------------------------------------------------------------------------------------------------- steps

    def _add(self, step: Launch, counts: Mapping[str, int]) -> None:
        if step.kind == "loop":
            for number in range(self.bound.size(step.count)):
                for inner in step.body:
                    self._add(self.bound.variant.inner[inner], {**counts, step.symbol: number})
        elif step.kind == "copy":
            source, target = (self._addresses[number] for number in step.buffers)
            first, second = (self.bound.size(offset, counts) for offset in step.offsets)
            size = self.bound.size(step.bytes)
            self._work.append(lambda stream: stream.copy(target + second, source + first, size))
        elif step.kind == "host":
            self._work.append(lambda stream: self._on_host(step, stream))
        else:
            self._add_kernel(step, counts)

    def _add_kernel(self, step: Launch, counts: Mapping[str, int]) -> None:
        function, types = self._resident.function(step.code)
        values: list[int] = []
        for argument in step.arguments:
            if argument.kind == "buffer":
                values.append(self._addresses[argument.buffer])
            elif argument.kind == "error":
                values.append(self._error + 4 * (self._numbers[id(step)] - 1))
            else:
                values.append(self.bound.size(argument.size, counts))
        arguments = Arguments(types, values)  # what the compiler added at the end stays null
        sizes = (*self.bound.grid(step, counts), 1, 1)
        grid = sizes[0], sizes[1], sizes[2]
        self._work.append(lambda stream: function.launch(grid, stream, arguments))

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


class Resident:
    """A model on a GPU: its weights, its kernels, and what was prepared for some shapes. Runs follow one another."""

    def __init__(self, folder: Path, program: Program, weights: Array) -> None:
        """Raises DeviceError where there is no GPU, ArtifactError where the code is for another."""
        self.device = Device.open()
        self._folder, self._program = folder, program
        arch = self.device.properties.arch
        if program.codes and arch // 10 != program.architecture // 10:
            raise ArtifactError(
                f"{folder} was compiled for sm_{program.architecture}, and this GPU is sm_{arch}; compile the model "
                "with target='cuda' on this machine"
            )
        self.stream = Stream(self.device)
        self.weights = Memory(self.device, weights.nbytes)
        self.stream.copy_in(self.weights.address, weights)
        self.stream.synchronize()
        self._functions: dict[str, tuple[Function, tuple[str, ...]]] = {}
        self._prepared: OrderedDict[int, Prepared] = OrderedDict()
        self._lock = threading.Lock()

    def run(self, bound: Bound, arrays: Sequence[Array]) -> list[Array]:
        """The outputs of arrays of the host, as new arrays."""
        with self._lock, self.device.current():
            prepared = self._prepare(bound)
            self.stream.wait(prepared.done)
            for address, array in zip(prepared.inputs, arrays, strict=True):
                self.stream.copy_in(address, np.ascontiguousarray(array))
            prepared.launch(self.stream)
            outputs = [np.empty(shape, dtype) for shape, dtype in bound.outputs]
            for array, address in zip(outputs, prepared.outputs, strict=True):
                self.stream.copy_out(array, address)
            prepared.check(self.stream)
        return outputs

    def run_clocked(self, bound: Bound, arrays: Sequence[Array]) -> tuple[list[Array], list[tuple[float, float]]]:
        """The outputs, and when each step ran: see `Prepared.clocked`."""
        with self._lock, self.device.current():
            prepared = self._prepare(bound)
            for address, array in zip(prepared.inputs, arrays, strict=True):
                self.stream.copy_in(address, np.ascontiguousarray(array))
            clocks = prepared.clocked(self.stream)
            outputs = [np.empty(shape, dtype) for shape, dtype in bound.outputs]
            for array, address in zip(outputs, prepared.outputs, strict=True):
                self.stream.copy_out(array, address)
            prepared.check(self.stream)
        return outputs, clocks

    def run_between(self, bound: Bound, inputs: Sequence[int], outputs: Sequence[int], stream: int) -> None:
        """A run of a caller's memory on the GPU, behind what the caller's stream was given: nothing waits for it.

        `inputs`, `outputs`: addresses, in the order and of the sizes of the variant's. Run-time errors are not told."""
        with self._lock, self.device.current():
            prepared = self._prepare(bound)
            theirs = Stream(self.device, stream)
            theirs.wait(prepared.done)
            for target, source, array in zip(prepared.inputs, inputs, bound.inputs, strict=True):
                theirs.copy(target, source, array)
            prepared.launch(theirs)
            for target, source, (shape, dtype) in zip(outputs, prepared.outputs, bound.outputs, strict=True):
                theirs.copy(target, source, int(np.prod(shape, dtype=np.int64)) * dtype.itemsize)
            prepared.done.record(theirs)

    def function(self, name: str) -> tuple[Function, tuple[str, ...]]:
        """A kernel, and the types of its parameters."""
        found = self._functions.get(name)
        if found is None:
            code = self._program.codes[name]
            module = Module(self.device, (self._folder / code.cubin).read_bytes())
            function = module.function(code.entry, threads=32 * code.warps, shared=code.shared)
            found = self._functions[name] = function, tuple(kind for _, kind in code.parameters)
        return found

    def _prepare(self, bound: Bound) -> Prepared:
        found = self._prepared.get(id(bound))
        if found is None or found.bound is not bound:
            found = self._prepared[id(bound)] = Prepared(self, bound)
            if len(self._prepared) > PREPARED:
                self.device.synchronize()
                self._prepared.popitem(last=False)
        self._prepared.move_to_end(id(bound))
        return found


def _offsets(bound: Bound) -> tuple[dict[int, int], int]:
    """Where each buffer lies in one piece of memory, and the bytes of it: the arena, then inputs and outputs."""
    offsets, total = dict(bound.places), -(-bound.arena // ALIGNMENT) * ALIGNMENT
    for number, (buffer, elements) in enumerate(zip(bound.variant.buffers, bound.elements, strict=True)):
        if buffer.kind in ("input", "output"):
            offsets[number] = total
            total += -(-bytes_of(buffer, elements) // ALIGNMENT) * ALIGNMENT
    return offsets, total

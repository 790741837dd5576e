"""Runs a compiled model on a GPU by the driver alone: weights and machine code are there once, a run is a graph."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from opweld.errors import ArtifactError
from opweld.runtime.cuda.bound import Bound
from opweld.runtime.cuda.device import Device
from opweld.runtime.cuda.memory import Memory
from opweld.runtime.cuda.module import Function, Module
from opweld.runtime.cuda.prepared import Prepared
from opweld.runtime.cuda.program import Program
from opweld.runtime.cuda.staged import Staging
from opweld.runtime.cuda.state import KeptBytes
from opweld.runtime.cuda.stream import Event, Stream
from opweld.runtime.plan import Array

PREPARED, SMALL, MOST = 8, 64 << 20, 64
"""The shapes whose memory and graph are kept, and how many where each takes less than `SMALL` bytes."""


class KeptMemory(KeptBytes):
    """Bytes of the GPU that live between runs."""

    def __init__(self, stream: Stream, size: int) -> None:
        """Raises ShortageError where the GPU has not as much left."""
        self._stream, self._memory = stream, Memory(stream.device, size)
        self.zero()

    @property
    def address(self) -> int:
        """Where they begin."""
        return self._memory.address

    def zero(self) -> None:
        """See `KeptBytes`."""
        self._stream.fill(self.address, 0, self._memory.size)
        self._stream.synchronize()

    def view(self) -> Array:
        """See `KeptBytes`: a copy."""
        array = np.empty(self._memory.size, np.uint8)
        self._stream.copy_out(array, self.address)
        self._stream.synchronize()
        return array

    def write(self, array: Array) -> None:
        """See `KeptBytes`."""
        self._stream.copy_in(self.address, array)
        self._stream.synchronize()


class Resident:
    """A model on a GPU: its weights, its kernels, and what was prepared for some shapes. Runs follow one another."""

    def __init__(self, folder: Path, program: Program, weights: Array, ordinal: int = 0) -> None:
        """Raises DeviceError where there is no such GPU, ArtifactError where the code is for another."""
        self.device = Device.open(ordinal)
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
        self.staging = Staging(self.device)
        self._functions: dict[str, tuple[Function, tuple[str, ...]]] = {}
        self._prepared: OrderedDict[tuple[int, ...], Prepared] = OrderedDict()
        self._lock = threading.Lock()

    def free_memory(self) -> int:
        """See `Machine`."""
        return self.device.free_memory()

    def keep(self, size: int) -> KeptMemory:
        """See `Machine`."""
        return KeptMemory(self.stream, size)

    def run(self, bound: Bound, arrays: Sequence[Array], kept: Sequence[KeptMemory] = ()) -> list[Array]:
        """See `Machine`: of arrays of the host."""
        with self._lock, self.device.current():
            prepared, addresses = self._fed(bound, arrays, [memory.address for memory in kept])
            prepared.launch(self.stream, addresses)
            return prepared.found(self.stream)

    def run_clocked(
        self, bound: Bound, arrays: Sequence[Array], kept: Sequence[KeptMemory] = ()
    ) -> tuple[list[Array], list[tuple[float, float]]]:
        """The outputs, and when each step ran: see `Prepared.clocked`."""
        with self._lock, self.device.current():
            prepared, addresses = self._fed(bound, arrays, [memory.address for memory in kept])
            clocks = prepared.clocked(self.stream, addresses)
            return prepared.found(self.stream), clocks

    def _fed(
        self, bound: Bound, arrays: Sequence[Array], kept: Sequence[int] = ()
    ) -> tuple[Prepared, Mapping[int, int]]:
        """What runs, with arrays of the host in its own memory, and where that is."""
        prepared = self._prepare(bound, kept)
        self.stream.wait(prepared.done)
        prepared.feed(self.stream, arrays)
        return prepared, {number: prepared.own(number) for number in (*prepared.inputs, *prepared.outputs)}

    def run_between(
        self, bound: Bound, inputs: Sequence[int | Array], outputs: Sequence[int], stream: int | None = None
    ) -> None:
        """A run of a caller's memory on the GPU, behind what the caller's stream was given: nothing waits for it.
        Without a stream it is the model's own, which is waited for.

        Args:
            inputs: addresses in the order of the variant's inputs, or arrays of the host. outputs: addresses.

        Kernels read and write where the caller's memory is; what is small, does not lie at a multiple of 16 bytes, or
        is used by more than kernels is copied within the GPU. Raises RunError for an error that the run, or one of
        the same shapes that nobody waited for, reported."""
        with self._lock, self.device.current():
            prepared = self._prepare(bound)
            prepared.raise_reported()
            theirs = self._theirs(stream)
            theirs.wait(prepared.done)
            addresses: dict[int, int] = {}
            for number, given, size in zip(prepared.inputs, inputs, bound.inputs, strict=True):
                if isinstance(given, int) and prepared.reaches(number, given, size):
                    addresses[number] = given
                    continue
                addresses[number] = prepared.own(number)
                if isinstance(given, int):
                    theirs.copy(addresses[number], given, size)
                else:
                    theirs.copy_in(addresses[number], np.ascontiguousarray(given))
            sizes = bound.output_bytes
            for number, target, size in zip(prepared.outputs, outputs, sizes, strict=True):
                addresses[number] = target if prepared.reaches(number, target, size) else prepared.own(number)
            prepared.launch(theirs, addresses)
            for number, target, size in zip(prepared.outputs, outputs, sizes, strict=True):
                if addresses[number] != target:
                    theirs.copy(target, addresses[number], size)
            if stream is None:
                prepared.check(theirs)
            else:
                prepared.report(theirs)
                prepared.done.record(theirs)

    def allocate(self, size: int) -> Memory:
        """New memory of the GPU."""
        return Memory(self.device, size)

    @property
    def handle(self) -> int:
        """The model's own stream."""
        return self.stream.handle

    def after(self, stream: int) -> None:
        """Has the model's own stream wait for what another one was given."""
        event = Event(self.device, timing=False)
        event.record(Stream(self.device, stream))
        self.stream.wait(event)

    def read(self, array: Array, address: int, stream: int | None = None) -> None:
        """Fills an array of the host from the GPU's memory, behind what a stream was given."""
        theirs = self._theirs(stream)
        theirs.copy_out(array, address)
        theirs.synchronize()

    def write(self, address: int, array: Array, stream: int | None = None) -> None:
        """The way back."""
        theirs = self._theirs(stream)
        theirs.copy_in(address, np.ascontiguousarray(array))
        theirs.synchronize()

    def _theirs(self, stream: int | None) -> Stream:
        """A caller's stream, or the model's own."""
        return self.stream if stream is None else Stream(self.device, stream)

    def function(self, name: str) -> tuple[Function, tuple[str, ...]]:
        """A kernel, and the types of its parameters."""
        found = self._functions.get(name)
        if found is None:
            code = self._program.codes[name]
            module = Module(self.device, (self._folder / code.cubin).read_bytes())
            function = module.function(code.entry, threads=32 * code.warps, shared=code.shared)
            found = self._functions[name] = function, tuple(kind for _, kind in code.parameters)
        return found

    def _prepare(self, bound: Bound, kept: Sequence[int] = ()) -> Prepared:
        """What runs the variant on states at these addresses: whoever has them next is served as well."""
        key = id(bound), *kept
        found = self._prepared.get(key)
        if found is None or found.bound is not bound:
            found = self._prepared[key] = Prepared(self, bound, kept)
            most = MOST if all(one.bytes < SMALL for one in self._prepared.values()) else PREPARED
            if len(self._prepared) > most:
                self.device.synchronize()
                while len(self._prepared) > most:
                    self._prepared.popitem(last=False)
        self._prepared.move_to_end(key)
        return found

"""Runs a compiled model in Triton's interpreter: the text of its kernels, program by program, on a processor.

For tests and for those who look for an error: thousands of times slower than a GPU. It needs Triton and PyTorch, and
TRITON_INTERPRET=1 before either is imported."""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from opweld.errors import RunError
from opweld.groups import free_memory
from opweld.runtime import dtypes
from opweld.runtime.cuda.bound import Bound, is_empty
from opweld.runtime.cuda.host import call_host
from opweld.runtime.cuda.program import KERNELS, Launch, Program
from opweld.runtime.cuda.state import KeptBytes
from opweld.runtime.plan import Array


class _Bytes:
    def __init__(self, size: int) -> None:
        self._array = np.empty(max(size, 1), np.uint8)
        self.address = self._array.ctypes.data


class KeptArray(KeptBytes):
    """Bytes that live between runs, in memory of the processor."""

    def __init__(self, size: int) -> None:
        self.bytes = np.zeros(size, np.uint8)

    def zero(self) -> None:
        """See `KeptBytes`."""
        self.bytes[:] = 0

    def view(self) -> Array:
        """See `KeptBytes`: the bytes themselves."""
        return self.bytes

    def write(self, array: Array) -> None:
        """See `KeptBytes`."""
        self.bytes[:] = array


class Interpreted:
    """The memory of a processor, and kernels as Python functions."""

    def __init__(self, folder: Path, program: Program, weights: Array) -> None:
        from opweld.kernels.interpreter import mend

        mend()
        self._program, self._weights = program, weights
        spec = importlib.util.spec_from_file_location("opweld_interpreted_kernels", folder / KERNELS)
        assert spec is not None and spec.loader is not None
        self._module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self._module)

    def free_memory(self) -> int:
        """See `Machine`."""
        return free_memory()

    def keep(self, size: int) -> KeptArray:
        """See `Machine`."""
        return KeptArray(size)

    def run(self, bound: Bound, arrays: Sequence[Array], kept: Sequence[KeptArray] = ()) -> list[Array]:
        """See `Machine`."""
        outputs = [np.empty(shape, dtype) for shape, dtype in bound.outputs]
        self._run(bound, arrays, outputs, kept)
        return outputs

    def run_between(
        self, bound: Bound, inputs: Sequence[int | Array], outputs: Sequence[int], stream: int | None = None
    ) -> None:
        """A run of memory of the processor, by address: the device here."""
        dtypes_in = [dtypes.numpy_dtype(fed.dtype) for fed in bound.variant.inputs]
        arrays = [
            given if isinstance(given, np.ndarray) else _memory(given, size // dtype.itemsize, dtype)
            for given, size, dtype in zip(inputs, bound.inputs, dtypes_in, strict=True)
        ]
        self._run(
            bound,
            arrays,
            [
                _memory(address, int(np.prod(shape, dtype=np.int64)), dtype)
                for address, (shape, dtype) in zip(outputs, bound.outputs, strict=True)
            ],
        )

    handle = 1
    """Of the stream that there is not: CUDA's number of the default one."""

    def allocate(self, size: int) -> _Bytes:
        """New memory of the processor."""
        return _Bytes(size)

    def after(self, stream: int) -> None:
        """Nothing: all is done when it is given."""

    def read(self, array: Array, address: int, stream: int | None = None) -> None:
        """Fills an array from memory by address."""
        array.reshape(-1)[...] = _memory(address, array.size, array.dtype)

    def write(self, address: int, array: Array, stream: int | None = None) -> None:
        """The way back."""
        _memory(address, array.size, array.dtype)[...] = array.reshape(-1)

    def _run(
        self, bound: Bound, arrays: Sequence[Array], outputs: Sequence[Array], kept: Sequence[KeptArray] = ()
    ) -> None:
        memory: list[Array] = []
        for buffer, elements in zip(bound.variant.buffers, bound.elements, strict=True):
            dtype = dtypes.numpy_dtype(buffer.dtype)
            if buffer.kind == "input":
                memory.append(np.ascontiguousarray(arrays[buffer.index]).reshape(-1))
            elif buffer.kind == "output":
                memory.append(outputs[buffer.index].reshape(-1))
            elif buffer.kind == "state":
                memory.append(kept[buffer.index].bytes.view(dtype))
            elif buffer.kind == "constant":
                size = elements * dtype.itemsize
                memory.append(self._weights[buffer.index : buffer.index + size].view(dtype))
            else:
                poison = np.frombuffer(b"\xff" * (elements * dtype.itemsize), dtype)
                memory.append(poison.copy())
        for step in bound.variant.steps:
            self._step(step, bound, memory, {})

    def _step(self, step: Launch, bound: Bound, memory: Sequence[Array], counts: Mapping[str, int]) -> None:
        if step.kind == "loop":
            for number in range(bound.size(step.count)):
                for inner in step.body:
                    self._step(bound.variant.inner[inner], bound, memory, {**counts, step.symbol: number})
        elif step.kind == "copy":
            source, target = (memory[number].view(np.uint8) for number in step.buffers)
            first, second = (bound.size(offset, counts) for offset in step.offsets)
            size = bound.size(step.bytes)
            target[second : second + size] = source[first : first + size]
        elif step.kind == "host":
            operands = int(step.offsets[0])
            made = set(step.buffers[operands:])
            # What is replaced where it lies is read as it was.
            read = [memory[n].copy() if n in made else memory[n] for n in step.buffers[:operands]]
            call_host(step, bound, [*read, *(memory[number] for number in step.buffers[operands:])])
        else:
            self._launch(step, bound, memory, counts)

    def _launch(self, step: Launch, bound: Bound, memory: Sequence[Array], counts: Mapping[str, int]) -> None:
        import torch

        grid = bound.grid(step, counts)
        if is_empty(grid):
            return
        error = torch.zeros(1, dtype=torch.int32)
        values: list[Any] = []
        for argument in step.arguments:
            if argument.kind == "buffer":
                values.append(_tensor(memory[argument.buffer]))
            else:
                values.append(error if argument.kind == "error" else bound.size(argument.size, counts))
        function: Any = getattr(self._module, step.code)
        with np.errstate(all="ignore"):
            function[grid](*values)
        if code := int(error[0]):
            raise RunError(step.errors[code - 1])


def _memory(address: int, elements: int, dtype: np.dtype[Any]) -> Array:
    """Memory of the processor as an array of one axis."""
    if not elements:
        return np.empty(0, dtype)
    size = elements * dtype.itemsize
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address)).view(dtype)


def _tensor(array: Array) -> Any:
    """Memory as a tensor of PyTorch, whose interpreter takes no other; booleans and codes are bytes."""
    import torch

    if not array.flags.writeable:
        array = array.copy()  # weights of the artifact
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    is_known = array.dtype.isbuiltin == 1 and array.dtype != bool
    return torch.from_numpy(array if is_known else array.view(np.uint8))

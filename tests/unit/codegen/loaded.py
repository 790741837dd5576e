"""A compiled module through its C tables alone, without the runtime: binds, places buffers, runs steps in order."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from opweld.build.toolchain import build_shared
from opweld.codegen.c.module import render_module
from opweld.target import Target
from opweld.tensor.dtype import DType
from opweld.tile.module import Module
from tests.unit.codegen.compiled import aligned, headers, machine

I32, I64, P, S = ctypes.c_int32, ctypes.c_int64, ctypes.c_void_p, ctypes.c_char_p


def structure(title: str, /, **fields: Any) -> Any:
    return type(title, (ctypes.Structure,), {"_fields_": list(fields.items())})


Tensor = structure("Tensor", data=P, dtype=I32, rank=I32, shape=I64 * 8)
Buffer = structure("Buffer", kind=I32, index=I32, offset=I64, size_slot=I32, first_phase=I32, last_phase=I32)
Step = structure(
    "Step",
    kernel=ctypes.CFUNCTYPE(None, P, P, I64, I64, P, P),
    phase=I32,
    n_buffers=I32,
    buffers=ctypes.POINTER(I32),
    n_params=I32,
    params=ctypes.POINTER(I32),
    grid_slot=I32,
    work_slot=I32,
    scratch_slot=I32,
    bytes_slot=I32,
    flops_slot=I32,
    max_threads=I32,
    name=S,
    origin=S,
)
Output = structure("Output", dtype=I32, rank=I32, shape=ctypes.POINTER(I32))
Variant = structure(
    "Variant",
    name=S,
    n_slots=I32,
    bind=ctypes.CFUNCTYPE(I32, P, P),
    n_guards=I32,
    guards=ctypes.POINTER(S),
    n_buffers=I32,
    buffers=ctypes.POINTER(Buffer),
    n_steps=I32,
    steps=ctypes.POINTER(Step),
    n_outputs=I32,
    outputs=ctypes.POINTER(Output),
    lengths=ctypes.POINTER(I32),
)
Input = structure("Input", name=S, dtype=I32, rank=I32, by_value=I32)
ModuleTable = structure(
    "ModuleTable",
    abi=I32,
    isa=S,
    weights_bytes=I64,
    n_inputs=I32,
    inputs=ctypes.POINTER(Input),
    n_outputs=I32,
    output_names=ctypes.POINTER(S),
    n_variants=I32,
    variants=ctypes.POINTER(Variant),
)


class Loaded:
    """The tables of a module, compiled."""

    def __init__(self, module: Module, folder: Path) -> None:
        path = folder / "module.so"
        build_shared(render_module(module, machine(16)), path, target=Target.native(), headers=headers())
        self._library = ctypes.CDLL(str(path))
        self._library.opw_module_entry.restype = ctypes.POINTER(ModuleTable)
        self.table: Any = self._library.opw_module_entry().contents

    def bind(self, arrays: Sequence[np.ndarray[Any, Any]], variant: int = 0) -> tuple[int, list[int]]:
        """(what bind returns, the slots)"""
        tensors = (Tensor * max(1, len(arrays)))()
        for tensor, array in zip(tensors, arrays, strict=False):
            tensor.data, tensor.dtype, tensor.rank = array.ctypes.data, DType.of_numpy(array.dtype).onnx, array.ndim
            for axis, size in enumerate(array.shape):
                tensor.shape[axis] = size
        chosen = self.table.variants[variant]
        slots = (I64 * max(1, chosen.n_slots))()
        return chosen.bind(tensors, slots), list(slots)

    def guard(self, number: int, variant: int = 0) -> str:
        """The text of a failed guard, given what bind returned."""
        return self.table.variants[variant].guards[number - 1].decode()

    def run(self, arrays: Sequence[np.ndarray[Any, Any]], weights: bytes = b"") -> list[np.ndarray[Any, Any]]:
        """Binds the first variant, runs it, returns the outputs."""
        status, slots = self.bind(arrays)
        assert status == 0, self.guard(status)
        variant = self.table.variants[0]
        constants = aligned((len(weights) + 1,), np.uint8)
        constants[: len(weights)] = np.frombuffer(weights, np.uint8)
        outputs: list[np.ndarray[Any, Any]] = []
        for i in range(variant.n_outputs):
            output = variant.outputs[i]
            shape = [slots[output.shape[axis]] for axis in range(output.rank)]
            outputs.append(aligned(shape, DType.of_onnx(output.dtype).numpy))
        keep: list[Any] = []
        places: list[int] = []
        for i in range(variant.n_buffers):
            places.append(self._place(variant.buffers[i], slots, arrays, outputs, constants, keep))
        for i in range(variant.n_steps):
            step = variant.steps[i]
            buffers = (P * max(1, step.n_buffers))(*[places[step.buffers[j]] for j in range(step.n_buffers)])
            p = (I64 * max(1, step.n_params))(*[slots[step.params[j]] for j in range(step.n_params)])
            scratch = aligned((slots[step.scratch_slot] + 1 if step.scratch_slot >= 0 else 1,), np.uint8)
            error = I64(0)
            step.kernel(buffers, p, 0, slots[step.grid_slot], scratch.ctypes.data, ctypes.addressof(error))
            assert error.value == 0
        return outputs

    def _place(
        self,
        buffer: Any,
        slots: Sequence[int],
        arrays: Sequence[np.ndarray[Any, Any]],
        outputs: Sequence[np.ndarray[Any, Any]],
        constants: np.ndarray[Any, Any],
        keep: list[Any],
    ) -> int:
        if buffer.kind == 0:
            return arrays[buffer.index].ctypes.data
        if buffer.kind == 1:
            return outputs[buffer.index].ctypes.data
        if buffer.kind == 2:
            return constants.ctypes.data + buffer.offset
        assert buffer.kind == 3
        keep.append(aligned((slots[buffer.size_slot] + 1,), np.uint8))
        return keep[-1].ctypes.data

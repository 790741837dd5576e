"""Kernels in phases, the memory they are bound to, and from which phase to which each piece of it lives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from opweld.ledger import Ledger
from opweld.place.placed import Placed
from opweld.place.storage import lay_out
from opweld.schedule.expected import Expected
from opweld.tensor.program import PutWeights, TensorProgram
from opweld.tile.kernels import ScheduledKernel
from opweld.tile.module import Launch, Memory, ModuleVariant, StateMemory
from opweld.tile.phases import arrange
from opweld.tile.sizes import Sized


def assemble(
    name: str,
    program: TensorProgram,
    placed: Placed,
    scheduled: Sequence[ScheduledKernel],
    sized: Sequence[Sized],
    weights: PutWeights,
    expected: Expected,
    ledger: Ledger,
    names: Sequence[str],
) -> ModuleVariant:
    """The launches of one variant, phase by phase. `sized`: what is launched of each of `scheduled`. `program.outputs`
    each own their memory; `names` are the inputs of the segment, in order: those of the program and maybe others."""
    inputs = {value: position for position, value in enumerate(names)}
    states = {state.output: state for state in program.states}
    given = [(public, value) for public, value in program.outputs if public not in states]
    outputs = {value: position for position, (_, value) in enumerate(given)}
    roots = {storage.root: storage for storage in placed.storages.values()}
    sizes = {
        root: storage.elements * storage.dtype.bytes
        for root, storage in roots.items()
        if root not in inputs and root not in outputs and root not in placed.constants
    }
    phases = arrange(scheduled, {root: expected(size) for root, size in sizes.items()}, ledger)
    order = [(phase, position) for phase, members in enumerate(phases) for position in members]
    ordered = [(phase, scheduled[position]) for phase, position in order]
    lives: dict[str, tuple[int, int]] = {}
    for phase, item in ordered:
        for buffer in item.kernel.buffers:
            first, _ = lives.get(buffer.name, (phase, phase))
            lives[buffer.name] = first, phase
    memory: list[Memory] = []
    number: dict[str, int] = {}
    for root, (first, last) in lives.items():
        number[root] = len(memory)
        if root in inputs:
            memory.append(Memory("input", index=inputs[root], name=root))
        elif root in placed.constants:
            memory.append(Memory("constant", offset=_write(root, placed, weights), name=root))
        elif root in outputs:
            memory.append(Memory("output", index=outputs[root], name=root))
        else:
            memory.append(Memory("arena", size=sizes[root], first=first, last=last, name=root))
    kernels = [sized[position] for _, position in order]
    launches = tuple(
        Launch(
            kernel,
            tuple(number[buffer.name] for buffer in kernel.buffers),
            bound,
            item.nanoseconds,
            item.bytes,
            item.count.operations,
            item.serial,
            item.kernel.origin,
            phase,
        )
        for (phase, item), (kernel, bound) in zip(ordered, kernels, strict=True)
    )
    results = tuple((program.dtype_of(value), program.shape_of(value)) for _, value in given)
    made = tuple(public for public, _ in given)
    shapes = {public: program.shape_of(value) for public, value in program.outputs if public in states}
    kept = tuple(
        StateMemory(inputs[state.input], None if state.axis is None else shapes[state.output][state.axis])
        for state in program.states
    )
    return ModuleVariant(
        name, program.inputs, program.symbols, program.guards, tuple(memory), launches, results, made, kept
    )


def _write(root: str, placed: Placed, weights: PutWeights) -> int:
    constant, storage = placed.constants[root], placed.storages[root]

    def image() -> np.ndarray[Any, Any]:
        return lay_out(np.asarray(constant.read(), storage.dtype.numpy), storage)

    return weights(root, image)

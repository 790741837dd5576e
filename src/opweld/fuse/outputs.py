"""Gives every output memory of its own."""

from __future__ import annotations

from dataclasses import replace

from opweld.tensor.dim import Axis
from opweld.tensor.expr import load
from opweld.tensor.program import Tensor, TensorProgram


def own_outputs(program: TensorProgram) -> TensorProgram:
    """Copies what cannot be an output itself: inputs, constants, and values that are named twice."""
    taken = {value.name for value in (*program.inputs, *program.constants)}
    items, outputs = list(program.items), list[tuple[str, str]]()
    for position, (public, value) in enumerate(program.outputs):
        if value not in taken:
            taken.add(value)
            outputs.append((public, value))
            continue
        name = f"output{position}"
        dtype, shape = program.signatures[value]
        axes = tuple(Axis(f"i{p}", extent) for p, extent in enumerate(shape))
        items.append(Tensor(name, dtype, axes, load(value, dtype, tuple(axis.dim for axis in axes))))
        outputs.append((public, name))
    return replace(program, items=tuple(items), outputs=tuple(outputs))

"""Gives every output memory of its own, but for states: they are written into that of the input that they are."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from opweld.errors import UnsupportedError
from opweld.fuse.concatenation import ranges_of
from opweld.tensor.dim import ZERO, Axis
from opweld.tensor.expr import Expr, Load, at_least_zero, load, select, substitute
from opweld.tensor.program import Item, Persistent, Tensor, TensorProgram, unused


def own_outputs(program: TensorProgram) -> TensorProgram:
    """Copies what cannot be an output itself: inputs, constants, and values that are named twice; and takes states that
    grow apart into what was there and what is appended."""
    taken = {value.name for value in (*program.inputs, *program.constants)}
    states = {state.output: state for state in program.states}
    items, outputs = list(program.items), dict[int, tuple[str, str]]()
    # States first: what is named twice is a copy elsewhere.
    numbered = sorted(enumerate(program.outputs), key=lambda entry: entry[1][0] not in states)
    for position, (public, value) in numbered:
        if value not in taken:
            taken.add(value)
            outputs[position] = public, value
            continue
        name = unused(f"output{position}", program.signatures)
        dtype, shape = program.signatures[value]
        axes = tuple(Axis(f"i{p}", extent) for p, extent in enumerate(shape))
        items.append(Tensor(name, dtype, axes, load(value, dtype, tuple(axis.dim for axis in axes))))
        outputs[position] = public, name
    made = replace(program, items=tuple(items), outputs=tuple(outputs[p] for p in sorted(outputs)))
    return _appended(made)


def _appended(program: TensorProgram) -> TensorProgram:
    growing = {state.output: state for state in program.states if state.axis is not None}
    whole = {value: growing[public] for public, value in program.outputs if public in growing}
    if not whole:
        return program
    items: list[Item] = []
    for item in program.items:
        name = item.name if isinstance(item, Tensor) else ""
        items += _apart(item, whole[name], program.signatures) if isinstance(item, Tensor) and name in whole else [item]
    found = {item.name for item in items if isinstance(item, Tensor)}
    missing = next((state for value, state in whole.items() if value not in found), None)
    if missing is not None:
        raise _refused(missing)
    return replace(program, items=tuple(items))


def _apart(tensor: Tensor, state: Persistent, taken: Container[str]) -> list[Tensor]:
    """A state that grows as what is appended, a tensor of its own, behind what is there."""
    assert state.axis is not None and state.length is not None
    found = ranges_of(tensor)
    axis, length = tensor.axes[state.axis], state.length
    if found is None or found[0] != state.axis:
        raise _refused(state)
    first, *behind = found[1]
    if not behind or first.end is not length or not _is_same(first.body, state.input, tensor):
        raise _refused(state)
    place = tuple(axis.dim for axis in tensor.axes)
    new_axes = list(tensor.axes)
    new_axes[state.axis] = new = Axis(axis.name, axis.extent - length)
    body = behind.pop().body
    for part in reversed(behind):
        body = select(at_least_zero(axis.dim - part.end), body, part.body)
    body = substitute(body, {axis: new.dim + length})
    appended = Tensor(unused(f"{tensor.name}_appended", taken), tensor.dtype, tuple(new_axes), body, tensor.origin)
    at = (*place[: state.axis], axis.dim - length, *place[state.axis + 1 :])
    added, kept = load(appended.name, tensor.dtype, at), load(state.input, tensor.dtype, place)
    return [appended, replace(tensor, body=select(at_least_zero(axis.dim - length), added, kept))]


def _is_same(body: Expr, value: str, tensor: Tensor) -> bool:
    """Whether a body is the element of a value at the tensor's own place."""
    if not isinstance(body, Load) or body.tensor != value or body.guards or len(body.indices) != len(tensor.axes):
        return False
    pairs = zip(body.indices, tensor.axes, strict=True)
    return all(index is axis.dim or (axis.extent.constant == 1 and index is ZERO) for index, axis in pairs)


def _refused(state: Persistent) -> UnsupportedError:
    return UnsupportedError(
        f"state {state.input!r}: {state.output!r} is longer, and not {state.input!r} with something behind it, as "
        f"Concat({state.input!r}, new) along axis {state.axis} would be; leave it out of states, and feed it back"
    )

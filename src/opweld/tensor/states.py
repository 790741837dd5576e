"""Declares inputs and outputs of a program to be persistent values.

An input of any length becomes memory of a fixed capacity, whose length in use is a run-time input: no layout depends on
the length, only the trip counts of loops.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from opweld.errors import UnsupportedError
from opweld.interface import plain_name
from opweld.tensor.dim import Dim, Symbol, as_dim, nonnegative
from opweld.tensor.dtype import DType
from opweld.tensor.flow import Ending, Flow, Segment
from opweld.tensor.program import Guard, Input, Persistent, SymbolSource, TensorProgram

LENGTHS = "state lengths"
"""The input with the length in use of each state, int64[states]."""


def with_states(flow: Flow, pairs: Mapping[str, str]) -> Flow:
    """The flow with states, given as the output for each input. Its inputs are followed by the states, in the order of
    the pairs, and by their lengths if any of them grows.

    Raises UnsupportedError, with a remedy, where an output cannot be the next value of its input."""
    if not pairs:
        return _arranged(flow) if flow.states else flow
    if flow.states:
        raise UnsupportedError("states: the program declares states of its own, and takes no others")
    if len(flow.segments) > 1:
        raise UnsupportedError(
            "states: not supported with dynamic control flow (a size or a branch that depends on data); "
            "fix sizes with dims, or pass the values as inputs and outputs"
        )
    segment = next(iter(flow.segments))
    programs: list[TensorProgram] = []
    endings: list[Ending] = []
    refused: list[UnsupportedError] = []
    for program, ending in zip(segment.programs, segment.endings, strict=True):
        try:
            made = _declared(program, pairs)
        except UnsupportedError as error:
            refused.append(error)
            continue
        # Variants in which something else grows, as a cache without room, only apply without states.
        if not programs or _axes(made) == _axes(programs[0]):
            programs.append(made)
            endings.append(ending)
    if not programs:
        raise refused[0]
    fed = [name for name in flow.inputs if name not in pairs]
    grows = [LENGTHS] if any(state.axis is not None for state in programs[0].states) else []
    return Flow((*fed, *pairs, *grows), flow.outputs, (Segment(tuple(programs), tuple(endings)),))


def _axes(program: TensorProgram) -> list[int | None]:
    return [state.axis for state in program.states]


def lengths_of(flow: Flow) -> str:
    """The input with the lengths of a flow's states; empty if none of them grows.

    Raises UnsupportedError for a hand-written program in another form."""
    sources = {source.symbol: source for source in flow.segments[0].programs[0].symbols}
    found: set[str] = set()
    for number, state in enumerate(flow.states):
        if state.length is None:
            continue
        atom = state.length.atom
        source = sources.get(atom) if isinstance(atom, Symbol) else None
        if source is None or not source.by_value or source.position != number or source.divisor != 1:
            there = (s for s in sources.values() if s.by_value and s.position == number and s.input == LENGTHS)
            source = next(there, None)
        if source is None:
            what = f"value {number} of an input that holds the lengths of all states"
            raise UnsupportedError(f"state {state.input!r}: its length must be a symbol, {what}")
        found.add(source.input)
    if len(found) > 1:
        raise UnsupportedError(f"states: their lengths come from several inputs, {', '.join(sorted(found))}")
    return next(iter(found), "")


def _arranged(flow: Flow) -> Flow:
    """A flow that declares states of its own, with its inputs in the order of a module's."""
    if len(flow.segments) > 1:
        raise UnsupportedError("states: a flow of several segments cannot have any")
    states, lengths = [state.input for state in flow.states], lengths_of(flow)
    fed = [name for name in flow.inputs if name not in states and name != lengths]
    return replace(flow, inputs=(*fed, *states, *([lengths] if lengths else [])))


def _declared(program: TensorProgram, pairs: Mapping[str, str]) -> TensorProgram:
    values = dict(program.outputs)
    inputs = {value.name: value for value in program.inputs}
    symbols, guards = list(program.symbols), list(program.guards)
    states: list[Persistent] = []
    for number, (name, output) in enumerate(pairs.items()):
        before, after = inputs[name], program.shape_of(values[output])
        dtype = program.dtype_of(values[output])
        if dtype is not before.dtype:
            raise UnsupportedError(
                f"state {name!r} is {before.dtype!r}, and {output!r} is {dtype!r}: they must be one type"
            )
        axis = _axis(name, output, before.shape, after)
        if axis is None:
            states.append(Persistent(name, output))
            continue
        length = before.shape[axis]
        capacity = Symbol(_fresh(f"{plain_name(name)}_capacity", symbols), 1)
        _measure(symbols, guards, name, axis, number, length)
        symbols.append(SymbolSource(capacity, name, axis))
        room = capacity.dim - after[axis]
        guards.append(Guard("least", room, f"state {name!r} has room for what is appended"))
        inputs[name] = replace(before, shape=(*before.shape[:axis], capacity.dim, *before.shape[axis + 1 :]))
        states.append(Persistent(name, output, axis, length))
    fed = [value for value in inputs.values() if value.name not in pairs]
    grows = any(state.axis is not None for state in states)
    lengths = (Input(LENGTHS, DType.I64, (as_dim(len(pairs)),)),) if grows else ()
    ordered = (*fed, *(inputs[name] for name in pairs), *lengths)
    return replace(program, inputs=ordered, symbols=tuple(symbols), guards=tuple(guards), states=tuple(states))


def _axis(name: str, output: str, before: Sequence[Dim], after: Sequence[Dim]) -> int | None:
    """The axis along which a state grows; None if its shape is fixed."""
    shown = f"state {name!r} of shape {list(before)} cannot become {output!r} of shape {list(after)}"
    if len(before) != len(after):
        raise UnsupportedError(f"{shown}: their ranks differ")
    differ = [p for p, (b, a) in enumerate(zip(before, after, strict=True)) if b is not a]
    if not differ:
        return None
    if len(differ) > 1:
        raise UnsupportedError(f"{shown}: it may grow along one axis, and differs along {differ}")
    (axis,) = differ
    if before[axis].constant is not None:
        raise UnsupportedError(
            f"{shown}: its length is fixed, so that it cannot be fed back; export the model with a dynamic dim {axis}"
        )
    if not nonnegative(after[axis] - before[axis]):
        raise UnsupportedError(f"{shown}: along axis {axis} it may become shorter")
    return axis


def _measure(symbols: list[SymbolSource], guards: list[Guard], name: str, axis: int, number: int, length: Dim) -> None:
    """Takes the length of a state from the lengths input instead of a dim of its memory."""
    for position, source in enumerate(symbols):
        if source.input == name and source.position == axis and not source.by_value:
            symbols[position] = replace(source, input=LENGTHS, position=number, by_value=True)
            return
    # Its value comes from a dim of another input.
    fed = Symbol(_fresh(f"{plain_name(name)}_length", symbols), 0)
    symbols.append(SymbolSource(fed, LENGTHS, number, True))
    guards.append(Guard("zero", fed.dim - length, f"state {name!r} has the length that the inputs require"))


def _fresh(name: str, symbols: Sequence[SymbolSource]) -> str:
    taken = {source.symbol.name for source in symbols}
    while name in taken:
        name += "_"
    return name

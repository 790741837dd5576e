"""Persistent states: pairs of an input and an output of a model, as named by the user."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from opweld import ir
from opweld.errors import OptionError, UnsupportedError
from opweld.frontend.program import Program
from opweld.interface import StateInfo
from opweld.tensor.states import lengths_of, with_states


def keep_states(program: Program, states: Mapping[str, str]) -> Program:
    """The program with these states, by input the output that each becomes, and those that it declares itself.

    Raises OptionError for unknown names, UnsupportedError for values that cannot be states."""
    flow = program.flow
    pairs = state_pairs(flow.inputs, [public for public, _ in flow.outputs], states)
    flow = with_states(flow, pairs)
    if not flow.states:
        return program
    description = program.description
    if description.structure is not None:
        raise UnsupportedError("states: not supported for models with inputs or outputs that are not tensors")
    infos = {info.name: info for info in description.inputs}
    kept = {state.input for state in flow.states} | {lengths_of(flow)}
    made = {state.output for state in flow.states}
    shown = [
        shape
        for info, shape in zip(description.outputs, description.declared_shapes, strict=True)
        if info.name not in made
    ]
    description = replace(
        description,
        inputs=tuple(info for info in description.inputs if info.name not in kept),
        outputs=tuple(info for info in description.outputs if info.name not in made),
        declared_shapes=tuple(shown),
        states=tuple(
            StateInfo(s.input, s.output, infos[s.input].dtype, infos[s.input].shape or (), s.axis) for s in flow.states
        ),
    )
    return replace(program, flow=flow, description=description)


def input_names(graph: ir.Graph, states: Mapping[str, str]) -> frozenset[str]:
    """The inputs of a graph that are states. Raises OptionError for unknown names."""
    inputs, outputs = ([value.name or "" for value in values] for values in (graph.inputs, graph.outputs))
    return frozenset(state_pairs(inputs, outputs, states))


def state_pairs(inputs: Sequence[str], outputs: Sequence[str], states: Mapping[str, str]) -> dict[str, str]:
    """The output that each input becomes, in the order of the inputs.

    `states` are names, or patterns with one `*`, which stands for the same text in both: `past.*` becomes `present.*`.
    Raises OptionError for an unknown name, and for an output that two inputs would become."""
    found: dict[str, str] = {}
    for pattern, becomes in states.items():
        matched = [(name, middle) for name in inputs if (middle := _matched(pattern, name)) is not None]
        if not matched:
            raise OptionError(f"states: the model has no input {pattern!r}; its inputs are {_listed(inputs)}")
        for name, middle in matched:
            output = becomes.replace("*", middle, 1) if "*" in pattern else becomes
            if output not in outputs:
                raise OptionError(
                    f"states: input {name!r} would become {output!r}, which is not an output; the outputs are "
                    f"{_listed(outputs)}"
                )
            if output in found.values() or found.get(name, output) != output:
                raise OptionError(f"states: {name!r} becomes {output!r}, one of which is another state already")
            found[name] = output
    return {name: found[name] for name in inputs if name in found}


def _matched(pattern: str, name: str) -> str | None:
    """The text matched by the `*` of a pattern; None if the name does not match."""
    before, star, after = pattern.partition("*")
    if not star:
        return "" if name == pattern else None
    fits = name.startswith(before) and name.endswith(after) and len(name) >= len(before) + len(after)
    return name[len(before) : len(name) - len(after)] if fits else None


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name[:100]) for name in names[:12])
    return f"{shown} and {len(names) - 12} more" if len(names) > 12 else shown or "none"

"""Programs with dynamic control flow: segments, each a few variants, and an environment of values by name.

A run starts with the inputs in the environment and the first segment. It executes the first variant of the segment
whose guards hold, adds its outputs to the environment, applies the variant's ending, and continues with the next
segment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from opweld.errors import AssumptionError, OpweldError
from opweld.tensor.dtype import DType
from opweld.tensor.interpret import interpret
from opweld.tensor.program import Persistent, TensorProgram
from opweld.tensor.semantics import Array


@dataclass(frozen=True)
class Stack:
    """A value that starts empty and is appended to: its name, dtype, and the dims of an element, 0 where not known."""

    name: str
    dtype: DType
    dims: tuple[int, ...]


@dataclass(frozen=True)
class Ending:
    """The effects after a segment, in this order, and the next segment; None: the run is over.

    `stacks` are emptied; `appends` are (stack, value that is appended along a new first axis); `moves` are (name, value
    that it is bound to), applied simultaneously."""

    next: int | None = None
    stacks: tuple[Stack, ...] = ()
    appends: tuple[tuple[str, str], ...] = ()
    moves: tuple[tuple[str, str], ...] = ()


LAST = Ending()
"""The run is over."""


@dataclass(frozen=True, eq=False)
class Segment:
    """The variants of one segment, the likeliest first; each with its ending."""

    programs: tuple[TensorProgram, ...]
    endings: tuple[Ending, ...]


@dataclass(frozen=True, eq=False)
class Flow:
    """A complete model. `outputs` are (public name, name in the environment)."""

    inputs: tuple[str, ...]
    outputs: tuple[tuple[str, str], ...]
    segments: tuple[Segment, ...]

    def with_precision(self, precision: str) -> Flow:
        """The flow with programs whose contractions may round their operands, see `TensorProgram`."""
        if precision == "fp32":
            return self
        segments = (
            replace(segment, programs=tuple(replace(program, precision=precision) for program in segment.programs))
            for segment in self.segments
        )
        return replace(self, segments=tuple(segments))

    @property
    def states(self) -> tuple[Persistent, ...]:
        """The persistent values of all programs."""
        programs = (program for segment in self.segments for program in segment.programs)
        return next((program.states for program in programs if program.states), ())


def interpret_flow(flow: Flow, feeds: Mapping[str, Array], float64: bool = False) -> dict[str, Array]:
    """The outputs of a flow by public name, in NumPy; see `interpret`."""
    env = {name: np.asarray(array) for name, array in feeds.items()}
    number: int | None = 0
    while number is not None:
        segment = flow.segments[number]
        position, outputs = _first_that_fits(segment.programs, env, float64)
        env |= outputs
        ending = segment.endings[position]
        for stack in ending.stacks:
            env[stack.name] = np.empty((0, *stack.dims), stack.dtype.numpy)
        for name, added in ending.appends:
            env[name] = np.concatenate([env[name], env[added][None]]) if len(env[name]) else env[added][None]
        env |= {name: env[value] for name, value in ending.moves}
        number = ending.next
    return {public: env[name] for public, name in flow.outputs}


def _first_that_fits(
    programs: Sequence[TensorProgram], env: Mapping[str, Array], float64: bool
) -> tuple[int, dict[str, Array]]:
    refused: AssumptionError | None = None
    for position, program in enumerate(programs):
        missing = [value.name for value in program.inputs if value.name not in env]
        if missing:
            raise OpweldError(f"program {program.name!r} reads {missing[0]!r}, which no earlier segment defines")
        try:
            return position, interpret(program, {value.name: env[value.name] for value in program.inputs}, float64)
        except AssumptionError as error:
            refused = error
    assert refused is not None
    raise refused


def dead_after(flow: Flow) -> dict[tuple[int, int], tuple[str, ...]]:
    """For each (segment, variant), the names that are dead after it, sorted."""
    last = frozenset(name for _, name in flow.outputs)
    reads = [frozenset(v.name for p in segment.programs for v in p.inputs) for segment in flow.segments]
    before: list[frozenset[str]] = list(reads)
    changed = True
    while changed:
        changed = False
        for number in reversed(range(len(flow.segments))):
            segment = flow.segments[number]
            found = reads[number]
            for program, ending in zip(segment.programs, segment.endings, strict=True):
                found |= _read_before(program, ending, last if ending.next is None else before[ending.next])
            changed |= found != before[number]
            before[number] = found
    dead: dict[tuple[int, int], tuple[str, ...]] = {}
    for number, segment in enumerate(flow.segments):
        for position, (program, ending) in enumerate(zip(segment.programs, segment.endings, strict=True)):
            there = before[number] | {name for name, _ in program.outputs} | {name for name, _ in ending.moves}
            kept = last if ending.next is None else before[ending.next]
            dead[number, position] = tuple(sorted(there - kept))
    return dead


def _read_before(program: TensorProgram, ending: Ending, after: frozenset[str]) -> frozenset[str]:
    """The names live before a variant, except its own inputs: read by its ending or by what follows."""
    found = (after - {name for name, _ in ending.moves}) | {value for _, value in ending.moves}
    found |= {name for pair in ending.appends for name in pair}
    found -= {stack.name for stack in ending.stacks}
    return found - {name for name, _ in program.outputs}

"""Control flow between segments, for runtimes in Python: the flow of a model as data, and its execution.

The C runtime implements the same in C (`runtime/c/flow.c`), for calls that take microseconds. A runtime that starts its
kernels from Python uses this one; it defines values and how they are appended, so that values may be in the memory of a
device. Imports NumPy only."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar, cast

from opweld.errors import ArtifactError
from opweld.typed import AGAIN, typed

V = TypeVar("V")
"""A value of a runtime: an array, or memory of a device."""

Values: TypeAlias = "dict[str, V]"
"""The environment: values by name."""


@dataclass(frozen=True)
class Stack:
    """A value that starts empty and is appended to: its name, dtype, and the dims of an element, 0 where not known."""

    name: str
    dtype: str
    dims: tuple[int, ...] = ()


@dataclass(frozen=True)
class OpenedVariant:
    """A compiled variant of a segment, and the effects after it, in this order.

    Attributes:
        name: of the variant. next: the next segment; -1: the run is over.
        stacks: that are emptied. appends: (stack, value that is appended along a new first axis).
        moves: (name, value that it is bound to), simultaneously. dead: names without later readers.
    """

    name: str
    next: int = -1
    stacks: tuple[Stack, ...] = ()
    appends: tuple[tuple[str, str], ...] = ()
    moves: tuple[tuple[str, str], ...] = ()
    dead: tuple[str, ...] = ()


@dataclass(frozen=True)
class Segment:
    """A segment: the names that it reads, and its variants, of which the first that fits is run."""

    inputs: tuple[str, ...]
    variants: tuple[OpenedVariant, ...]


@dataclass(frozen=True)
class Flow:
    """A model of one segment or more; a run starts with the first. `inputs` are its inputs, `results` its outputs, in
    the model's order, by their final names."""

    inputs: tuple[str, ...]
    results: tuple[str, ...]
    segments: tuple[Segment, ...]

    @property
    def has_dynamic_control_flow(self) -> bool:
        """Whether control flow, or sizes, depend on data."""
        return len(self.segments) > 1

    def dumps(self) -> str:
        """The text for `loads`."""
        return json.dumps(dataclasses.asdict(self), ensure_ascii=False, indent=1) + "\n"

    @classmethod
    def loads(cls, text: str, where: str) -> Flow:
        """The flow that `dumps` wrote. Raises ArtifactError for other text; `where` names its source."""
        try:
            found = typed(cls, cast(object, json.loads(text)), where)
        except (ValueError, RecursionError) as error:
            raise ArtifactError(f"{where} is not JSON ({error}); {AGAIN}") from error
        numbers = range(-1, len(found.segments))
        if not found.segments or any(v.next not in numbers for segment in found.segments for v in segment.variants):
            raise ArtifactError(f"{where} refers to a missing segment; {AGAIN}")
        return found


class Memory(Protocol[V]):
    """The operations of a runtime on values between segments."""

    def empty(self, stack: Stack) -> V:
        """An empty stack."""
        ...

    def append(self, stack: V, added: V) -> V:
        """The stack with the value appended; it may be the same memory."""
        ...


Take: TypeAlias = "Callable[[int, Mapping[str, V]], tuple[int, Mapping[str, V]]]"
"""Runs the segment of a number with its inputs: returns the position of the variant that fits, and its outputs. Raises
AssumptionError if none fits."""


def run_flow(flow: Flow, inputs: Mapping[str, V], take: Take[V], memory: Memory[V]) -> list[V]:
    """The outputs of a run, in the model's order. Raises whatever `take` does."""
    values: dict[str, V] = dict(inputs)
    number = 0
    while number >= 0:
        segment = flow.segments[number]
        position, outputs = take(number, {name: values[name] for name in segment.inputs if name in values})
        values |= outputs
        done = segment.variants[position]
        for stack in done.stacks:
            values[stack.name] = memory.empty(stack)
        for name, added in done.appends:
            values[name] = memory.append(values[name], values[added])
        values |= {name: values[value] for name, value in done.moves}
        for name in done.dead:
            values.pop(name, None)
        number = done.next
    return [values[name] for name in flow.results]

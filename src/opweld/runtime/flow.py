"""How a run goes from segment to segment, for runtimes in Python: the flow of a model as data, and a walk through it.

The C runtime has the same walk in C (`runtime/c/flow.c`), for calls that take microseconds. A runtime that starts its
kernels from Python takes this one: what a value is, and how one is appended to another, is its own affair, so that
values may lie on a device. Imports NumPy only."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar, cast

from opweld.errors import ArtifactError
from opweld.typed import AGAIN, typed

V = TypeVar("V")
"""A value as a runtime has it: an array, or memory of a device."""

Values: TypeAlias = "dict[str, V]"
"""What there is at a time of a run, by name."""


@dataclass(frozen=True)
class Stack:
    """A value that begins empty: its name, its dtype, and the dims of what is added to it, 0 where not known."""

    name: str
    dtype: str
    dims: tuple[int, ...] = ()


@dataclass(frozen=True)
class OpenedVariant:
    """A compiled variant of a segment, and what happens when it has run, in this order.

    Attributes:
        name: of the variant. next: the segment that follows it; -1 where the run is over.
        stacks: are emptied. appends: (stack, value that is added to it along a new first axis).
        moves: (name, value that it stands for from now on), all of them at once. dead: what nothing reads any more.
    """

    name: str
    next: int = -1
    stacks: tuple[Stack, ...] = ()
    appends: tuple[tuple[str, str], ...] = ()
    moves: tuple[tuple[str, str], ...] = ()
    dead: tuple[str, ...] = ()


@dataclass(frozen=True)
class Segment:
    """What runs between two decisions: the names that it reads, and its variants, of which the first that fits runs."""

    inputs: tuple[str, ...]
    variants: tuple[OpenedVariant, ...]


@dataclass(frozen=True)
class Flow:
    """A model of one segment or more; a run begins with the first. `inputs` are its inputs, `results` its outputs, in
    the model's order, by the names that they have in the end."""

    inputs: tuple[str, ...]
    results: tuple[str, ...]
    segments: tuple[Segment, ...]

    @property
    def decides(self) -> bool:
        """Whether which segments run, or what sizes they have, depends on data."""
        return len(self.segments) > 1

    def dumps(self) -> str:
        """As text, which `loads` reads."""
        return json.dumps(dataclasses.asdict(self), ensure_ascii=False, indent=1) + "\n"

    @classmethod
    def loads(cls, text: str, where: str) -> Flow:
        """The flow that `dumps` wrote. Raises ArtifactError for anything else; `where` says what the text is."""
        try:
            found = typed(cls, cast(object, json.loads(text)), where)
        except (ValueError, RecursionError) as error:
            raise ArtifactError(f"{where} is no JSON ({error}); {AGAIN}") from error
        numbers = range(-1, len(found.segments))
        if not found.segments or any(v.next not in numbers for segment in found.segments for v in segment.variants):
            raise ArtifactError(f"{where} leads to a segment that is not there; {AGAIN}")
        return found


class Memory(Protocol[V]):
    """What a runtime does with its values between two segments."""

    def empty(self, stack: Stack) -> V:
        """A stack that holds nothing."""
        ...

    def append(self, stack: V, added: V) -> V:
        """The stack with a value more: it may be the same memory."""
        ...


Take: TypeAlias = "Callable[[int, Mapping[str, V]], tuple[int, Mapping[str, V]]]"
"""Runs the segment of a number with the values that it reads: the position of the variant that fitted, and its outputs.
Raises AssumptionError where none does."""


def walk(flow: Flow, inputs: Mapping[str, V], take: Take[V], memory: Memory[V]) -> list[V]:
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

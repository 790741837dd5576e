"""A variant bound to shapes: every size a number, every buffer a place. Imports NumPy only."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from opweld.errors import AssumptionError, InputError
from opweld.runtime import dtypes
from opweld.runtime.cuda.program import Buffer, Launch, Variant
from opweld.runtime.cuda.sizes import evaluate
from opweld.runtime.plan import Array

ALIGNMENT = 256
"""Bytes that every piece of memory is aligned to."""

MOST_ELEMENTS = (1 << 31) - (1 << 16)
"""Elements that indices of 32 bits reach, those of the last block included."""


@dataclass(frozen=True, eq=False)
class Bound:
    """A variant for certain shapes.

    Attributes:
        sizes: of symbols. elements: of each buffer. places: of buffers in the arena, by number.
        arena: bytes of the arena. inputs: bytes of each input. outputs: shape and dtype of each output.
        states: the shape of each state after a run.
    """

    variant: Variant
    sizes: Mapping[str, int]
    elements: tuple[int, ...]
    places: Mapping[int, int]
    arena: int
    inputs: tuple[int, ...]
    outputs: tuple[tuple[tuple[int, ...], np.dtype[np.generic]], ...]
    states: tuple[tuple[int, ...], ...] = ()

    @property
    def output_bytes(self) -> list[int]:
        """Of each output."""
        return [math.prod(shape) * dtype.itemsize for shape, dtype in self.outputs]

    def size(self, text: str, step: Mapping[str, int] | None = None) -> int:
        """The value of a size; `step` counts loops."""
        return evaluate(text, {**self.sizes, **step} if step else self.sizes)

    def expanded(self) -> Iterator[Launch]:
        """The steps of a run, those of loops as often as they run."""
        for step in self.variant.steps:
            if step.kind == "loop":
                for _ in range(self.size(step.count)):
                    yield from (self.variant.inner[number] for number in step.body)
            else:
                yield step

    def grid(self, launch: Launch, step: Mapping[str, int] | None = None) -> tuple[int, ...]:
        """The programs of a launch, along each dimension."""
        return tuple(self.size(size, step) for size in launch.grid)


def bind(variant: Variant, arrays: Mapping[str, Array]) -> Bound:
    """The variant for the shapes of these inputs. Raises AssumptionError where it is not for them."""
    sizes = _symbols(variant, arrays)
    for guard in variant.assumptions:
        value = evaluate(guard.size, sizes)
        holds = {"zero": value == 0, "nonzero": value != 0, "least": value >= 0}[guard.kind]
        if not holds:
            raise AssumptionError(f"an assumption does not hold: {guard.reason}")
    for fed in (*variant.inputs, *(kept.before for kept in variant.states)):
        shape = tuple(evaluate(size, sizes) for size in fed.shape)
        if arrays[fed.name].shape != shape:
            raise AssumptionError(f"input {fed.name!r} must have the shape {shape}, but has {arrays[fed.name].shape}")
    elements = tuple(evaluate(buffer.elements, sizes) for buffer in variant.buffers)
    _check_reach(variant, elements)
    places, arena = _places(variant.buffers, elements)
    outputs = tuple(
        (tuple(evaluate(size, sizes) for size in fed.shape), dtypes.numpy_dtype(fed.dtype)) for fed in variant.outputs
    )
    inputs = tuple(arrays[fed.name].nbytes for fed in variant.inputs)
    states = tuple(tuple(evaluate(size, sizes) for size in kept.after) for kept in variant.states)
    return Bound(variant, sizes, elements, places, arena, inputs, outputs, states)


def _symbols(variant: Variant, arrays: Mapping[str, Array]) -> dict[str, int]:
    found: dict[str, int] = {}
    for source in variant.symbols:
        array = arrays[source.input]
        numbers = array.reshape(-1) if source.by_value else array.shape
        if source.position >= len(numbers):
            raise AssumptionError(f"input {source.input!r} has too few elements or dims for {source.symbol}")
        value, rest = divmod(int(numbers[source.position]), source.divisor)
        least = source.least
        if rest or (least is not None and value < least) or found.setdefault(source.symbol, value) != value:
            raise AssumptionError(f"input {source.input!r} does not fit: {source.symbol}. {source.reason}".rstrip())
    return found


def _check_reach(variant: Variant, elements: Sequence[int]) -> None:
    """Memory whose size no compilation knew has indices of 32 bits."""
    narrow = {
        argument.buffer
        for launch in (*variant.steps, *variant.inner)
        for argument in launch.arguments
        if argument.kind == "buffer" and not any(other.wide for other in launch.arguments)
    }
    for number in narrow:
        symbolic = not variant.buffers[number].elements.isdigit()
        if symbolic and elements[number] >= MOST_ELEMENTS:
            raise InputError(
                f"{variant.buffers[number].name!r} has {elements[number]} elements, more than the 2^31 that code for "
                "sizes that are not known reaches; compile the model for these (dims={NAME: N})"
            )


def _places(buffers: Sequence[Buffer], elements: Sequence[int]) -> tuple[dict[int, int], int]:
    """Offsets of the buffers in the arena: the largest first, each where nothing lies that lives at the same time."""
    sizes = {
        number: -(-bytes_of(buffer, count) // ALIGNMENT) * ALIGNMENT
        for number, (buffer, count) in enumerate(zip(buffers, elements, strict=True))
        if buffer.kind == "arena"
    }
    places: dict[int, int] = {}
    for number in sorted(sizes, key=lambda n: (-sizes[n], n)):
        own = buffers[number]
        beside = sorted(
            (places[other], places[other] + sizes[other])
            for other in places
            if buffers[other].first <= own.last and own.first <= buffers[other].last
        )
        at = 0
        for begin, end in beside:
            if at + sizes[number] <= begin:
                break
            at = max(at, end)
        places[number] = at
    return places, max((places[number] + size for number, size in sizes.items()), default=0)


def bytes_of(buffer: Buffer, elements: int) -> int:
    """The bytes of a buffer."""
    return elements * dtypes.numpy_dtype(buffer.dtype).itemsize


def is_empty(grid: Sequence[int]) -> bool:
    """Whether a launch has nothing to do."""
    return math.prod(grid) == 0

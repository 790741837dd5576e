"""Loops of few trips whose bodies are all laid out in a row: in which order, and how much is loaded then.

What is loaded and needed again stays in a register as long as there are enough. In the order of the loop, a depthwise
convolution over planes loads a row of its input for every tap that reads it; with all its taps laid out, those that
read one row follow each other, and it is loaded once.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from opweld.tensor.dim import Dim
from opweld.tensor.expr import Load, loads
from opweld.tile.tile import Accumulate, Loop

Place: TypeAlias = tuple[str, Dim]
"""What a load reads: the buffer, and the offset."""


@dataclass(frozen=True)
class Step:
    """An accumulation of one body and one row: for each of its vectors, the accumulator and what is loaded."""

    accumulators: tuple[Hashable, ...]
    loaded: tuple[tuple[Place, ...], ...]


@dataclass(frozen=True)
class Layout:
    """Steps in the order in which they are written.

    Attributes:
        order: numbers of the steps. Every accumulator adds up in the order of the loop.
        breaks: positions in `order` before which everything that was loaded is given up.
        loads: how many loads are made.
        held: the most registers taken at a time.
    """

    order: tuple[int, ...]
    breaks: frozenset[int]
    loads: int
    held: int


def trips_of(loop: Loop) -> int | None:
    """How many bodies follow each other where all of them are laid out; None where the loop stays a loop."""
    trips = (loop.end - loop.lower).constant
    whole = trips is not None and 1 < trips <= loop.unroll and not loop.fetches
    return trips if whole and all(isinstance(item, Accumulate) for item in loop.body) else None


def reads_of(item: Accumulate) -> list[Load]:
    """What an accumulation loads from memory."""
    return [node for node in loads(item.value) if node.indices]


def lay_out(steps: Sequence[Step], registers: int) -> Layout:
    """The order of the fewest loads, and then registers: that of the steps, or by the address of an operand."""
    orders = [tuple(range(len(steps)))]
    for operand in range(min(len(step.loaded[0]) for step in steps)):
        order = _by_address(steps, operand)
        if order not in orders and _keeps_sums(steps, order):
            orders.append(order)
    return min((_layout(steps, order, registers) for order in orders), key=lambda layout: (layout.loads, layout.held))


def _by_address(steps: Sequence[Step], operand: int) -> tuple[int, ...]:
    """The steps by the address of an operand's first vector: by the multiples of sizes in it, then by its constant."""
    offsets = [dict(step.loaded[0][operand][1].terms) for step in steps]
    monomials = sorted({monomial for offset in offsets for monomial in offset}, key=len, reverse=True)
    differing = [m for m in monomials if len({offset.get(m, 0) for offset in offsets}) > 1]
    addresses = [tuple(offset.get(monomial, 0) for monomial in differing) for offset in offsets]
    return tuple(sorted(range(len(steps)), key=addresses.__getitem__))


def _keeps_sums(steps: Sequence[Step], order: Sequence[int]) -> bool:
    """Whether the steps of every accumulator follow each other as before: a sum in another order is another sum."""
    last: dict[Hashable, int] = {}
    for number in order:
        for accumulator in steps[number].accumulators:
            if last.get(accumulator, -1) > number:
                return False
            last[accumulator] = number
    return True


def _layout(steps: Sequence[Step], order: tuple[int, ...], registers: int) -> Layout:
    """The order with a break wherever what is held would not fit the registers."""
    accumulators = len({accumulator for step in steps for accumulator in step.accumulators})
    last: dict[Place, int] = {}
    for position, number in enumerate(order):
        last.update((place, position) for places in steps[number].loaded for place in places)
    held: set[Place] = set()
    breaks: set[int] = set()
    made = most = 0
    for position, number in enumerate(order):
        needed = {place for places in steps[number].loaded for place in places}
        if accumulators + len(held | needed) > registers and held:
            breaks.add(position)
            held.clear()
        made += len(needed - held)
        held |= needed
        most = max(most, len(held))
        held -= {place for place in needed if last[place] == position}
    return Layout(order, frozenset(breaks), made, accumulators + most)

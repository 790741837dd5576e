"""A recurrence under construction: states, step tensors, and its results.

A recurrence of one step is not a loop: its step tensors become ordinary tensors, which fuse like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from opweld import ir
from opweld.ops.emitted import Body, Emitted, emit
from opweld.ops.registry import Lowering, fresh_axes
from opweld.tensor.dim import ZERO, Axis, Dim
from opweld.tensor.dtype import DType
from opweld.tensor.program import Scan, State, Tensor


@dataclass(frozen=True, eq=False)
class Carried:
    """A state: `before` is an element of it before the step."""

    name: str
    dtype: DType
    shape: tuple[Dim, ...]
    initial: Body
    before: Body


@dataclass(frozen=True)
class Outcome:
    """The results of a recurrence: `stacked` is an element of the chosen step tensor, time first; `last` the final
    states."""

    stacked: Body
    last: tuple[Body, ...]


class Loop(Protocol):
    """The operations with which the formula of one step is written."""

    time: Dim

    def state(self, shape: Sequence[Dim], dtype: DType, initial: Body, hint: str) -> Carried:
        """A value carried from step to step."""
        ...

    def step(self, shape: Sequence[Dim], body: Body, hint: str) -> Emitted:
        """A tensor that every step computes, in order."""
        ...

    def close(self, updates: Sequence[tuple[Carried, Emitted]], stacked: Emitted) -> Outcome:
        """Ends the step: each state takes the value of its step tensor."""
        ...


def loop_over(scope: Lowering, node: ir.Node, steps: Dim) -> Loop:
    """A recurrence of the given number of steps."""
    return SingleStep(scope) if steps.constant == 1 else ScanLoop(scope, node, steps)


class SingleStep:
    """A recurrence of exactly one step, written out."""

    def __init__(self, scope: Lowering) -> None:
        self.scope = scope
        self.time = ZERO

    def state(self, shape: Sequence[Dim], dtype: DType, initial: Body, hint: str) -> Carried:
        """The state before the only step is the initial one."""
        return Carried(hint, dtype, tuple(shape), initial, initial)

    def step(self, shape: Sequence[Dim], body: Body, hint: str) -> Emitted:
        """An ordinary tensor."""
        return emit(self.scope, shape, body, hint)

    def close(self, updates: Sequence[tuple[Carried, Emitted]], stacked: Emitted) -> Outcome:
        """The step tensors are the results."""
        return Outcome(lambda i: stacked.at(i[1:]), tuple(update.at for _, update in updates))


class ScanLoop:
    """A recurrence that becomes a `Scan`."""

    def __init__(self, scope: Lowering, node: ir.Node, steps: Dim) -> None:
        self.scope, self.node = scope, node
        self.axis = Axis("t", steps)
        self.time = self.axis.dim
        self.steps: list[Tensor] = []

    def state(self, shape: Sequence[Dim], dtype: DType, initial: Body, hint: str) -> Carried:
        """A state of the scan."""
        name = self.scope.unique(hint)
        return Carried(name, dtype, tuple(shape), initial, Emitted(name, dtype).at)

    def step(self, shape: Sequence[Dim], body: Body, hint: str) -> Emitted:
        """A step tensor of the scan."""
        axes = fresh_axes(shape)
        element = body(tuple(axis.dim for axis in axes))
        name = self.scope.unique(hint)
        self.steps.append(Tensor(name, element.dtype, axes, element, (self.node.name or "",)))
        return Emitted(name, element.dtype)

    def close(self, updates: Sequence[tuple[Carried, Emitted]], stacked: Emitted) -> Outcome:
        """Adds the scan."""
        states: list[State] = []
        finals: list[tuple[str, str]] = []
        for carried, update in updates:
            axes = fresh_axes(carried.shape)
            initial = carried.initial(tuple(axis.dim for axis in axes))
            states.append(State(carried.name, carried.dtype, axes, initial, update.name))
            finals.append((self.scope.unique(f"{carried.name}_last"), carried.name))
        every = self.scope.unique(f"{stacked.name}_all")
        origin = (self.node.name or "",)
        self.scope.add(
            Scan(self.axis, tuple(states), tuple(self.steps), ((every, stacked.name),), tuple(finals), origin)
        )
        last = tuple(Emitted(name, c.dtype).at for (name, _), (c, _) in zip(finals, updates, strict=True))
        return Outcome(Emitted(every, stacked.dtype).at, last)

"""A Loop as nodes: the nodes before its first iteration, those of an iteration, and loop-carried values.

The body becomes a segment of its own, entered repeatedly while a condition holds:

    before     iteration = 0;  go = condition and 0 < trip count;  states = initial values
    segment    if go:   the body;  next = iteration + 1;  again = condition of the body and next < trip count;
                        iteration, go, states = next, again, results of the body;  back to the segment
               else:    the nodes after the loop

A state that the body hands on as it is, as exporters of TensorFlow's loops pass weights, is no state: the body reads
its initial value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from opweld import ir
from opweld.errors import ModelError
from opweld.frontend.segment import resolved
from opweld.frontend.values import constant_fact
from opweld.ops.fact import Fact
from opweld.ops.operands import describe, given, required
from opweld.ops.registry import required_attribute


@dataclass(frozen=True, eq=False)
class LoopParts:
    """The values and nodes of a Loop.

    Attributes:
        before, after: nodes that come before the first iteration, and after the body in each of them.
        go, first_go, next_go: the condition of another iteration: loop-carried, initial, and after the body.
        carried: (loop-carried, initial, after the body) of the iteration's number and of the states.
        unchanged: (input of the body, initial value) of states that no iteration changes.
        results: (output of the loop, final state).
        stacked: (output of the loop, what each iteration appends to it).
        constants: facts of the constants that the nodes need.
    """

    node: ir.Node
    body: ir.Graph
    before: tuple[ir.Node, ...]
    after: tuple[ir.Node, ...]
    go: ir.Value
    first_go: ir.Value
    next_go: ir.Value
    carried: tuple[tuple[ir.Value, ir.Value, ir.Value], ...]
    unchanged: tuple[tuple[ir.Value, ir.Value], ...]
    results: tuple[tuple[ir.Value, ir.Value], ...]
    stacked: tuple[tuple[ir.Value, ir.Value], ...]
    constants: dict[ir.Value, Fact]

    @property
    def moves(self) -> Iterator[tuple[ir.Value, ir.Value, ir.Value]]:
        """(loop-carried, initial, after the body) of all loop-carried values."""
        yield self.go, self.first_go, self.next_go
        yield from self.carried

    @property
    def initial(self) -> tuple[tuple[ir.Value, ir.Value], ...]:
        """(loop-carried, initial) of all loop-carried values."""
        return tuple((name, first) for name, first, _ in self.moves)

    def beginning(self, go: ir.Value, values: Iterable[ir.Value]) -> LoopParts:
        """The same with other initial values of `go` and of loop-carried values."""
        carried = zip(self.carried, values, strict=True)
        return replace(
            self, first_go=go, carried=tuple((name, begins, following) for (name, _, following), begins in carried)
        )


def loop_parts(node: ir.Node, name: Callable[[str], str], copy: ir.Graph | None = None) -> LoopParts:
    """The parts of a Loop; `name` creates unique names, `copy` replaces its body. Raises ModelError when its body does
    not match."""
    body: ir.Graph = required_attribute(node, "body") if copy is None else copy
    trips, condition = given(node, 0), given(node, 1)
    initial = [value for value in node.inputs[2:] if value is not None]
    stacked = len(node.outputs) - len(initial)
    fits = len(body.inputs) == 2 + len(initial) and len(body.outputs) == 1 + len(node.outputs) and stacked >= 0
    if not fits or len(initial) != len(node.inputs[2:]):
        raise ModelError(
            f"{describe(node)}: a body with {len(body.inputs)} inputs and {len(body.outputs)} outputs does not fit a "
            f"loop of {len(initial)} states and {len(node.outputs)} outputs"
        )
    made = _Maker(node, name)
    zero, one = made.constant("zero", np.array(0, np.int64)), made.constant("one", np.array(1, np.int64))
    iteration, inner = body.inputs[:2]
    before, after = made.nodes("first"), made.nodes("next")
    first_go = before.whether(zero, trips, condition)
    next_iteration = after.emit("Add", iteration, one)
    next_go = after.whether(next_iteration, trips, body.outputs[0])
    # Inside the body the condition holds.
    made.known(inner, np.array(True))
    states = list(zip(body.inputs[2:], initial, body.outputs[1:], strict=False))
    same = {node.outputs[0]: required(node, 0) for node in body if node.op_type == "Identity"}
    changed = [moves for moves in states if resolved(same, moves[2]) is not moves[0]]
    return LoopParts(
        node,
        body,
        tuple(before.made),
        tuple(after.made),
        made.value("go"),
        first_go,
        next_go,
        ((iteration, zero, next_iteration), *changed),
        tuple(moves[:2] for moves in states if moves not in changed),
        tuple(zip(node.outputs, body.inputs[2:], strict=False)),
        tuple(zip(node.outputs[len(initial) :], body.outputs[1 + len(initial) :], strict=True)),
        made.facts,
    )


class _Maker:
    def __init__(self, node: ir.Node, name: Callable[[str], str]) -> None:
        self.node = node
        self._name = name
        self.facts: dict[ir.Value, Fact] = {}

    def value(self, name: str) -> ir.Value:
        return ir.Value(self._name(f"{self.node.name}/{name}"))

    def known(self, value: ir.Value, array: np.ndarray[Any, Any]) -> ir.Value:
        value.stored = ir.Stored.of(array)
        self.facts[value] = constant_fact(value)
        return value

    def constant(self, name: str, array: np.ndarray[Any, Any]) -> ir.Value:
        return self.known(self.value(name), array)

    def nodes(self, name: str) -> _Nodes:
        return _Nodes(self, name)


class _Nodes:
    """A sequence of nodes under construction."""

    def __init__(self, maker: _Maker, name: str) -> None:
        self._maker, self._name = maker, name
        self.made: list[ir.Node] = []

    def emit(self, op_type: str, *inputs: ir.Value) -> ir.Value:
        output = self._maker.value(f"{self._name}{len(self.made)}")
        self.made.append(ir.Node(op_type, inputs, [output], name=self._maker.node.name))
        return self.made[-1].outputs[0]

    def whether(self, iteration: ir.Value, trips: ir.Value | None, condition: ir.Value | None) -> ir.Value:
        """Whether there is an iteration of this number, as a scalar."""
        scalar = self._maker.constant("no axes", np.array([], np.int64))
        parts = [] if condition is None else [self.emit("Reshape", condition, scalar)]
        if trips is not None:
            parts.append(self.emit("Less", iteration, self.emit("Reshape", trips, scalar)))
        if not parts:
            return self._maker.constant("true", np.array(True))
        return parts[0] if len(parts) == 1 else self.emit("And", *parts)

"""Scan: a recurrence whose step is a graph.

What a step computes from the scanned inputs alone is hoisted: computed for all steps at once, before the recurrence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from opweld import ir
from opweld.errors import ModelError, UnsupportedError
from opweld.ops.emitted import Body, Emitted, Indices, define
from opweld.ops.fact import Fact
from opweld.ops.operands import describe, normalize_axis, require_rank, required, wanted
from opweld.ops.registry import Inference, Lowering, attribute, fresh_axes, infers, lowers, required_attribute
from opweld.tensor.dim import ONE, ZERO, Axis, Dim
from opweld.tensor.expr import Expr, Load, Reduce, load, substitute, substitute_loads, walk
from opweld.tensor.program import Extern, Item, Scan, State, Tensor, item_inputs


@dataclass(frozen=True)
class Scanned:
    """The inputs and outputs of a Scan: (value, axis of time, whether it runs backwards) of the scanned ones."""

    body: ir.Graph
    states: tuple[ir.Value, ...]
    inputs: tuple[tuple[ir.Value, int, bool], ...]
    outputs: tuple[tuple[ir.Value | None, int, bool], ...]


def scanned(scope: Inference | Lowering, node: ir.Node) -> Scanned:
    """The parts of a node; ModelError when they do not match."""
    body, count = required_attribute(node, "body"), int(required_attribute(node, "num_scan_inputs"))
    states = len(body.inputs) - count
    stacked = len(body.outputs) - states
    if not 0 < count <= len(body.inputs) or len(node.inputs) != len(body.inputs) or stacked < 0:
        raise ModelError(
            f"{describe(node)}: {len(node.inputs)} inputs, {count} of them scanned, do not fit a body of "
            f"{len(body.inputs)} inputs and {len(body.outputs)} outputs"
        )
    values = [required(node, position) for position in range(len(body.inputs))]
    axes, reverse = _numbers(node, "scan_input_axes", count), _numbers(node, "scan_input_directions", count)
    inputs = [
        (value, normalize_axis(axis, require_rank(scope.fact(value), 1, node).rank, node), bool(backwards))
        for value, axis, backwards in zip(values[states:], axes, reverse, strict=True)
    ]
    directions = _numbers(node, "scan_output_directions", stacked)
    outputs = [
        (wanted(node, states + position), axis, bool(backwards))
        for position, (axis, backwards) in enumerate(
            zip(_numbers(node, "scan_output_axes", stacked), directions, strict=True)
        )
    ]
    return Scanned(body, tuple(values[:states]), tuple(inputs), tuple(outputs))


def _numbers(node: ir.Node, name: str, count: int) -> list[int]:
    values = [int(value) for value in attribute(node, name, None) or [0] * count]
    if len(values) != count:
        raise ModelError(f"{describe(node)}: {name} has {len(values)} numbers for {count} values")
    return values


@infers("Scan")
def infer_scan(scope: Inference, node: ir.Node) -> list[Fact]:
    """The facts of the states, then those of the body's other outputs with an axis of time."""
    parts = scanned(scope, node)
    states = [Fact(fact.dtype, fact.shape) for fact in map(scope.fact, parts.states)]
    steps = _steps(scope, parts)
    elements: list[Fact] = []
    for value, axis, _ in parts.inputs:
        fact = scope.fact(value)
        scope.same(fact.shape[axis], steps, node, "all scanned inputs have one length")
        elements.append(Fact(fact.dtype, (*fact.shape[:axis], *fact.shape[axis + 1 :])))
    found = scope.body(parts.body, [*states, *elements])
    for state, after in zip(states, found, strict=False):
        if after.dtype is not state.dtype or after.rank != state.rank:
            raise ModelError(
                f"{describe(node)}: a state of {state.dtype!r}{list(state.shape)} becomes "
                f"{after.dtype!r}{list(after.shape)}"
            )
        for before, behind in zip(state.shape, after.shape, strict=True):
            scope.same(before, behind, node, "a state keeps its shape")
    results = list(states)
    for (_, axis, _), fact in zip(parts.outputs, found[len(states) :], strict=True):
        at = normalize_axis(axis, fact.rank + 1, node)
        results.append(Fact(fact.dtype, (*fact.shape[:at], steps, *fact.shape[at:])))
    return results


def _steps(scope: Inference | Lowering, parts: Scanned) -> Dim:
    value, axis, _ = parts.inputs[0]
    return scope.fact(value).shape[axis]


@lowers("Scan")
def lower_scan(scope: Lowering, node: ir.Node) -> None:
    """The body's tensors become step tensors; those that need no state are hoisted."""
    parts = scanned(scope, node)
    time = Axis("t", _steps(scope, parts))
    single = time.extent is ONE
    origin = (node.name or "",)
    names: dict[ir.Value, str] = {}
    for inner, value in zip(parts.body.inputs, parts.states, strict=False):
        names[inner] = scope.tensor(value) if single else scope.unique(inner.name or "state")
    carried = [names[inner] for inner in parts.body.inputs[: len(parts.states)]]
    elements = [
        _element(scope, parts, position, ZERO if single else time.dim, origin) for position in range(len(parts.inputs))
    ]
    names.update(zip(parts.body.inputs[len(parts.states) :], (tensor.name for tensor in elements), strict=True))
    items = [*elements, *scope.body(parts.body, names)]
    results = [Emitted(scope.tensor(value), scope.fact(value).dtype) for value in parts.body.outputs]
    if single:
        for item in items:
            scope.add(item)
        last, stacked = [result.at for result in results], [_of_step(result) for result in results[len(carried) :]]
    else:
        steps = _Steps(scope, node, time, set(carried))
        steps.settle(items)
        last, stacked = _recurrence(scope, parts, steps, carried, results)
    for position, body in enumerate(last[: len(carried)]):
        output = wanted(node, position)
        if output is not None:
            define(scope, output, body)
    for (output, axis, backwards), body in zip(parts.outputs, stacked, strict=True):
        if output is not None:
            define(scope, output, _in_place(body, axis % scope.fact(output).rank, backwards, time.extent))


def _of_step(tensor: Emitted) -> Body:
    """A stacked tensor that is the same at each step."""
    return lambda i: tensor.at(i[1:])


def _element(scope: Lowering, parts: Scanned, position: int, time: Dim, origin: tuple[str, ...]) -> Tensor:
    """The element of a scanned input that one step reads."""
    value, axis, backwards = parts.inputs[position]
    fact = scope.fact(value)
    at = fact.shape[axis] - 1 - time if backwards else time
    axes = fresh_axes((*fact.shape[:axis], *fact.shape[axis + 1 :]))
    indices = [a.dim for a in axes]
    element = scope.load(value, (*indices[:axis], at, *indices[axis:]))
    return Tensor(scope.unique("element"), fact.dtype, axes, element, origin)


def _in_place(body: Body, axis: int, backwards: bool, steps: Dim) -> Body:
    """An element of a stacked output, whose axis of time is not the first, or runs backwards."""

    def moved(i: Indices) -> Expr:
        time = steps - 1 - i[axis] if backwards else i[axis]
        return body((time, *i[:axis], *i[axis + 1 :]))

    return moved


class _Steps:
    """The tensors of a step, and those that were hoisted out of the recurrence: `stacked` ones have a time axis
    there."""

    def __init__(self, scope: Lowering, node: ir.Node, time: Axis, states: set[str]) -> None:
        self.scope, self.node, self.time = scope, node, time
        self.dependent = set(states)
        self.steps: list[Tensor] = []
        self.stacked: set[str] = set()

    def settle(self, items: Sequence[Item]) -> None:
        """Hoists items that do not depend on the states."""
        for item in items:
            dependent = any(name in self.dependent for name in item_inputs(item))
            if not isinstance(item, Tensor):
                if dependent or self._uses_time(item):
                    what = "a recurrence" if isinstance(item, Scan) else f"what {item.function!r} computes"
                    raise UnsupportedError(
                        f"{describe(self.node)}: {what} inside of the body is not supported yet; write it as a Loop"
                    )
                self.scope.add(item)
            elif dependent:
                self.step(item)
            elif self._uses_time(item):
                self._stack(item)
            else:
                self.scope.add(item)

    def step(self, tensor: Tensor) -> None:
        """Adds a tensor that each step computes."""
        body = self.at_time(tensor.body, self.time.dim)
        if sum(isinstance(part, Reduce) for part in walk(body)) > 1:
            raise UnsupportedError(
                f"{describe(self.node)}: a node of the body ({', '.join(tensor.origin)}) that computes several "
                "reductions at once from a state is not supported yet"
            )
        self.steps.append(Tensor(tensor.name, tensor.dtype, tensor.axes, body, tensor.origin))
        self.dependent.add(tensor.name)

    def at_time(self, body: Expr, time: Dim) -> Expr:
        """The expression with stacked tensors loaded at a step."""

        def replace(found: Load) -> Expr | None:
            if found.tensor not in self.stacked:
                return None
            return load(found.tensor, found.dtype, (time, *found.indices), found.guards, found.fill)

        return substitute_loads(body, replace)

    def _uses_time(self, item: Item) -> bool:
        if any(name in self.stacked for name in item_inputs(item)):
            return True
        if isinstance(item, Extern):
            return any(self.time in dim.atoms for dim in (*item.numbers, item.rows))
        bodies = [item.body] if isinstance(item, Tensor) else [t.body for t in item.steps]
        return any(self.time in body.atoms for body in bodies)

    def _stack(self, tensor: Tensor) -> None:
        axis = Axis("t", self.time.extent)
        body = substitute(self.at_time(tensor.body, axis.dim), {self.time: axis.dim})
        self.scope.add(Tensor(tensor.name, tensor.dtype, (axis, *tensor.axes), body, tensor.origin))
        self.stacked.add(tensor.name)


def _recurrence(
    scope: Lowering, parts: Scanned, steps: _Steps, carried: Sequence[str], results: Sequence[Emitted]
) -> tuple[list[Body], list[Body]]:
    """Adds the recurrence; the states after it, and the stacked outputs, time first."""
    origin = (steps.node.name or "",)
    inner: Mapping[str, Tensor] = {step.name: step for step in steps.steps}
    taken: set[str] = set()

    def as_step(result: Emitted, shape: Sequence[Dim], alone: bool) -> str:
        """The step tensor that is the result: a copy, where it is not a step tensor, or (alone) already used."""
        if result.name in inner and not (alone and result.name in taken):
            taken.add(result.name)
            return result.name
        axes = fresh_axes(shape)
        name = scope.unique("copy")
        steps.step(Tensor(name, result.dtype, axes, result.at([axis.dim for axis in axes]), origin))
        return name

    states: list[State] = []
    finals: list[tuple[str, str]] = []
    for name, value, result in zip(carried, parts.states, results, strict=False):
        fact = scope.fact(value)
        axes = fresh_axes(fact.shape)
        update = as_step(result, [axis.extent for axis in axes], alone=True)
        initial = scope.load(value, [axis.dim for axis in axes])
        states.append(State(name, result.dtype, axes, initial, update))
        finals.append((scope.unique("last"), name))
    pairs: list[tuple[str, str]] = []
    stacked: list[Body] = []
    for value, result in zip(parts.body.outputs[len(carried) :], results[len(carried) :], strict=True):
        if result.name in steps.stacked:
            stacked.append(result.at)
        elif result.name not in steps.dependent:
            stacked.append(_of_step(result))
        else:
            pairs.append((scope.unique("all"), as_step(result, scope.fact(value).shape, alone=False)))
            stacked.append(Emitted(pairs[-1][0], result.dtype).at)
    if states:
        scope.add(Scan(steps.time, tuple(states), tuple(steps.steps), tuple(pairs), tuple(finals), origin))
    return [Emitted(name, state.dtype).at for (name, _), state in zip(finals, states, strict=True)], stacked

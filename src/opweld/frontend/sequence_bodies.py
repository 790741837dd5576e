"""Branches, loops and maps over sequences: unrolled, or rewritten to tensors."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from opweld.errors import ModelError, UnsupportedError
from opweld.frontend.nodes import required_attribute
from opweld.frontend.sequence_scope import Listed, Pieces, Result, SequenceScope
from opweld.ops.operands import describe, given, required

MAX_ITERATIONS = 10_000
"""The most iterations of an unrolled loop."""


def sequence_map(scope: SequenceScope, node: ir.Node) -> list[Result]:
    """The body once for each element, in place of the node."""
    body = required_attribute(node, "body")
    columns = [scope.result(required(node, position)) for position in range(len(node.inputs))]
    if len(columns) != len(body.inputs) or len(node.outputs) != len(body.outputs):
        raise ModelError(f"{describe(node)}: its inputs and outputs are not those of its body")
    scope.drop(body)
    first, *_ = columns
    sequences = [column for column in columns if not isinstance(column, ir.Value)]
    if not isinstance(first, Listed) or any(
        not isinstance(column, Listed) or len(column.values) != len(first.values) for column in sequences
    ):
        raise UnsupportedError(f"{describe(node)}: its sequences must be lists of one length")
    rows = [
        scope.written_out(node, body, [c.values[n] if isinstance(c, Listed) else c for c in columns], n)
        for n in range(len(first.values))
    ]
    return [Listed(_tensors(node, [row[position] for row in rows])) for position in range(len(body.outputs))]


def branch(scope: SequenceScope, node: ir.Node) -> list[Result] | None:
    """The branch that a known condition takes; else both, with the tensors of their results."""
    then, otherwise = required_attribute(node, "then_branch"), required_attribute(node, "else_branch")
    if not scope.concerns(then) and not scope.concerns(otherwise):
        return scope.look_into(node)
    if scope.number(required(node, 0)) is not None:
        condition = scope.known(node, required(node, 0), "condition")
        scope.drop(then, otherwise)
        taken = scope.written_out(node, then if condition.all() else otherwise, [], 0)
        if len(taken) != len(node.outputs):
            raise ModelError(f"{describe(node)}: its branch gives {len(taken)} outputs, and it has {len(node.outputs)}")
        return taken
    scopes = [scope.inner(then), scope.inner(otherwise)]
    first, second = (inner.results() for inner in scopes)
    if len(first) != len(second) or len(first) != len(node.outputs):
        raise ModelError(f"{describe(node)}: its branches give {len(first)} and {len(second)} outputs")
    if any(_count(one) != _count(other) for one, other in zip(first, second, strict=True)):
        # The choice determines the structure of the result.
        scope.known(node, required(node, 0), "condition")
    for inner, results in zip(scopes, (first, second), strict=True):
        inner.finish([inner.new(None, "Identity", [value])[0] for result in results for value in _values(result)])
    graphs = {"then_branch": then, "else_branch": otherwise}
    given_out = iter(scope.new(node, "If", [required(node, 0)], sum(map(_number, first)), graphs))
    return [_of(result, [next(given_out) for _ in range(_number(result))]) for result in first]


def _values(result: Result) -> Sequence[ir.Value]:
    match result:
        case ir.Value():
            return (result,)
        case Listed(values):
            return values
        case _:
            return ()


def _number(result: Result) -> int:
    return len(_values(result))


def _count(result: Result) -> tuple[type, int]:
    """The structure in which two branches must agree."""
    return (ir.Value if isinstance(result, ir.Value) else type(result)), _number(result)


def _of(result: Result, values: Sequence[ir.Value]) -> Result:
    """A result of the same structure with other tensors."""
    match result:
        case ir.Value():
            return values[0]
        case Listed():
            return Listed(tuple(values))
        case _:
            return result


def loop(scope: SequenceScope, node: ir.Node) -> list[Result] | None:
    """An unrolled loop, if a sequence is among its states."""
    body = required_attribute(node, "body")
    states = [scope.result(required(node, position)) for position in range(2, len(node.inputs))]
    if all(isinstance(state, ir.Value) for state in states):
        return scope.look_into(node)
    stacked = len(node.outputs) - len(states)
    if len(body.inputs) != 2 + len(states) or len(body.outputs) != 1 + len(node.outputs) or stacked < 0:
        raise ModelError(f"{describe(node)}: its body does not fit a loop of {len(states)} states")
    trips, go = given(node, 0), given(node, 1)
    if any(value is not None and scope.number(value) is None for value in (trips, go)):
        collected = _collected(scope, node, body, states)
        if collected is not None:
            return collected
    scope.drop(body)
    limit = MAX_ITERATIONS + 1 if trips is None else int(scope.known(node, trips, "trip count").flat[0])
    rows: list[list[Result]] = []
    while len(rows) < limit and (go is None or scope.known(node, go, "condition").all()):
        if len(rows) == MAX_ITERATIONS:
            raise UnsupportedError(f"{describe(node)}: has sequences, and more than {MAX_ITERATIONS:,} iterations")
        number = len(rows)
        inputs = [scope.constant(node, number), scope.constant(node, True), *states]
        again, *results = scope.written_out(node, body, inputs, number)
        assert isinstance(again, ir.Value)
        go, states = again, results[: len(states)]
        rows.append(results[len(states) :])
    if stacked and not rows:
        raise UnsupportedError(f"{describe(node)}: a loop of no iterations, whose outputs have no known shape")
    return [*states, *(_stacked(scope, node, [row[i] for row in rows]) for i in range(stacked))]


def _collected(scope: SequenceScope, node: ir.Node, body: ir.Graph, states: Sequence[Result]) -> list[Result] | None:
    """A loop that only appends a tensor of one shape to each of its sequences: the tensors become outputs of
    iterations, which the loop stacks. None for other loops, and where such a sequence is an output of the model, since
    its length must be known."""
    appended: dict[int, ir.Value] = {}
    for place, state in enumerate(states):
        if isinstance(state, ir.Value):
            continue
        if node.outputs[place].is_graph_output():
            return None
        held, output = body.inputs[2 + place], body.outputs[1 + place]
        insert = output.producer()
        if state != Listed(()) or insert is None or insert.op_type != "SequenceInsert" or len(insert.inputs) != 2:
            return None
        if insert.inputs[0] is not held or len(held.uses()) > 1 or output.uses() or insert.inputs[1] is None:
            return None
        appended[place] = insert.inputs[1]
    kept = [place for place in range(len(states)) if place not in appended]
    again, *results = body.outputs
    inner = scope.inner(body)
    items = [inner.new(None, "Identity", [value])[0] for value in appended.values()]
    body.outputs[:] = [again, *(results[place] for place in kept), *results[len(states) :], *items]
    for place in sorted(appended, reverse=True):
        insert = results[place].producer()
        assert insert is not None
        body.remove(insert, safe=True)
        del body.inputs[2 + place]
    inner.finish(_tensors(node, inner.results()))
    fed = [given(node, 0), given(node, 1), *_tensors(node, [states[place] for place in kept])]
    made = list(scope.new(node, "Loop", fed, len(body.outputs) - 1, {"body": body}))
    whole = dict(zip(appended, made[len(made) - len(appended) :], strict=True))
    tensors = iter(made)
    return [
        *(Pieces(whole[p], 0, 1, dropped=True) if p in whole else next(tensors) for p in range(len(states))),
        *(next(tensors) for _ in range(len(node.outputs) - len(states))),
    ]


def _stacked(scope: SequenceScope, node: ir.Node, results: Sequence[Result]) -> ir.Value:
    place = scope.constant(node, [0])
    rows = [scope.new(node, "Unsqueeze", [value, place])[0] for value in _tensors(node, results)]
    return scope.new(node, "Concat", rows, attributes={"axis": 0})[0]


def _tensors(node: ir.Node, results: Sequence[Result]) -> tuple[ir.Value, ...]:
    values = tuple(result for result in results if isinstance(result, ir.Value))
    if len(values) < len(results):
        raise UnsupportedError(f"{describe(node)}: its body gives a sequence of sequences, which is not supported")
    return values

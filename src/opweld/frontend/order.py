"""The order of nodes in a graph file: every value defined once, before it is used, and no cycles."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence, Set

import onnx

from opweld.errors import ModelError, in_line


def sort_nodes(graph: onnx.GraphProto, outer: Sequence[Set[str]] = ()) -> None:
    """Sorts the nodes of a graph and its bodies in place in topological order; stable.

    `outer` are the names that the graphs around it define, one set for each. Raises ModelError for a value defined
    twice, an undefined value, and a cycle.
    """
    given = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    maker: dict[str, int] = {}
    for position, node in enumerate(graph.node):
        for name in filter(None, node.output):
            if name in maker or name in given:
                raise ModelError(f"{title_of(node)}: value {name[:200]!r} is defined twice")
            maker[name] = position
    needs = [_needs(node, maker, (given, *outer)) for node in graph.node]
    order = _kahn(graph, needs)
    if order != sorted(order):
        nodes = [graph.node[position] for position in order]
        copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
        del graph.node[:]
        graph.node.extend(copies)
    for value in graph.output:
        if value.name not in maker and not _is_in(value.name, (given, *outer)):
            raise ModelError(f"output {value.name[:200]!r} of the graph is not defined")
    visible = (maker.keys(), given, *outer)
    for node in graph.node:
        for body in bodies_of(node):
            sort_nodes(body, visible)


def title_of(node: onnx.NodeProto) -> str:
    """The node for error messages."""
    return f"node {node.name[:200]!r} ({in_line(node.op_type[:100])})"


def bodies_of(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs inside a node, as of If and Loop."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _is_in(name: str, scopes: Sequence[Set[str]]) -> bool:
    return any(name in scope for scope in scopes)


def _needs(node: onnx.NodeProto, maker: dict[str, int], given: Sequence[Set[str]]) -> set[int]:
    needs: set[int] = set()
    for name in filter(None, node.input):
        if name in maker:
            needs.add(maker[name])
        elif not _is_in(name, given):
            raise ModelError(f"{title_of(node)}: input {name[:200]!r} is not defined; the model is incomplete")
    for body in bodies_of(node):
        needs |= {maker[name] for name in captured(body) if name in maker}
    return needs


def captured(graph: onnx.GraphProto) -> set[str]:
    """The names that a body reads but does not define."""
    own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
    read: set[str] = {value.name for value in graph.output}
    for node in graph.node:
        own.update(node.output)
        read.update(node.input)
        for body in bodies_of(node):
            read |= captured(body)
    return read - own - {""}


def _kahn(graph: onnx.GraphProto, needs: list[set[int]]) -> list[int]:
    users: list[list[int]] = [[] for _ in needs]
    waiting = [len(need) for need in needs]
    for position, need in enumerate(needs):
        for maker in need:
            users[maker].append(position)
    if all(max(need, default=-1) < position for position, need in enumerate(needs)):
        return list(range(len(needs)))
    ready = deque(position for position, count in enumerate(waiting) if not count)
    order: list[int] = []
    while ready:
        position = ready.popleft()
        order.append(position)
        for user in users[position]:
            waiting[user] -= 1
            if not waiting[user]:
                ready.append(user)
    if len(order) < len(needs):
        stuck = graph.node[next(position for position, count in enumerate(waiting) if count)]
        raise ModelError(f"{title_of(stuck)}: it depends on its own output (a cycle)")
    return order

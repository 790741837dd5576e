"""Turns groups of nodes into model-local functions, which viewers can open and runtimes inline."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

import onnx_ir as ir
from onnx_ir.passes.common import TopologicalSortPass

from opweld.frontend.nodes import values_read
from opweld.rewrite.facts import bodies_of

SMALL = 512
"""Bytes up to which a stored tensor is copied into functions that read it; larger ones become arguments."""

WITH_VALUES = 10
"""The IR version since which functions declare the types of values, and nodes have metadata."""


@dataclass(frozen=True)
class Group:
    """Nodes that are to become a function: its name, its documentation, and the metadata of its call."""

    name: str
    nodes: Sequence[ir.Node]
    description: str
    metadata: Mapping[str, str]


def make_functions(model: ir.Model, groups: Sequence[Group], domain: str) -> dict[str, str]:
    """Moves each group of nodes into a function of a domain, and replaces it by a call; the model is changed in place.

    A call needs all of its inputs before it gives any output: where groups would depend on each other in a cycle, the
    smallest of them is not moved. Returns the names of groups that are not moved, and why."""
    refused: dict[str, str] = {}
    graphs: dict[ir.Graph, dict[str, Group]] = {}
    for group in groups:
        places = {node.graph for node in group.nodes}
        place = places.pop()
        if places or not isinstance(place, ir.Graph):
            refused[group.name] = "its nodes are in several bodies"
        elif any(True for node in group.nodes for _ in bodies_of(node)):
            refused[group.name] = "it holds a node with bodies, which read values of the graph around them"
        else:
            graphs.setdefault(place, {})[group.name] = group
    for graph, own in graphs.items():
        waiting = _waiting(graph, own)
        refused |= dict.fromkeys(waiting, "a node outside of it reads one part of it and is read by another")
        for name, group in own.items():
            if name not in waiting:
                function = _function(graph, group, domain, model.opset_imports)
                model.functions[function.identifier()] = function
    if model.functions:
        model.opset_imports[domain] = 1
        model.ir_version = max(model.ir_version, WITH_VALUES)
        TopologicalSortPass()(model)
    return refused


def _waiting(graph: ir.Graph, groups: Mapping[str, Group]) -> set[str]:
    """The groups that cannot be calls, since the graph of calls would have a cycle."""
    left = dict(groups)
    while True:
        try:
            TopologicalSorter(_needs(graph, left)).prepare()
        except CycleError as error:  # the second argument is the cycle
            names = [unit for unit in error.args[1] if isinstance(unit, str)]
            del left[min(names, key=lambda name: (len(left[name].nodes), name))]
        else:
            return groups.keys() - left.keys()


def _needs(graph: ir.Graph, groups: Mapping[str, Group]) -> Mapping[Hashable, set[Hashable]]:
    """The dependencies of each group, and of each node outside of them."""
    units: dict[ir.Node, str] = {node: name for name, group in groups.items() for node in group.nodes}
    needs: dict[Hashable, set[Hashable]] = {}
    for node in graph:
        unit = units.get(node, node)
        own = needs.setdefault(unit, set())
        for value in values_read(node):
            producer = value.producer()
            if producer is not None and producer.graph is graph and units.get(producer, producer) != unit:
                own.add(units.get(producer, producer))
    return needs


def _function(graph: ir.Graph, group: Group, domain: str, opsets: Mapping[str, int]) -> ir.Function:
    """The function of a group; a call to it replaces the first of the nodes."""
    inside = set(group.nodes)
    nodes = [node for node in graph if node in inside]
    read = dict.fromkeys(v for node in nodes for v in node.inputs if v is not None and v.producer() not in inside)
    given = {value: _like(value) for value in read if not _is_small(value)}
    constants = {value: _constant(value) for value in read if value not in given}
    left = [value for node in nodes for value in node.outputs if _is_read_outside(value, inside)]
    call = ir.Node(domain, group.name, list(given), num_outputs=len(left), name=group.name)
    graph.insert_before(nodes[0], call)
    call.metadata_props.update(group.metadata)
    inner = given | {value: node.outputs[0] for value, node in constants.items()}
    for old, new in zip(left, call.outputs, strict=True):
        new.name, new.type, new.shape = old.name, old.type, None if old.shape is None else old.shape.copy()
        old.replace_all_uses_with(new, replace_graph_outputs=True)
        inner[new] = old
    for node in nodes:
        for position, value in enumerate(node.inputs):
            if value in inner:
                node.replace_input_with(position, inner[value])
    graph.remove(nodes)
    for value in constants:
        if value.graph is not None and not value.uses() and not value.is_graph_output():
            value.graph.initializers.pop(value.name or "", None)
    domains = {"", *(node.domain for node in nodes)}
    body = ir.Graph(
        list(given.values()),
        left,
        nodes=[*constants.values(), *nodes],
        opset_imports={name: version for name, version in opsets.items() if name in domains},
    )
    function = ir.Function(domain, group.name, graph=body, attributes={})
    function.doc_string = group.description
    return function


def _is_read_outside(value: ir.Value, inside: set[ir.Node]) -> bool:
    return value.is_graph_output() or any(use.node not in inside for use in value.uses())


def _is_small(value: ir.Value) -> bool:
    tensor = value.const_value
    return tensor is not None and value.producer() is None and not value.is_graph_input() and tensor.nbytes <= SMALL


def _constant(value: ir.Value) -> ir.Node:
    """A Constant node with a stored tensor."""
    assert value.const_value is not None
    node = ir.Node("", "Constant", [], [ir.AttrTensor("value", value.const_value)])
    node.outputs[0].name = value.name
    return node


def _like(value: ir.Value) -> ir.Value:
    """A value of the same name and type, as the input of a function."""
    shape = None if value.shape is None else value.shape.copy()
    return ir.Value(name=value.name, type=value.type, shape=shape)

"""Nodes of a model that is being loaded, or rewritten: their attributes and operands.

What is loaded becomes the graph of `opweld.ir`, whose nodes `ops/` accesses in the same way."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import onnx_ir as ir

from opweld.errors import ModelError
from opweld.ops.operands import describe


def attribute(node: ir.Node, name: str, default: Any) -> Any:
    """The value of an attribute, or the default when it is absent."""
    found = node.attributes.get(name)
    return default if found is None else found.value


def required_attribute(node: ir.Node, name: str) -> Any:
    """The value of an attribute that the operator must have; ModelError otherwise."""
    found = node.attributes.get(name)
    if found is None:
        raise ModelError(f"{describe(node)}: attribute {name!r} is missing")
    return found.value


def bodies(node: ir.Node) -> list[ir.Graph]:
    """The graphs inside a node."""
    found: list[ir.Graph] = []
    for attribute in node.attributes.values():
        if attribute.type is ir.AttributeType.GRAPH:
            found.append(attribute.value)
        elif attribute.type is ir.AttributeType.GRAPHS:
            found += attribute.value
    return found


def values_read(node: ir.Node) -> Iterator[ir.Value]:
    """The operands of a node, and the values that its bodies capture."""
    yield from (value for value in node.inputs if value is not None)
    for body in bodies(node):
        yield from _captured(body)


def _captured(graph: ir.Graph) -> Iterator[ir.Value]:
    own = {*graph.inputs, *graph.initializers.values(), *(value for node in graph for value in node.outputs)}
    for node in graph:
        yield from (value for value in values_read(node) if value not in own)
    yield from (value for value in graph.outputs if value not in own)

"""Verifies a graph that rules of other packages have changed, before anything else reads it."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from opweld.errors import RuleError


def check_sound(graph: ir.Graph, rules: Sequence[str]) -> None:
    """Sorts the nodes and checks that every value is defined before it is read; RuleError names the rules otherwise."""
    after = f"the graph is invalid after {', '.join(rules)}"
    for node in graph:
        for value in node.inputs:
            if value is not None and not _is_there(value):
                raise RuleError(f"{after}: node {node.name!r} reads {value.name!r}, which no node computes")
    for value in graph.outputs:
        if not _is_there(value):
            raise RuleError(f"{after}: no node computes the output {value.name!r}")
    try:
        graph.sort()
    except ValueError as error:
        raise RuleError(f"{after}: there is a cycle") from error


def _is_there(value: ir.Value) -> bool:
    producer = value.producer()
    return value.is_graph_input() or value.is_initializer() if producer is None else producer.graph is not None

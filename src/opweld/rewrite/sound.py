"""Verifies a graph that rules of other packages have changed, before anything else reads it."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from opweld.errors import RuleError


def check_sound(graph: ir.Graph, rules: Sequence[str]) -> None:
    """Every value that is read is there before; the nodes are sorted for it. RuleError names the rules otherwise."""
    after = f"the graph is not sound after {', '.join(rules)}"
    for node in graph:
        for value in node.inputs:
            if value is not None and not _is_there(value):
                raise RuleError(f"{after}: node {node.name!r} reads {value.name!r}, which nothing makes")
    for value in graph.outputs:
        if not _is_there(value):
            raise RuleError(f"{after}: nothing makes the output {value.name!r}")
    try:
        graph.sort()
    except ValueError as error:
        raise RuleError(f"{after}: a node reads what depends on its own output") from error


def _is_there(value: ir.Value) -> bool:
    maker = value.producer()
    return value.is_graph_input() or value.is_initializer() if maker is None else maker.graph is not None

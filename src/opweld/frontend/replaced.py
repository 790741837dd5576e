"""Replaces the nodes of an operator in a graph and its bodies."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import onnx

from opweld.frontend.order import bodies_of


def replace_nodes(
    graph: onnx.GraphProto, op_type: str, written: Callable[[onnx.NodeProto], Iterable[onnx.NodeProto]]
) -> None:
    """Replaces each node of an operator of ONNX's domain by the nodes that `written` returns, in place."""
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        for body in bodies_of(node):
            replace_nodes(body, op_type, written)
        nodes += written(node) if node.op_type == op_type and node.domain in ("", "ai.onnx") else [node]
    del graph.node[:]
    graph.node.extend(nodes)

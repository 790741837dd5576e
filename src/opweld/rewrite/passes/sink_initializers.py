"""Moves tensors that only one body reads into that body.

That changes nothing that is computed, and so is not a decision; but ONNX Runtime 1.31 prepacks the weights of a
convolution only where the graph of the convolution stores them: 5% of silero-vad-ifless."""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from opweld.rewrite.facts import bodies_of

LARGE = 1 << 24
"""Bytes; a larger tensor stays in the model's graph, from which it is written without a copy."""

ROOM = 1 << 30
"""Bytes of all that is moved: the size of protobuf's messages is limited."""


def sink_initializers(model: ir.Model) -> None:
    """Moves the tensors of the model's graph into the innermost body that has all their readers."""
    around = _owners(model.graph)
    room = ROOM
    for name, value in list(model.graph.initializers.items()):
        tensor = value.const_value
        if tensor is None or isinstance(tensor, ir.ExternalTensor) or tensor.nbytes > min(LARGE, room):
            continue
        home = None if value.is_graph_output() or value.is_graph_input() else _home(value, around)
        if home is not None and home is not model.graph:
            room -= int(tensor.nbytes)
            del model.graph.initializers[name]
            home.register_initializer(value)


def _owners(graph: ir.Graph) -> dict[ir.Graph, ir.Graph]:
    """For each body, the graph that contains its node."""
    found: dict[ir.Graph, ir.Graph] = {}
    for node in graph:
        for _, body in bodies_of(node):
            found[body] = graph
            found |= _owners(body)
    return found


def _home(value: ir.Value, around: Mapping[ir.Graph, ir.Graph]) -> ir.Graph | None:
    """The innermost graph that contains all readers of a value; None where there are none."""
    common: list[ir.Graph] | None = None
    for use in value.uses():
        own: list[ir.Graph] = []
        graph = use.node.graph
        while isinstance(graph, ir.Graph):
            own.append(graph)
            graph = around.get(graph)
        common = own if common is None else [graph for graph in common if graph in own]
    return common[0] if common else None

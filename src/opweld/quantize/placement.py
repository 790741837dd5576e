"""Which values become integers, whose readers take them as such, and which share a scale.

Values are integers where a layer reads them. Movements before it, such as MaxPool, Reshape and Concat, hand codes on:
what they read is integer too, with the same scale. Pointwise operators between them read integers that are there
anyhow. Everybody else, normalisations, softmax and sums that stay in float among them, reads the floats.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import onnx

from opweld.calibration.graph import Graph, Layer, attributes_of

MOVING = frozenset({
    "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Slice", "Split", "Concat", "Gather",
    "Expand", "Tile", "DepthToSpace", "SpaceToDepth", "MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool",
    "Resize", "Pad",
})  # fmt: skip
"""Operators whose results lie within what they read, pooling included: the mean of codes is a code but for rounding."""

POINTWISE = frozenset({
    "Add", "Sub", "Mul", "Max", "Min", "Relu", "Clip", "LeakyRelu", "PRelu", "Sigmoid", "Tanh", "HardSigmoid",
    "HardSwish", "Gelu", "Swish", "Mish", "Elu",
})  # fmt: skip
"""Operators that a kernel of integers computes on the way, in float registers or by a table of codes."""


@dataclass(frozen=True)
class Placement:
    """Where the pairs of QuantizeLinear and DequantizeLinear belong.

    Attributes:
        values: the values that get one, in order.
        readers: by value, the nodes that read it dequantised.
        groups: by value, the first of those that share its scale.
    """

    values: tuple[str, ...]
    readers: Mapping[str, tuple[int, ...]]
    groups: Mapping[str, str]


def placed(graph: Graph, layers: Iterable[Layer]) -> Placement:
    """The pairs that these layers need."""
    chosen = list(layers)
    values = needed(graph, chosen)
    integer = {layer.node for layer in chosen if layer.data}
    for i in reversed(range(len(graph.nodes))):
        node = graph.nodes[i]
        if node.op_type in MOVING:
            if _handed_on(graph, i) and any(name in values for name in node.output):
                integer.add(i)
        elif node.op_type in POINTWISE and node.domain == "":
            inner = (j for name in node.output for j in graph.readers.get(name, ()))
            if any(name in values for name in node.output) or any(
                j in integer and graph.nodes[j].op_type in POINTWISE for j in inner
            ):
                integer.add(i)
    readers = {value: tuple(i for i in graph.readers.get(value, ()) if i in integer) for value in values}
    return Placement(tuple(values), readers, _groups(graph, values))


def needed(graph: Graph, layers: Iterable[Layer]) -> dict[str, None]:
    """The values that are integers where these layers are, in a fixed order."""
    found: dict[str, None] = {}
    todo = [layer.data for layer in layers if layer.data]
    while todo:
        value = todo.pop()
        if value in found:
            continue
        found[value] = None
        i = graph.producers.get(value)
        if i is not None:
            todo += _handed_on(graph, i)
    return found


def _handed_on(graph: Graph, i: int) -> list[str]:
    """What a movement reads that its results are made of; nothing of other nodes, or where a part of it is stored."""
    node = graph.nodes[i]
    if node.op_type not in MOVING or node.domain != "" or not _keeps_codes(graph, node):
        return []
    data = list(node.input) if node.op_type == "Concat" else [node.input[0]]
    return [] if any(name in graph.stored for name in data) else data


def _keeps_codes(graph: Graph, node: onnx.NodeProto) -> bool:
    attributes = attributes_of(node)
    if node.op_type == "MaxPool":
        return len([name for name in node.output if name]) == 1
    if node.op_type == "Resize":
        return attributes.get("mode", b"nearest") in (b"nearest", b"linear")
    if node.op_type == "Pad":
        if attributes.get("mode", b"constant") != b"constant":
            return True
        value = node.input[2] if len(node.input) > 2 else ""
        return not value or (value in graph.stored and not graph.array(value).any())
    return True


def _groups(graph: Graph, values: Collection[str]) -> dict[str, str]:
    firsts = {value: value for value in values}

    def first(value: str) -> str:
        while firsts[value] != value:
            value = firsts[value]
        return value

    for value in values:
        i = graph.producers.get(value)
        for other in _handed_on(graph, i) if i is not None else ():
            if other in firsts:
                firsts[first(other)] = first(value)
    return {value: first(value) for value in values}

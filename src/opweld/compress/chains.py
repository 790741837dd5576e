"""Channels that may go: from the layer that computes them, through what treats each alone, to layers that add them up.

Whatever is computed of a channel on the way depends on this channel only, so that it may be left out at both ends and
between, and nothing else changes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx

from opweld.calibration.graph import Graph, Layer, attributes_of
from opweld.compress.matrix import results_axis

ELEMENTWISE = frozenset({
    "Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Relu", "LeakyRelu", "PRelu", "Clip", "Sigmoid", "Tanh", "Erf",
    "Gelu", "HardSigmoid", "HardSwish", "Swish", "Mish", "Elu", "Selu", "Celu", "Softplus", "Softsign", "Exp", "Log",
    "Sqrt", "Neg", "Abs", "Reciprocal", "Identity",
})  # fmt: skip
"""Operators each of whose elements is of elements at the same place, of operands that may be broadcast."""

POOLS = frozenset({"MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool"})
"""Operators that look at a picture, a channel at a time."""


@dataclass(frozen=True)
class Chain:
    """Where a layer's channels go.

    Attributes:
        producer: the layer whose results they are. between: the nodes on the way, in order. consumers: the layers that
            add them up. values: all values that have these channels.
        count: how many. axis: of all these values, from the right.
    """

    producer: Layer
    between: tuple[int, ...]
    consumers: tuple[Layer, ...]
    values: tuple[str, ...]
    count: int
    axis: int

    @property
    def nodes(self) -> tuple[int, ...]:
        """All of them, in order."""
        return tuple(sorted((self.producer.node, *self.between, *(layer.node for layer in self.consumers))))


def chain_of(graph: Graph, producer: Layer, layers: Mapping[int, Layer]) -> Chain | str:
    """The way of a layer's channels, or why they have to stay. `layers`: those whose weights may change, by node."""
    axis, count = channel_axis(graph, producer), graph.stored[producer.weights].dims[results_axis(producer)]
    values = dict.fromkeys(name for name in graph.nodes[producer.node].output if name)
    between: list[int] = []
    consumers: list[Layer] = []
    todo = {i for name in values for i in graph.readers.get(name, ())}
    while todo:
        i = min(todo)
        todo.remove(i)
        node, layer = graph.nodes[i], layers.get(i)
        if layer is not None and layer.data in values and channel_axis(graph, layer) == axis:
            consumers.append(layer)
        elif _each_alone(graph, node, values, axis, count):
            between.append(i)
            values[node.output[0]] = None
            todo |= set(graph.readers.get(node.output[0], ()))
        else:
            return f"its channels meet in node {graph.label(i)!r} ({node.op_type})"
    if kept := [name for name in values if name in graph.outputs]:
        return f"its channels are those of the output {kept[0]!r}"
    if not consumers:
        return "no layer reads its channels"
    return Chain(producer, tuple(between), tuple(consumers), tuple(values), count, axis)


def channel_axis(graph: Graph, layer: Layer) -> int:
    """The axis of a layer's channels, of its results and of what it reads, from the right."""
    return -1 if layer.sums is not None else 1 - len(graph.stored[layer.weights].dims)


def depthwise(graph: Graph, node: onnx.NodeProto, count: int) -> bool:
    """Whether a node is a convolution of each of so many channels with taps of its own."""
    if node.op_type != "Conv" or any(name and name not in graph.stored for name in node.input[1:]):
        return False
    dims = graph.stored[node.input[1]].dims
    return attributes_of(node).get("group", 1) == count and list(dims[:2]) == [count, 1]


def cut_axis(graph: Graph, name: str, axis: int, count: int) -> int | None:
    """Of a stored operand of an elementwise operator, the axis that has the channels; None where it is broadcast."""
    dims = graph.stored[name].dims
    return axis if len(dims) >= -axis and dims[axis] == count and count > 1 else None


def _each_alone(graph: Graph, node: onnx.NodeProto, values: Mapping[str, None], axis: int, count: int) -> bool:
    """Whether each channel of a node's only result is of the same channel of what it reads."""
    if node.domain not in ("", "ai.onnx") or len([name for name in node.output if name]) != 1:
        return False
    if node.op_type in ELEMENTWISE:
        return _aligned(graph, node, values, axis, count)
    return axis < -1 and node.input[0] in values and (node.op_type in POOLS or depthwise(graph, node, count))


def _aligned(graph: Graph, node: onnx.NodeProto, values: Mapping[str, None], axis: int, count: int) -> bool:
    """Whether the operands that are not of these values are stored, and broadcast to them."""
    for name in node.input:
        if not name or name in values:
            continue
        if name not in graph.stored:
            return False
        dims = graph.stored[name].dims
        if len(dims) >= -axis and dims[axis] not in (1, count):
            return False
    return True

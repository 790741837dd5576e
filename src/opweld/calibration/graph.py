"""A model whose weights are to be changed: who makes and reads each value, and the layers that multiply by weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from opweld.errors import OptionError
from opweld.frontend.order import bodies_of, captured


@dataclass(frozen=True)
class Layer:
    """A node that multiplies a value by stored weights, or gathers rows of them.

    Attributes:
        node: its place in the graph. name: of the node, or of its output where it has none.
        data, weights: the names of what it reads. `data` is empty where rows are gathered: nothing is multiplied.
        bias: of its bias, empty where it has none.
        axis: of the weights' channels that have a scale each; None where they have one scale.
        sums: the axis of the weights that can be cut in blocks, as they are summed over or lie in a row; None of a
            convolution.
        channels: the axis of `data` whose elements the weights multiply, for means.
        biased: whether its bias, which the operator takes, can be corrected.
    """

    node: int
    name: str
    data: str
    weights: str
    bias: str
    axis: int | None
    sums: int | None
    channels: int
    biased: bool


class Graph:
    """A model, whose nodes are in order, with its values by name."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self.nodes = list(model.graph.node)
        self.stored = {tensor.name: tensor for tensor in model.graph.initializer}
        self.producers = {name: i for i, node in enumerate(self.nodes) for name in node.output if name}
        self.readers: dict[str, list[int]] = {}
        for i, node in enumerate(self.nodes):
            for name in _read_by(node):
                self.readers.setdefault(name, []).append(i)
        self.outputs = {value.name for value in model.graph.output}
        self.names = {*self.stored, *self.producers, *(value.name for value in model.graph.input)}
        self.names |= {name for node in self.nodes for body in bodies_of(node) for name in _all_names(body)}

    def array(self, name: str) -> NDArray[Any]:
        """A stored tensor."""
        return numpy_helper.to_array(self.stored[name])

    def label(self, node: int) -> str:
        """What a node is called: its name, or that of its output."""
        made = self.nodes[node]
        return made.name or next((name for name in made.output if name), made.op_type)

    def maker(self, value: str) -> str:
        """Who makes a value, for people."""
        if value in self.producers:
            return f"value {value!r} (node {self.label(self.producers[value])!r})"
        return f"input {value!r}"

    def layers(self) -> list[Layer]:
        """The layers, in order, whose weights are float32."""
        found = (self._layer(i, node) for i, node in enumerate(self.nodes))
        return [layer for layer in found if layer is not None]

    def _layer(self, i: int, node: onnx.NodeProto) -> Layer | None:
        if node.domain not in ("", "ai.onnx") or len(node.input) < 2:
            return None
        if node.op_type == "Gather":
            return self._table(i, node)
        data, weights = node.input[:2]
        bias = node.input[2] if len(node.input) > 2 else ""
        tensor = self.stored.get(weights)
        if data in self.stored or tensor is None or tensor.data_type != TensorProto.FLOAT or 0 in tensor.dims:
            return None
        if bias and bias not in self.stored:
            return None
        rank, attributes, name = len(tensor.dims), attributes_of(node), self.label(i)
        if node.op_type == "Conv":
            return Layer(i, name, data, weights, bias, 0, None, 1, True)
        if node.op_type == "ConvTranspose":
            axis = 1 if attributes.get("group", 1) == 1 else None
            return Layer(i, name, data, weights, bias, axis, None, 1, False)
        if node.op_type == "MatMul" and rank >= 2:
            return Layer(i, name, data, weights, "", rank - 1, rank - 2, -1, False)
        plain = all(attributes.get(key, 1.0) == 1.0 for key in ("alpha", "beta")) and not attributes.get("transA", 0)
        if node.op_type == "Gemm" and rank == 2 and plain:
            axis = 0 if attributes.get("transB", 0) else 1
            if not bias or list(self.stored[bias].dims) == [tensor.dims[axis]]:
                return Layer(i, name, data, weights, bias, axis, 1 - axis, -1, True)
        return None

    def _table(self, i: int, node: onnx.NodeProto) -> Layer | None:
        """A Gather of rows of a stored matrix, as embeddings are."""
        tensor = self.stored.get(node.input[0])
        if tensor is None or tensor.data_type != TensorProto.FLOAT or len(tensor.dims) != 2 or 0 in tensor.dims:
            return None
        if node.input[1] in self.stored or attributes_of(node).get("axis", 0) != 0:
            return None
        return Layer(i, self.label(i), "", node.input[0], "", 0, 1, -1, False)


def check_nodes(graph: Graph, keep: Iterable[str]) -> None:
    """Raises OptionError for a name, of those that are to stay as they are, that no node has."""
    names = {graph.label(i) for i in range(len(graph.nodes))}
    for name in keep:
        if name not in names:
            raise OptionError(
                f"keep: there is no node {name!r} in the model once it is optimised: see the table's names"
            )


def not_finite(graph: Graph, layers: Iterable[Layer]) -> dict[int, str]:
    """By node, which layers' weights or bias no numbers stand for, and why."""
    found: dict[int, str] = {}
    for layer in layers:
        for name in (layer.weights, layer.bias):
            if name and not np.isfinite(graph.array(name)).all():
                found[layer.node] = f"{name!r} holds NaN or infinity"
    return found


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    """The attributes of a node as Python's values."""
    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}


def _read_by(node: onnx.NodeProto) -> dict[str, None]:
    """The names that a node and its bodies read, in order."""
    bodies = (name for body in bodies_of(node) for name in sorted(captured(body)))
    return dict.fromkeys(name for name in (*node.input, *bodies) if name)


def _all_names(body: onnx.GraphProto) -> Iterator[str]:
    yield from (value.name for value in body.input)
    yield from (tensor.name for tensor in body.initializer)
    for node in body.node:
        yield from (*node.input, *node.output)
        for inner in bodies_of(node):
            yield from _all_names(inner)

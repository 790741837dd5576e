"""What a node is whatever it is called: its operator, its attributes and what it computes from, down to the inputs.

Weights count by their type and shape, for a model that is trained further is still the same; small ones, which say how
to compute, by their content too. Nodes that are equal so far are told apart by their order."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

SMALL = 64
"""Elements of a stored tensor up to which its content counts."""


def structure_of(model: ir.Model) -> dict[str, str]:
    """An identifier of each node of a graph and its bodies, by the node's name, in order."""
    made = _Structure()
    made.graph(model.graph, {})
    return made.found


class _Structure:
    def __init__(self) -> None:
        self.found: dict[str, str] = {}
        self._equal: Counter[str] = Counter()

    def graph(self, graph: ir.Graph, around: Mapping[ir.Value, str]) -> str:
        """The digest of what a graph computes, where values around it have these digests."""
        known = dict(around)
        for value in graph.initializers.values():
            known[value] = _stored(value)
        for position, value in enumerate(graph.inputs):
            known.setdefault(value, _digest("input", position, value.dtype, _rank(value)))
        for node in graph:
            own = self._node(node, known)
            for position, value in enumerate(node.outputs):
                known[value] = _digest(own, position)
            if node.name:
                count = self._equal[own]
                self._equal[own] += 1
                self.found[node.name] = f"{own}.{count}" if count else own
        return _digest("graph", *(known.get(value, "") for value in graph.outputs))

    def _node(self, node: ir.Node, known: Mapping[ir.Value, str]) -> str:
        inputs = ["" if value is None else known.get(value, "?") for value in node.inputs]
        attributes = [f"{name}={self._attribute(a, known)}" for name, a in sorted(node.attributes.items())]
        return _digest(node.domain, node.op_type, len(node.outputs), *inputs, *attributes)

    def _attribute(self, attribute: ir.Attr, known: Mapping[ir.Value, str]) -> str:
        value: Any = attribute.value
        if attribute.type is ir.AttributeType.GRAPH:
            return self.graph(value, known)
        if attribute.type is ir.AttributeType.GRAPHS:
            return _digest(*(self.graph(graph, known) for graph in value))
        if attribute.type is ir.AttributeType.TENSOR:
            return _tensor(value)
        if attribute.type is ir.AttributeType.TENSORS:
            return _digest(*map(_tensor, value))
        return repr(value)


def _stored(value: ir.Value) -> str:
    tensor = value.const_value
    return _digest("stored") if tensor is None else _tensor(tensor)


def _tensor(tensor: ir.TensorProtocol) -> str:
    shape = tuple(int(extent) for extent in tensor.shape.numpy())
    if int(np.prod(shape, dtype=np.float64)) > SMALL:
        return _digest("weights", tensor.dtype, shape)
    if tensor.dtype is ir.DataType.STRING:
        return _digest("texts", shape, np.asarray(tensor.numpy()).tolist())
    return _digest("numbers", tensor.dtype, shape, np.ascontiguousarray(tensor.numpy()).tobytes())


def _rank(value: ir.Value) -> int | None:
    return None if value.shape is None else len(value.shape)


def _digest(*parts: object) -> str:
    text = "\0".join(map(repr, parts)).encode("utf-8", "surrogatepass")
    return hashlib.sha256(text).hexdigest()[:12]


def renamed(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """What nodes are called now, by what they were called: by their identifiers; where what one computes from has
    changed, it is the one of its name, unless that is another one by its identifier."""
    names = {identity: name for name, identity in after.items()}
    found = {name: names[identity] for name, identity in before.items() if identity in names}
    taken = set(found.values())
    return found | {name: name for name in before if name not in found and name in after and name not in taken}

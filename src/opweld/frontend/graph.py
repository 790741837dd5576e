"""The graph of a loaded ONNX model, in the form of inference and lowering: an independent copy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx_ir as ir

from opweld.errors import ModelError
from opweld.ir import Graph, Node, Stored, Value
from opweld.tensor.dtype import DType


def graph_of(model: ir.Model) -> Graph:
    """The graph of a model at opset `OPSET`, its functions inlined. Data is not copied. Raises ModelError for a
    stored tensor without data."""
    return _Copy().graph(model.graph)


class _Copy:
    def __init__(self) -> None:
        self._values: dict[ir.Value, Value] = {}

    def graph(self, graph: ir.Graph) -> Graph:
        stored = list(graph.initializers.values())
        for value in stored:
            if value.const_value is None:
                raise ModelError(f"initializer {value.name!r} has no data")
            self._value(value).stored = _stored(value.const_value)
        inputs = [self._value(value) for value in graph.inputs]
        nodes = [self._node(node) for node in graph]
        outputs = [self._value(value) for value in graph.outputs]
        return Graph(inputs, outputs, nodes, [self._value(value) for value in stored], graph.name or "")

    def _node(self, node: ir.Node) -> Node:
        return Node(
            node.op_type,
            [None if value is None else self._value(value) for value in node.inputs],
            [self._value(value) for value in node.outputs],
            {name: self._attribute(attribute) for name, attribute in node.attributes.items()},
            domain=node.domain,
            name=node.name or "",
        )

    def _value(self, value: ir.Value) -> Value:
        found = self._values.get(value)
        if found is None:
            dtype = None if value.dtype is None else _dtype(value.dtype)
            found = self._values[value] = Value(value.name or "", dtype, _shape(value))
        return found

    def _attribute(self, attribute: ir.Attr) -> Any:
        match attribute.type:
            case ir.AttributeType.GRAPH:
                return self.graph(attribute.as_graph())
            case ir.AttributeType.GRAPHS:
                return tuple(map(self.graph, attribute.as_graphs()))
            case ir.AttributeType.TENSOR:
                return attribute.as_tensor().numpy()
            case ir.AttributeType.TENSORS:
                return tuple(tensor.numpy() for tensor in attribute.as_tensors())
            case _:
                return attribute.value


def _stored(tensor: ir.TensorProtocol) -> Stored:
    shape = tuple(int(extent) for extent in tensor.shape)  # type: ignore[arg-type]
    read: Callable[[], np.ndarray[Any, Any]] = tensor.numpy
    return Stored(_dtype(tensor.dtype), shape, read)


def _dtype(dtype: ir.DataType) -> DType | str:
    try:
        return DType.of_onnx(int(dtype))
    except ValueError:
        return dtype.name


def _shape(value: ir.Value) -> tuple[int | str, ...] | None:
    if value.shape is None:
        return None
    return tuple(dim if isinstance(dim, int) else (dim.value or "") for dim in value.shape)

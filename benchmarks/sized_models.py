"""ONNX models of any number of nodes, made in memory: a chain, an MLP and a transformer, with small weights.

Each has about the wanted number of nodes, and dims that stay dynamic, so that sizes are symbols all the way."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 17
"""Older than opweld's own, so that conversion is part of what is measured; LayerNormalization is there already."""

IR_VERSION = 10


class Builder:
    """A graph under construction: nodes are appended in order, and values named by number."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._random = np.random.default_rng(0)

    def __len__(self) -> int:
        return len(self.nodes)

    def node(self, kind: str, inputs: Sequence[str], **attributes: Any) -> str:
        """Appends a node with one output, and returns the output's name."""
        output = f"v{len(self.nodes)}"
        name = f"{kind}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [output], name=name, **attributes))
        return output

    def weight(self, *shape: int) -> str:
        """A new weight of small random numbers."""
        return self._stored(self._random.normal(0, 0.1, shape).astype(np.float32))

    def number(self, value: float) -> str:
        """A float scalar."""
        return self._stored(np.asarray(value, np.float32))

    def integers(self, *values: int) -> str:
        """An int64 vector."""
        return self._stored(np.asarray(values, np.int64))

    def position(self, value: int) -> str:
        """An int64 scalar."""
        return self._stored(np.asarray(value, np.int64))

    def _stored(self, array: np.ndarray[Any, Any]) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def model(self, x: tuple[str, Sequence[int | str]], y: tuple[str, Sequence[int | str]]) -> onnx.ModelProto:
        """The model with one input and one output, both float32."""
        graph = helper.make_graph(
            self.nodes,
            "sized",
            [helper.make_tensor_value_info(x[0], TensorProto.FLOAT, list(x[1]))],
            [helper.make_tensor_value_info(y[0], TensorProto.FLOAT, list(y[1]))],
            self.weights,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)


def chain(nodes: int) -> onnx.ModelProto:
    """Elementwise operators one after the other; a residual every eight, a LayerNorm every thirty-two."""
    width, b = 64, Builder()
    value = residual = "x"
    while len(b) < nodes:
        step = len(b)
        if step % 32 == 31:
            value = b.node("LayerNormalization", [value, b.weight(width), b.weight(width)], axis=-1)
        elif step % 8 == 7:
            value = residual = b.node("Add", [value, residual])
        elif step % 4 == 3:
            value = b.node(("Tanh", "Relu", "Sigmoid")[step // 4 % 3], [value])
        else:
            value = b.node(("Mul", "Add", "Sub")[step % 3], [value, b.weight(width)])
    return b.model(("x", ("n", width)), (value, ("n", width)))


def mlp(nodes: int) -> onnx.ModelProto:
    """MatMul, Add, Relu, again and again."""
    width, b = 16, Builder()
    value = "x"
    while len(b) < nodes:
        value = b.node("MatMul", [value, b.weight(width, width)])
        value = b.node("Add", [value, b.weight(width)])
        value = b.node("Relu", [value])
    return b.model(("x", ("n", width)), (value, ("n", width)))


def transformer(nodes: int) -> onnx.ModelProto:
    """Layers as exporters write them: shapes computed by nodes, LayerNorm and GELU in parts."""
    width, heads, b = 32, 4, Builder()
    value = "x"
    while len(b) < nodes:
        value = _attention(b, value, width, heads)
        value = _feed_forward(b, value, width)
    return b.model(("x", ("batch", "sequence", width)), (value, ("batch", "sequence", width)))


def _dense(b: Builder, x: str, inner: int, outer: int) -> str:
    return b.node("Add", [b.weight(outer), b.node("MatMul", [x, b.weight(inner, outer)])])


def _size(b: Builder, x: str, axis: int) -> str:
    size = b.node("Gather", [b.node("Shape", [x]), b.position(axis)], axis=0)
    return b.node("Unsqueeze", [size, b.integers(0)])


def _split_heads(b: Builder, x: str, width: int, heads: int, order: Sequence[int]) -> str:
    shape = b.node("Concat", [_size(b, x, 0), _size(b, x, 1), b.integers(heads), b.integers(width // heads)], axis=0)
    return b.node("Transpose", [b.node("Reshape", [x, shape])], perm=list(order))


def _attention(b: Builder, x: str, width: int, heads: int) -> str:
    q = _split_heads(b, _dense(b, x, width, width), width, heads, (0, 2, 1, 3))
    k = _split_heads(b, _dense(b, x, width, width), width, heads, (0, 2, 3, 1))
    v = _split_heads(b, _dense(b, x, width, width), width, heads, (0, 2, 1, 3))
    scores = b.node("Div", [b.node("MatMul", [q, k]), b.number(np.sqrt(width / heads))])
    mixed = b.node("MatMul", [b.node("Softmax", [scores], axis=-1), v])
    joined = b.node("Transpose", [mixed], perm=[0, 2, 1, 3])
    shape = b.node("Concat", [_size(b, joined, 0), _size(b, joined, 1), b.integers(width)], axis=0)
    out = _dense(b, b.node("Reshape", [joined, shape]), width, width)
    return _layer_norm(b, b.node("Add", [out, x]), width)


def _feed_forward(b: Builder, x: str, width: int) -> str:
    inner = _dense(b, x, width, 2 * width)
    bell = b.node("Erf", [b.node("Div", [inner, b.number(np.sqrt(2))])])
    half = b.node("Mul", [inner, b.node("Add", [bell, b.number(1)])])
    out = _dense(b, b.node("Mul", [half, b.number(0.5)]), 2 * width, width)
    return _layer_norm(b, b.node("Add", [out, x]), width)


def _layer_norm(b: Builder, x: str, width: int) -> str:
    centred = b.node("Sub", [x, b.node("ReduceMean", [x], axes=[-1])])
    variance = b.node("ReduceMean", [b.node("Pow", [centred, b.number(2)])], axes=[-1])
    deviation = b.node("Sqrt", [b.node("Add", [variance, b.number(1e-5)])])
    scaled = b.node("Mul", [b.node("Div", [centred, deviation]), b.weight(width)])
    return b.node("Add", [scaled, b.weight(width)])


SHAPES: Mapping[str, Callable[[int], onnx.ModelProto]] = {"chain": chain, "mlp": mlp, "transformer": transformer}

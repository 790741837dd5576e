"""Operands that opsets 1 to 6 align to an axis of the other operand: with ones behind, as NumPy aligns them.

Until opset 7 a binary operator with `broadcast=1, axis=1` takes a vector for the channels of an image, and PRelu takes
its slopes so. onnx's converter drops the axis.
"""

from __future__ import annotations

import onnx
from onnx import helper

from opweld.errors import ModelError, UnsupportedError
from opweld.frontend import isolated
from opweld.frontend.order import bodies_of, title_of

OPSET_OF_NUMPY = 7
"""The opset since which operands are aligned at their last axes."""

_BINARY = frozenset({"Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor"})


def align_operands(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model of an opset below 7 with such operands unsqueezed. Raises UnsupportedError where a rank is unknown, and
    ModelError where there is no such axis."""
    if not _has_aligned(model.graph):
        return model
    try:
        model = isolated.infer_shapes(model)
    except isolated.LibraryError as error:
        raise UnsupportedError(f"the ranks of the model, which its opset needs, are unknown: {error}") from error
    _align(model.graph, {})
    return model


def _has_aligned(graph: onnx.GraphProto) -> bool:
    return any(_axis(node) is not None or any(map(_has_aligned, bodies_of(node))) for node in graph.node)


def _axis(node: onnx.NodeProto) -> int | None:
    """The axis of the first operand at which the second one begins, where it does not end with it."""
    if node.domain not in ("", "ai.onnx") or len(node.input) != 2:
        return None
    if node.op_type == "PRelu":
        return 1
    found = [attribute.i for attribute in node.attribute if attribute.name == "axis"]
    return found[0] if found and node.op_type in _BINARY else None


def _align(graph: onnx.GraphProto, outer: dict[str, int]) -> None:
    ranks = dict(outer)
    for value in (*graph.input, *graph.value_info, *graph.output):
        if value.type.tensor_type.HasField("shape"):
            ranks[value.name] = len(value.type.tensor_type.shape.dim)
    ranks |= {tensor.name: len(tensor.dims) for tensor in graph.initializer}
    nodes = list(graph.node)
    del graph.node[:]
    for number, node in enumerate(nodes):
        for body in bodies_of(node):
            _align(body, ranks)
        axis = _axis(node)
        if axis is not None:
            _align_node(graph, node, axis, ranks, f"{node.input[1]}_aligned_{number}")
        graph.node.append(node)


def _align_node(graph: onnx.GraphProto, node: onnx.NodeProto, axis: int, ranks: dict[str, int], name: str) -> None:
    whole, part = (ranks.get(operand) for operand in node.input)
    if whole is None or part is None:
        raise UnsupportedError(f"{title_of(node)}: its operand is aligned to axis {axis}, and its rank is unknown")
    if part and not -whole <= axis <= whole:
        raise ModelError(f"{title_of(node)}: its first operand has {whole} axes, and none is axis {axis}")
    behind = whole - part - (axis + whole if axis < 0 else axis)
    if part and behind > 0:
        axes = list(range(part, part + behind))
        graph.node.append(helper.make_node("Unsqueeze", [node.input[1]], [name], name=name, axes=axes))
        node.input[1] = name
    kept = [attribute for attribute in node.attribute if attribute.name != "axis"]
    del node.attribute[:]
    node.attribute.extend(kept)

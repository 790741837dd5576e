"""What onnx's converter does not take of opsets 1 to 6: operands that begin at an axis, casts to a type by name, and
recurrences.

Until opset 7 a binary operator with `broadcast=1, axis=1` takes a vector for the channels of an image, and PRelu takes
its slopes so. onnx's converter drops the axis, and takes none of these operators, nor Gemm, where a size is symbolic.
Until opset 6 a Cast says by name what it makes, and until 7 a recurrence says whether it gives a sequence, which its
outputs say too; the converter refuses both. So these are written here as those of opset 7, to which later opsets gave
more element types and no other meaning, and the converter sees operators of a domain that it does not know.
"""

from __future__ import annotations

import onnx
from onnx import helper

from opweld.errors import ModelError, UnsupportedError
from opweld.frontend import isolated
from opweld.frontend.opset1 import is_opset1, newest_form
from opweld.frontend.order import bodies_of, title_of

OPSET_OF_NUMPY = 7
"""The opset since which operands are aligned at their last axes."""

ALIGNED = "opweld.aligned"
"""Domain of these operators while the model is converted."""

BINARY = frozenset({"Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor"})
"""The operators of two operands, which are broadcast only where the node says so."""

_RECURRENT = ("GRU", "LSTM", "RNN")

_DROPPED = ("axis", "broadcast", "consumed_inputs", "output_sequence")
"""Attributes that these operators no longer have in opset 7."""


def align_operands(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model of an opset below 7 with these operators as opset 7 has them, in the domain `ALIGNED`: operands with
    ones behind, as NumPy aligns them, and types by number. `restore_operands` gives them their domain again. Raises
    UnsupportedError where a rank is unknown, and ModelError where there is no such axis, or no such type."""
    if not _has_older(model.graph):
        return model
    try:
        model = isolated.infer_shapes(model)
    except isolated.LibraryError as error:
        raise UnsupportedError(f"the ranks of the model, which its opset needs, are unknown: {error}") from error
    _align(model.graph, {})
    model.opset_import.add(domain=ALIGNED, version=1)
    return model


def restore_operands(model: onnx.ModelProto) -> None:
    """Gives the operators their own domain again, in place."""
    _restore(model.graph)
    kept = [entry for entry in model.opset_import if entry.domain != ALIGNED]
    del model.opset_import[:]
    model.opset_import.extend(kept)


def _restore(graph: onnx.GraphProto) -> None:
    for node in graph.node:
        if node.domain == ALIGNED:
            node.domain = ""
        for body in bodies_of(node):
            _restore(body)


def _has_older(graph: onnx.GraphProto) -> bool:
    return any(_is_older(node) or is_opset1(node) or any(map(_has_older, bodies_of(node))) for node in graph.node)


def _is_older(node: onnx.NodeProto) -> bool:
    return node.domain in ("", "ai.onnx") and node.op_type in ("Cast", "Gemm", "PRelu", *_RECURRENT, *BINARY)


def _axis(node: onnx.NodeProto) -> int | None:
    """The axis of the first operand at which the second one begins, where it does not end with it."""
    if len(node.input) != 2:
        return None
    if node.op_type == "PRelu":
        return 1
    found = [attribute.i for attribute in node.attribute if attribute.name == "axis"]
    return found[0] if found else None


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
        if _is_older(node):
            axis = _axis(node)
            if axis is not None:
                _align_node(graph, node, axis, ranks, f"{node.input[1]}_aligned_{number}")
            kept = [_by_number(node, attribute) for attribute in node.attribute if attribute.name not in _DROPPED]
            del node.attribute[:]
            node.attribute.extend(kept)
            node.domain = ALIGNED
        if is_opset1(node):
            graph.node.extend(newest_form(node, ALIGNED))
        else:
            graph.node.append(node)


def _by_number(node: onnx.NodeProto, attribute: onnx.AttributeProto) -> onnx.AttributeProto:
    """The attribute; of a Cast to a type by name, that type's number."""
    if node.op_type != "Cast" or attribute.type != onnx.AttributeProto.STRING:
        return attribute
    name = attribute.s.decode()
    if name not in onnx.TensorProto.DataType.keys():  # noqa: SIM118 - it is no mapping
        raise ModelError(f"{title_of(node)}: ONNX has no element type {name[:100]!r}, to which it casts")
    return helper.make_attribute(attribute.name, onnx.TensorProto.DataType.Value(name))


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

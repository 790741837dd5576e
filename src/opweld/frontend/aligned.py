"""Conversions of opsets 1 to 6 that onnx's converter lacks: operands aligned at an axis, casts to types by name, and
recurrences.

Until opset 7 a binary operator with `broadcast=1, axis=1` takes a vector for the channels of an image, and PRelu takes
its slopes so. onnx's converter drops the axis, and rejects these operators, and Gemm, if a size is symbolic. Until
opset 6 Cast has the name of its type, and until 7 a recurrence has an attribute for whether it returns a sequence,
which its outputs determine too; the converter rejects both. So these are rewritten here to opset 7, after which only
element types were added, and the converter sees operators of a domain that it does not know.
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
"""Domain of these operators during conversion."""

BINARY = frozenset({"Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor"})
"""The operators of two operands, which broadcast only with an attribute."""

_RECURRENT = ("GRU", "LSTM", "RNN")

_DROPPED = ("axis", "broadcast", "consumed_inputs", "output_sequence")
"""Attributes that these operators no longer have in opset 7."""


def align_operands(model: onnx.ModelProto) -> onnx.ModelProto:
    """Rewrites these operators of a model below opset 7 to opset 7, in the domain `ALIGNED`: operands with trailing
    axes of size 1, as NumPy aligns them, and types by number. `restore_operands` restores their domain. Raises
    UnsupportedError if a rank is unknown, and ModelError for an axis or type that does not exist."""
    if not _has_older(model.graph):
        return model
    try:
        model = isolated.infer_shapes(model)
    except isolated.LibraryError as error:
        raise UnsupportedError(f"the ranks of values, needed to convert its opset, are unknown: {error}") from error
    _align(model.graph, {})
    model.opset_import.add(domain=ALIGNED, version=1)
    return model


def restore_operands(model: onnx.ModelProto) -> None:
    """Restores the domain of the operators, in place."""
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
    """The axis of the first operand to which the second one is aligned, unless aligned at the end."""
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
    """The attribute, with the type's number for a Cast to a type by name."""
    if node.op_type != "Cast" or attribute.type != onnx.AttributeProto.STRING:
        return attribute
    name = attribute.s.decode()
    if name not in onnx.TensorProto.DataType.keys():  # noqa: SIM118 - it is not a mapping
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

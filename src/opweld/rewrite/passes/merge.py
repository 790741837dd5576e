"""Common subexpression elimination, and deduplication of stored tensors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from opweld.ledger import Alternative, Ledger
from opweld.rewrite.scope import Scope

TENSORS, NODES = "rewrite.equal_tensors", "rewrite.equal_nodes"

ENDS = 64
"""Bytes at each end of two tensors that are compared before all others."""

BLOCK = 1 << 22
"""Bytes that are compared in one step: weights may be larger than memory."""

OWN_ANSWER = frozenset((
    "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial", "Dropout",
))  # fmt: skip
"""Operators that are not deterministic."""


COMMUTATIVE = frozenset((
    "Add", "Mul", "Sum", "And", "Or", "Xor", "Equal", "BitwiseAnd", "BitwiseOr", "BitwiseXor",
))  # fmt: skip
"""Operators whose result has the same bits for swapped operands. Max and Min are not: ONNX does not define their result
for 0 and -0."""


REDUCTIONS = frozenset((
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "ReduceSumSquare",
))  # fmt: skip
"""Operators whose second input is axes, in any order."""


def merge_tensors(scope: Scope, ledger: Ledger) -> None:
    """Merges stored tensors of the same type, shape and bytes."""
    first: defaultdict[Hashable, list[ir.Value]] = defaultdict(list)
    for value in list(scope.model.graph.initializers.values()):
        tensor = value.const_value
        if tensor is None or value.is_graph_output() or value.is_graph_input() or tensor.dtype is ir.DataType.STRING:
            continue
        data = _bytes(tensor)
        alike = first[tensor.dtype, tuple(tensor.shape.numpy()), data[:ENDS].tobytes(), data[-ENDS:].tobytes()]
        kept = next((other for other in alike if _equal(other.const_value, data)), None)
        if kept is None:
            alike.append(value)
            continue
        size = int(tensor.nbytes)
        taken = scope.decide(
            ledger,
            rule=TENSORS,
            site=tuple(dict.fromkeys(node.name or "" for node in scope.readers(value))),
            subject=value.name or "",
            alternatives=[Alternative("stored", bytes=size), Alternative("shared", bytes=0)],
            prefer="shared",
            reason=f"equal to {kept.name}",
        )
        if taken == "shared":
            scope.replace(value, kept)
            scope.model.graph.initializers.pop(value.name or "")


def _bytes(tensor: ir.TensorProtocol) -> NDArray[Any]:
    """The bytes of a tensor, not copied: those of a file are read on access."""
    if tensor.dtype.bitwidth < 8:  # packed elements, which an array unpacks
        return np.frombuffer(tensor.tobytes(), np.uint8)
    return np.ascontiguousarray(tensor.numpy()).reshape(-1).view(np.uint8)


def _equal(tensor: ir.TensorProtocol | None, data: NDArray[Any]) -> bool:
    """Whether a tensor has these bytes."""
    if tensor is None:
        return False
    own = _bytes(tensor)
    return all(np.array_equal(own[at : at + BLOCK], data[at : at + BLOCK]) for at in range(0, data.size, BLOCK))


def merge_nodes(scope: Scope, ledger: Ledger) -> bool:
    """Merges nodes of the same operator and attributes with the same operands, from the first on, so that whole
    subgraphs are merged. Returns whether any were."""
    changed = False
    first: dict[Hashable, ir.Node] = {}
    for node in list(scope.graph):
        key = None if node.op_type in OWN_ANSWER else _key(node, scope)
        if key is None:
            continue
        kept = first.setdefault(key, node)
        if kept is node or any(value.is_graph_output() for value in node.outputs):
            continue
        taken = scope.decide(
            ledger,
            rule=NODES,
            site=(node.name or "", kept.name or ""),
            subject=node.outputs[0].name or "",
            alternatives=[Alternative("computed"), Alternative("shared")],
            prefer="shared",
            reason=f"{kept.outputs[0].name} is the same",
        )
        if taken == "shared":
            for mine, theirs in zip(node.outputs, kept.outputs, strict=True):
                scope.replace(mine, theirs)
            scope.drop(node)
            changed = True
    return changed


def _key(node: ir.Node, scope: Scope) -> Hashable | None:
    """The key of equal nodes, with operands sorted for commutative ones; None for one with bodies, or of another
    domain, whose semantics are unknown."""
    if node.domain not in ("", "ai.onnx"):
        return None
    attributes: list[Hashable] = []
    for name, attribute in sorted(node.attributes.items()):
        if attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) or attribute.ref_attr_name:
            return None
        attributes.append((name, ir.serde.serialize_attribute(attribute).SerializeToString(deterministic=True)))
    inputs: tuple[Hashable, ...] = tuple(None if value is None else id(value) for value in node.inputs)
    shape = scope.shape(node.inputs[0]) if node.op_type in REDUCTIONS and len(inputs) == 2 else None
    axes = scope.integers(node, "axes", 1) if shape and inputs[1] is not None else None
    if shape and axes:  # the last axis is the same, whether it is -1 or counted from the first
        inputs = (inputs[0], tuple(sorted(axis % len(shape) for axis in axes)))
    if node.op_type in COMMUTATIVE and len(inputs) == 2 and not attributes:  # an axis, before opset 7, is the second's
        inputs = tuple(sorted(inputs, key=str))
    return node.op_type, inputs, tuple(attributes), tuple(value.name == "" for value in node.outputs)

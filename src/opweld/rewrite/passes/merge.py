"""What is computed twice is computed once, what is stored twice is stored once."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable

import onnx_ir as ir

from opweld.ledger import Alternative, Ledger
from opweld.rewrite.scope import Scope

TENSORS, NODES = "rewrite.equal_tensors", "rewrite.equal_nodes"

OWN_ANSWER = frozenset((
    "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial", "Dropout",
))  # fmt: skip
"""Operators that give another answer each time."""


def merge_tensors(scope: Scope, ledger: Ledger) -> None:
    """Stored tensors of the same type, shape and bytes are one."""
    first: dict[Hashable, ir.Value] = {}
    for value in list(scope.graph.initializers.values()):
        tensor = value.const_value
        if tensor is None or value.is_graph_output() or value.is_graph_input() or tensor.dtype is ir.DataType.STRING:
            continue
        digest = hashlib.sha256(tensor.tobytes()).digest()
        kept = first.setdefault((tensor.dtype, tuple(tensor.shape.numpy()), digest), value)
        if kept is value:
            continue
        size = int(tensor.nbytes)
        taken = ledger.decide(
            rule=TENSORS,
            site=tuple(dict.fromkeys(node.name or "" for node in scope.readers(value))),
            subject=(value.name or "",),
            alternatives=[Alternative("stored", bytes=size), Alternative("shared", bytes=0)],
            prefer="shared",
            reason=f"equal to {kept.name}",
        )
        if taken == "shared":
            scope.replace(value, kept)
            scope.graph.initializers.pop(value.name or "")


def merge_nodes(scope: Scope, ledger: Ledger) -> None:
    """Nodes of the same operator and attributes that read the same are one; from the first on, so that whole subgraphs
    become one."""
    first: dict[Hashable, ir.Node] = {}
    for node in list(scope.graph):
        key = None if node.op_type in OWN_ANSWER else _key(node)
        if key is None:
            continue
        kept = first.setdefault(key, node)
        if kept is node or any(value.is_graph_output() for value in node.outputs):
            continue
        taken = ledger.decide(
            rule=NODES,
            site=(node.name or "", kept.name or ""),
            subject=(node.outputs[0].name or "",),
            alternatives=[Alternative("computed"), Alternative("shared")],
            prefer="shared",
            reason=f"{kept.outputs[0].name} is the same",
        )
        if taken == "shared":
            for mine, theirs in zip(node.outputs, kept.outputs, strict=True):
                scope.replace(mine, theirs)
            scope.drop(node)


def _key(node: ir.Node) -> Hashable | None:
    """What two nodes must agree in; None for one with bodies, or of another domain, of which nothing is known."""
    if node.domain not in ("", "ai.onnx"):
        return None
    attributes: list[Hashable] = []
    for name, attribute in sorted(node.attributes.items()):
        if attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS) or attribute.ref_attr_name:
            return None
        attributes.append((name, ir.serde.serialize_attribute(attribute).SerializeToString(deterministic=True)))
    inputs = tuple(None if value is None else id(value) for value in node.inputs)
    return node.op_type, inputs, tuple(attributes), tuple(value.name == "" for value in node.outputs)

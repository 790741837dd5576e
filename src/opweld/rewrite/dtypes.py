"""The element type of a value whose shape is not known, from the schemas of operators."""

from __future__ import annotations

from collections.abc import Callable

import onnx
import onnx_ir as ir

from opweld.rewrite.scope import Scope, attribute

_Step = ir.DataType | ir.Value | None
"""A type, a value with the same type, or None."""


def dtype_of(value: ir.Value | None, scope: Scope) -> ir.DataType | None:
    """The element type of a value: as inferred, else as declared by its node's schema (through nodes whose output has
    the type of an input) or by the interface; None where none of these is known."""
    seen: set[ir.Value] = set()
    while value is not None and value not in seen:
        fact = scope.fact(value)
        if fact is not None:
            return ir.DataType(fact.dtype.onnx)
        seen.add(value)
        node = value.producer()
        found = value.dtype if node is None else _declared(node, value.index() or 0, scope)
        if not isinstance(found, ir.Value):
            return found
        value = found
    return None


def _declared(node: ir.Node, index: int, scope: Scope) -> _Step:
    if node.domain not in ("", "ai.onnx"):
        return None
    special = _BY_ATTRIBUTE.get(node.op_type)
    if special is not None:
        return special(node, index)
    try:
        schema = onnx.defs.get_schema(node.op_type, scope.opset)
    except onnx.defs.SchemaError:
        return None
    # The last formal parameter of a variadic schema stands for all that follow.
    formal = schema.outputs[min(index, len(schema.outputs) - 1)]
    if not formal.is_homogeneous:
        return None
    for value, read in zip(node.inputs, schema.inputs, strict=False):
        if value is not None and read.type_str == formal.type_str and read.is_homogeneous:
            return value
    only = list(formal.types)
    return ir.DataType[only[0][len("tensor(") : -1].upper()] if len(only) == 1 and only[0] in _TENSORS else None


def _branch(node: ir.Node, index: int) -> _Step:
    return node.attributes["then_branch"].as_graph().outputs[index]


TYPED_BY_NUMBER = 6
"""The opset since which Cast's `to` is a number; before, it is a name."""


def cast_type(node: ir.Node) -> ir.DataType:
    """The type that a Cast converts to."""
    to = attribute(node, "to")
    return ir.DataType[to] if isinstance(to, str) else ir.DataType(int(to))


_BY_ATTRIBUTE: dict[str, Callable[[ir.Node, int], _Step]] = {"If": _branch, "Cast": lambda node, index: cast_type(node)}
"""Operators whose schema does not determine the type of their results."""

_TENSORS = {f"tensor({dtype.name.lower()})" for dtype in ir.DataType}

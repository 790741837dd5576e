"""A product of rows and a pointwise convolution are the same, with axes in different orders."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from opweld.rewrite.rules.permuted import Order, Permuted, inverse, permuted_shape
from opweld.rewrite.scope import Scope, attribute, operand


def permuted_product(node: ir.Node, order: Order, scope: Scope) -> Permuted | None:
    """A MatMul written for channels-first data, or a Conv written for channels-last data."""
    if node.domain not in ("", "ai.onnx") or not 3 <= len(order) <= 5:
        return None
    last = (0, *range(2, len(order)), 1)
    if node.op_type == "MatMul" and order == last:
        return _convolution(node, order, scope)
    if node.op_type == "Conv" and order == inverse(last):
        return _rows(node, order, scope)
    return None


def _convolution(node: ir.Node, order: Order, scope: Scope) -> Permuted | None:
    weights, shape = scope.constant(operand(node, 1)), scope.shape(operand(node, 0))
    stored = operand(node, 1)
    if weights is None or stored is None or weights.ndim != 2 or weights.dtype.kind != "f":
        return None
    if shape is None or len(shape) != len(order):
        return None

    def write(inputs: Sequence[ir.Value | None]) -> Sequence[ir.Value]:
        kernel = weights.T.reshape(*weights.T.shape, *[1] * (len(order) - 2))
        return [scope.add(node, "Conv", [inputs[0], scope.store(node, kernel)])]

    return Permuted((0,), write, stored=(stored,), product=True)


def _rows(node: ir.Node, order: Order, scope: Scope) -> Permuted | None:
    kernel, bias, stored = scope.constant(operand(node, 1)), operand(node, 2), operand(node, 1)
    if kernel is None or stored is None or kernel.ndim != len(order) or not single_places(node, scope):
        return None

    def write(inputs: Sequence[ir.Value | None]) -> Sequence[ir.Value]:
        shape = scope.shape(node.outputs[0])
        product = scope.add(node, "MatMul", [inputs[0], scope.store(node, kernel.reshape(kernel.shape[:2]).T)])
        if bias is None:
            return [product]
        if shape is not None:
            scope.tell(product, permuted_shape(shape, order), node.outputs[0])
        return [scope.add(node, "Add", [product, bias])]

    return Permuted((0,), write, stored=(stored,), more=0 if bias is None else 1, product=True)


def single_places(node: ir.Node, scope: Scope) -> bool:
    """Whether a Conv is pointwise, without groups."""
    kernel = scope.shape(operand(node, 1))
    if kernel is None or any(extent.constant != 1 for extent in kernel[2:]):
        return False
    if attribute(node, "group", 1) != 1 or any(attribute(node, "pads", ())):
        return False
    return not set(attribute(node, "strides", ())) - {1}

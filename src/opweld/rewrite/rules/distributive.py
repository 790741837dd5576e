"""Factors out what two products of a sum share: a b + a c is a (b + c), and x V + x W is x (V + W).

Stored numbers are added in float64 and rounded once. A computed sum may overflow float16 where both products do not:
such a sum is not rewritten.

Only NaN from infinities changes: inf - 2 inf is NaN, and (1 - 2) inf is -inf. Finite and infinite results remain,
unless the sum of the other factors overflows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from opweld.rewrite.rule import Proposal, Refusal, Rule
from opweld.rewrite.rules.linear import Linear, linear
from opweld.rewrite.rules.rounding import unfit, unfit_bias
from opweld.rewrite.scope import Array, Scope, kept, operand
from opweld.tensor.dtype import DType


class CommonFactor(Rule):
    """a b + a c is a (b + c), and a + a c with a stored c is a (1 + c)"""

    name = "rewrite.common_factor"
    operators = ("Add", "Sub")

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        sides = [_factors(operand(node, position), scope) for position in (0, 1)]
        fact = scope.fact(node.outputs[0])
        if None in sides or fact is None or node.inputs[0] is node.inputs[1]:
            return None
        for a, b, first in sides[0] or ():
            for other, c, second in sides[1] or ():
                if a is not other or (first is None and second is None) or scope.constant(a) is not None:
                    continue
                nodes = tuple(made for made in (first, second) if made is not None)
                shared = next((made for made in nodes if not scope.only_reader(made.outputs[0])), None)
                if shared is not None:
                    return None
                sign = -1 if node.op_type == "Sub" else 1
                return _taken_out(node, a, (b, c), sign, nodes, scope)
        return None


def _factors(value: ir.Value | None, scope: Scope) -> list[tuple[ir.Value, ir.Value | None, ir.Node | None]] | None:
    """A value as a product in either order: one factor, the other, and the node; also itself times 1."""
    if value is None:
        return None
    found: list[tuple[ir.Value, ir.Value | None, ir.Node | None]] = []
    made = scope.producer(value, "Mul")
    if made is not None and made.inputs[0] is not None and made.inputs[1] is not None:
        left, right = made.inputs[0], made.inputs[1]
        found += [(left, right, made), (right, left, made)]
    return [*found, (value, None, None)]


def _taken_out(
    node: ir.Node,
    a: ir.Value,
    others: tuple[ir.Value | None, ir.Value | None],
    sign: int,
    nodes: tuple[ir.Node, ...],
    scope: Scope,
) -> Proposal | Refusal | None:
    fact = scope.fact(node.outputs[0])
    if fact is None:
        return None
    dtype, output = fact.dtype.numpy, node.outputs[0]
    stored = [np.ones((), dtype) if value is None else scope.constant(value) for value in others]
    b, c = stored
    if b is not None and c is not None:
        if np.broadcast_shapes(b.shape, c.shape) not in (b.shape, c.shape):
            return Refusal("the numbers together are more than each", {"shape": f"{b.shape}, {c.shape}"}, nodes)
        if fact.dtype.is_float:
            b, c = b.astype(np.float64), c.astype(np.float64)
        with np.errstate(all="ignore"):
            number, magnitude = b + sign * c if fact.dtype.is_float or sign > 0 else b - c, np.abs(b) + np.abs(c)
        refusal = unfit("numbers", number, dtype, None, nodes, magnitude=magnitude) if fact.dtype.is_float else None
        if refusal is not None:
            return refusal

        def write() -> None:
            scope.replace(output, scope.add(node, "Mul", [a, scope.store(node, np.asarray(number).astype(dtype))]))

        return Proposal("both products have a factor in common", write, nodes, scope.traffic(output))
    if None in others:
        return None  # no node is saved
    shapes = [scope.shape(value) for value in others]
    if fact.dtype is DType.F16:
        return Refusal("the sum of the other factors may overflow FLOAT16", {"value": a.name or ""}, nodes)
    if shapes[0] is None or shapes[0] != shapes[1]:
        return Refusal("the other factors are of different sizes", {"value": a.name or ""}, nodes)

    def apply() -> None:
        total = scope.add(node, node.op_type, list(others))
        scope.tell(total, shapes[0] or (), output)
        scope.replace(output, scope.add(node, "Mul", [a, total]))

    return Proposal("both products have a factor in common", apply, nodes, scope.traffic(output))


@dataclass(frozen=True)
class _Term:
    """A product by stored weights and its bias; `nodes` compute it."""

    product: Linear
    bias: Array
    nodes: tuple[ir.Node, ...]


class SumOfProducts(Rule):
    """x V + x W is x (V + W), of MatMul, Gemm and convolutions ."""

    name = "rewrite.sum_of_products"
    operators = ("Add", "Sub")

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        left, right = (_term(operand(node, position), scope) for position in (0, 1))
        if not isinstance(left, _Term) or not isinstance(right, _Term):
            return None
        first, second = left.product, right.product
        one, other = first.node, second.node
        if one is other or one.op_type != other.op_type or one.inputs[0] is not other.inputs[0]:
            return None
        nodes = (*left.nodes, *right.nodes)
        if first.weights.shape != second.weights.shape or kept(one) != kept(other) or first.dtype != second.dtype:
            failed = {"weights": f"{first.weights.shape}, {second.weights.shape}"}
            return Refusal("the products differ in more than their weights", failed, nodes)
        sign = -1 if node.op_type == "Sub" else 1
        weights, bias = first.weights + sign * second.weights, left.bias + sign * right.bias
        magnitude = np.abs(first.weights) + np.abs(second.weights)
        refusal = unfit("weights", weights, first.dtype, None, nodes, magnitude=magnitude)
        refusal = refusal or unfit_bias(bias, first.dtype, nodes)
        if refusal is not None:
            return refusal

        def apply() -> None:
            inputs: list[ir.Value | None] = [one.inputs[0], scope.store(node, weights.astype(first.dtype))]
            added = scope.store(node, bias.astype(first.dtype)) if np.any(bias) or len(one.inputs) > 2 else None
            if one.op_type == "MatMul":
                made = scope.add(node, "MatMul", inputs)
                made = made if added is None else scope.add(node, "Add", [made, added])
            else:
                made = scope.add(node, one.op_type, [*inputs, *([] if added is None else [added])], **kept(one))
            scope.replace(node.outputs[0], made)

        return Proposal("two products of one value", apply, nodes, scope.traffic(node.outputs[0]))


def _term(value: ir.Value | None, scope: Scope) -> _Term | None:
    """A value without other readers as a product by stored weights, with the sum of a bias for MatMul."""
    if value is None or not scope.only_reader(value):
        return None
    made = scope.producer(value, "MatMul", "Gemm", "Conv")
    if made is not None:
        found = linear(made, scope)
        return _Term(found, found.bias, (made,)) if isinstance(found, Linear) else None
    added = scope.producer(value, "Add")
    for data, other in (added.inputs, added.inputs[::-1]) if added is not None else ():
        inner, numbers = scope.producer(data, "MatMul"), scope.constant(other)
        found = None if inner is None or numbers is None else linear(inner, scope)
        if isinstance(found, Linear) and numbers is not None and numbers.shape == (found.outputs,) and inner and added:
            return _Term(found, numbers.astype(np.float64), (added, inner))
    return None

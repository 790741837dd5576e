"""A product with one inverse root in it, in any written form: `x / sqrt(v)`, `x * (1 / sqrt(v))`, `v ** -0.5 * x`.

The form of `product.py` with roots, also independent of the exporter and of where constant factors are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from opweld.rewrite.rules.product import is_scalar
from opweld.rewrite.scope import Scope, operand


@dataclass(frozen=True)
class Quotient:
    """number * factors[0] * factors[1] * ... / sqrt(radicand); `nodes` compute it, the last one first."""

    number: float
    factors: tuple[ir.Value, ...]
    radicand: ir.Value
    nodes: tuple[ir.Node, ...]


def quotient_of(node: ir.Node | None, scope: Scope) -> Quotient | None:
    """The quotient that a Mul or Div computes. Inner products must have no other readers; its root may have some, which
    the caller checks."""
    if node is None or node.op_type not in ("Mul", "Div"):
        return None
    number, powers, nodes = 1.0, list[tuple[ir.Value, float]](), list[ir.Node]()
    pending = [(node, 1.0)]
    while pending:
        inner, exponent = pending.pop()
        nodes.append(inner)
        for value, own in _parts(inner, scope):
            power = own * exponent
            single = scope.single(value) if is_scalar(value) else None
            producer = scope.producer(value, "Mul", "Div", "Sqrt", "Reciprocal", "Pow")
            if single is not None and (single > 0 or power == 1):
                number *= single**power
            elif producer is not None and _opens(producer, power, scope):
                pending.append((producer, power))
            else:
                powers.append((value, power))
    roots = [value for value, power in powers if power == -0.5]
    factors = [value for value, power in powers if power == 1]
    if len(roots) != 1 or len(roots) + len(factors) != len(powers):
        return None
    return Quotient(number, tuple(factors), roots[0], tuple(nodes))


def _parts(node: ir.Node, scope: Scope) -> Sequence[tuple[ir.Value, float]]:
    """The factors of a node with exponents; nothing if it is not a product of powers."""
    first, second = operand(node, 0), operand(node, 1)
    if first is None:
        return ()
    if node.op_type in ("Mul", "Div") and second is not None:
        return (first, 1.0), (second, 1.0 if node.op_type == "Mul" else -1.0)
    if node.op_type in ("Sqrt", "Reciprocal"):
        return ((first, 0.5 if node.op_type == "Sqrt" else -1.0),)
    exponent = scope.single(second) if node.op_type == "Pow" else None
    if exponent is not None and any(scope.wants(exponent, wanted) for wanted in (0.5, -0.5, -1)):
        return ((first, exponent),)
    return ()


def _opens(node: ir.Node, power: float, scope: Scope) -> bool:
    """Whether a factor is replaced by the operands of its node."""
    if node.op_type == "Mul" or (node.op_type == "Div" and not is_scalar(operand(node, 0))):
        return abs(power) == 1 and scope.only_reader(node.outputs[0])  # the root of a product is not a product of roots
    return abs(power) in (0.5, 1) and len(_parts(node, scope)) > 0

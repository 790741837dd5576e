"""A product of several values and a number, in any written form: `0.5 * x * (1 + t)`, `x * ((1 + t) / 2)`, ...

Exporters differ in where they put the number and in how they nest; the multiplied values are the same."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from opweld.rewrite.scope import Scope, operand

CLOSE = 1e-6
"""Numbers of a formula may deviate by this: they are written with few digits, and rounded to float32."""


@dataclass(frozen=True)
class Product:
    """number * factors[0] * factors[1] * ...; `nodes` compute it, the last one first."""

    number: float
    factors: tuple[ir.Value, ...]
    nodes: tuple[ir.Node, ...]

    def without(self, factor: ir.Value) -> tuple[ir.Value, ...]:
        """The other factors; if it occurs twice, one remains."""
        rest = list(self.factors)
        rest.remove(factor)
        return tuple(rest)


def product_of(node: ir.Node, scope: Scope) -> Product:
    """The product that a Mul or Div computes, including inner ones without other readers."""
    number, factors, nodes = 1.0, list[ir.Value](), list[ir.Node]()
    pending = [node] if _flat(node, scope) else []
    while pending:
        inner = pending.pop()
        nodes.append(inner)
        for value in inner.inputs:
            assert value is not None
            single = scope.single(value) if is_scalar(value) else None
            producer = scope.producer(value, "Mul", "Div")
            if single is not None:
                number = number * single if inner.op_type == "Mul" else number / single
            elif producer is not None and scope.only_reader(value) and _flat(producer, scope):
                pending.append(producer)
            else:
                factors.append(value)
    return Product(number, tuple(factors), tuple(nodes))


def _flat(node: ir.Node, scope: Scope) -> bool:
    """Whether a node multiplies, or divides something computed by a number."""
    if node.op_type == "Mul":
        return True
    by_number = is_scalar(node.inputs[1]) and scope.single(node.inputs[1]) not in (None, 0)
    return by_number and scope.constant(node.inputs[0]) is None


def is_scalar(value: ir.Value | None) -> bool:
    """Whether a stored tensor has one element, so that it does not change the shape of the other operand."""
    tensor = None if value is None else value.const_value
    return tensor is not None and tensor.size == 1 and len(tensor.shape) <= 1


def sum_with(node: ir.Node | None, scope: Scope) -> Iterator[tuple[ir.Value, float]]:
    """The value and the number that a node adds, in all possible readings."""
    if node is None or node.op_type not in ("Add", "Sub"):
        return
    for value, other, position in ((0, 1, 0), (1, 0, 1)):
        number = scope.single(operand(node, other)) if is_scalar(operand(node, other)) else None
        found = operand(node, value)
        if number is None or found is None or (node.op_type == "Sub" and position == 1):
            continue
        yield found, -number if node.op_type == "Sub" else number


def scaled(value: ir.Value, scope: Scope) -> tuple[ir.Value, float]:
    """A value as another one times a number; itself times 1 if it is not such a product."""
    producer = scope.producer(value, "Mul", "Div")
    if producer is None or not scope.only_reader(value) or not _flat(producer, scope):
        return value, 1.0
    found = product_of(producer, scope)
    return (found.factors[0], found.number) if len(found.factors) == 1 else (value, 1.0)


def close(number: float | None, wanted: float, scope: Scope) -> bool:
    """Whether a number matches that of a formula."""
    return scope.wants(number, wanted, CLOSE)

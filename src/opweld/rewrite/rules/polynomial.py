"""A polynomial in one value, in any written form: `c * (x + 0.04 * x ** 3)`, `x * c * (1 + 0.04 * x * x)`, ..."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

from opweld.rewrite.rules.product import is_scalar
from opweld.rewrite.scope import Scope, operand

DEGREE = 4
"""The highest degree that is matched."""


@dataclass(frozen=True)
class Polynomial:
    """The sum of coefficient * x ** power; `nodes` compute it."""

    coefficients: Mapping[int, float]
    nodes: tuple[ir.Node, ...] = ()

    def plus(self, other: Polynomial, sign: float = 1) -> Polynomial:
        """The sum of both, the second one times a sign."""
        total = defaultdict[int, float](float, self.coefficients)
        for power, coefficient in other.coefficients.items():
            total[power] += sign * coefficient
        return Polynomial(total, (*self.nodes, *other.nodes))

    def times(self, other: Polynomial) -> Polynomial:
        """The product of both."""
        total = defaultdict[int, float](float)
        for power, coefficient in self.coefficients.items():
            for more, factor in other.coefficients.items():
                total[power + more] += coefficient * factor
        return Polynomial(total, (*self.nodes, *other.nodes))


def polynomial_of(value: ir.Value | None, x: ir.Value, scope: Scope) -> Polynomial | None:
    """A value as a polynomial in x; None if it is not one of small degree."""
    if value is x:
        return Polynomial({1: 1.0})
    number = scope.single(value) if is_scalar(value) else None
    if number is not None:
        return Polynomial({0: number})
    node = scope.producer(value, "Add", "Sub", "Mul", "Pow")
    first = None if node is None else polynomial_of(node.inputs[0], x, scope)
    if node is None or first is None:
        return None
    if node.op_type == "Pow":
        exponent = scope.single(operand(node, 1))
        if not scope.wants(exponent, 2) and not scope.wants(exponent, 3):
            return None
        made = first.times(first)
        made = made.times(first) if exponent == 3 else made
    else:
        second = polynomial_of(node.inputs[1], x, scope)
        if second is None:
            return None
        sign = -1.0 if node.op_type == "Sub" else 1.0
        made = first.times(second) if node.op_type == "Mul" else first.plus(second, sign)
    if max(made.coefficients) > DEGREE:
        return None
    return Polynomial(made.coefficients, tuple(dict.fromkeys((node, *made.nodes))))

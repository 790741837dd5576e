"""Operators replaced by several nodes, some of which compute sizes that the shapes of others depend on.

Nodes of the domain `opweld` are parts of operators: they compute how many elements there are, or the largest possible
result.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from opweld import ir
from opweld.ops.emitted import define
from opweld.ops.fact import Fact
from opweld.ops.known import required_dims
from opweld.ops.operands import required
from opweld.ops.registry import Inference, Lowering, infers, lowers, required_attribute
from opweld.tensor.dim import nonnegative

DOMAIN = "opweld"


class Expansion:
    """Nodes under construction that replace another one."""

    def __init__(self, node: ir.Node) -> None:
        self._node = node
        self._nodes: list[ir.Node] = []
        self._constants: list[ir.Value] = []
        self._name = next(value.name for value in node.outputs if value.name)
        self._count = 0

    def emit(
        self, op_type: str, *inputs: ir.Value | None, outputs: int = 1, domain: str = "", **attributes: Any
    ) -> list[ir.Value]:
        """Adds a node; returns its outputs."""
        values = [self._value() for _ in range(outputs)]
        self._nodes.append(ir.Node(op_type, inputs, values, attributes, domain=domain, name=self._node.name))
        return values

    def own(self, op_type: str, *inputs: ir.Value | None, outputs: int = 1, **attributes: Any) -> list[ir.Value]:
        """Adds a node of the domain `opweld`."""
        return self.emit(op_type, *inputs, outputs=outputs, domain=DOMAIN, **attributes)

    def taken(self, value: ir.Value, count: ir.Value, axis: int = 0) -> ir.Value:
        """The first `count` elements along an axis, where `count` is computed at run time."""
        return self.own("Take", value, count, axis=axis)[0]

    def constant(self, array: Any) -> ir.Value:
        """Adds a constant."""
        value = self._value()
        value.stored = ir.Stored.of(np.asarray(array))
        self._constants.append(value)
        return value

    def infer(self, scope: Inference, *outputs: ir.Value) -> list[Fact]:
        """Infers the nodes in place of the one they replace."""
        return scope.inline(self._node, ir.Graph([], outputs, self._nodes, self._constants, self._node.name))

    def _value(self) -> ir.Value:
        self._count += 1
        return ir.Value(f"{self._name}/{self._count}")


@infers("Take", domain=DOMAIN)
def infer_take(scope: Inference, node: ir.Node) -> list[Fact]:
    """The shape of the input, with the computed number along the axis."""
    fact = scope.fact(required(node, 0))
    (count,) = required_dims(scope, node, 1, "the number of elements")
    if not nonnegative(count):
        scope.at_least(count, 0, node, "a number of elements")
        (count,) = required_dims(scope, node, 1, "the number of elements")
    axis = required_attribute(node, "axis")
    return [Fact(fact.dtype, (*fact.shape[:axis], count, *fact.shape[axis + 1 :]))]


@lowers("Take", domain=DOMAIN)
def lower_take(scope: Lowering, node: ir.Node) -> None:
    """Copies the elements."""
    x = required(node, 0)
    define(scope, node.outputs[0], lambda at: scope.load(x, at))

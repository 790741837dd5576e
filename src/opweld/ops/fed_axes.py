"""Axes that are inputs of the model: each variant assumes other values of them."""

from __future__ import annotations

import numpy as np

from opweld import ir
from opweld.errors import ModelError
from opweld.ops.expansion import Expansion
from opweld.ops.fact import Elements, Fact
from opweld.ops.operands import describe, elements_of, given
from opweld.ops.registry import Inference
from opweld.tensor.dim import ZERO, Dim, product


def by_fed_axes(scope: Inference, node: ir.Node, position: int, rank: int) -> list[Fact] | None:
    """The facts of a node whose axes are an input of the model, for the axes that this variant assumes, in any order;
    None where the axes are known, absent, or computed later."""
    value = given(node, position)
    elements = None if value is None else elements_of(scope.fact(value))
    if elements is None or all(isinstance(e, Dim) and e.constant is not None for e in elements.flat):
        return None
    axes = np.array(_settled(scope, node, elements, rank), np.int64).reshape(elements.shape)
    made = Expansion(node)
    inputs = list(node.inputs)
    inputs[position] = made.constant(axes)
    return made.infer(scope, *made.emit(node.op_type, *inputs, outputs=len(node.outputs), **node.attributes))


def _settled(scope: Inference, node: ir.Node, elements: Elements, rank: int) -> list[int]:
    """As many different axes as there are elements. This variant decides for each axis whether it is among them,
    counted from the front or from the end."""
    if elements.size > rank:
        raise ModelError(f"{describe(node)}: {elements.size} axes are given for a value of rank {rank}")
    chosen: list[int] = []
    for axis in range(rank):
        missing = elements.size - len(chosen)
        if not missing:
            break
        # The product is zero if one of the elements is the axis.
        named = product((element - axis) * (element - axis + rank) for element in elements.flat)
        if missing == rank - axis:
            scope.same(named, ZERO, node, f"axis {axis} is given, and so are all after it")
            chosen.append(axis)
        elif scope.decide(named, "zero", node, f"axis {axis} is given"):
            chosen.append(axis)
    return chosen

"""Axes that are fed: each variant of the model takes them to be others."""

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
    """What a node makes of the axes at an input, in whatever order, that this variant takes to be fed; None where they
    are known, absent, or computed later."""
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
    """As many different axes as there are elements. This variant says of each one whether it is among them, counted
    from the front or from the end."""
    if elements.size > rank:
        raise ModelError(f"{describe(node)}: {elements.size} axes are given for a value of rank {rank}")
    chosen: list[int] = []
    for axis in range(rank):
        missing = elements.size - len(chosen)
        if not missing:
            break
        # One factor vanishes when an element is the axis.
        named = product((element - axis) * (element - axis + rank) for element in elements.flat)
        if missing == rank - axis:
            scope.same(named, ZERO, node, f"axis {axis} is given, and so are all after it")
            chosen.append(axis)
        elif scope.decide(named, "zero", node, f"axis {axis} is given"):
            chosen.append(axis)
    return chosen

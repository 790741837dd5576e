"""A value reduced over known axes, which are kept with size 1: the operand and the axes of a mean or a sum."""

from __future__ import annotations

import math
from dataclasses import dataclass

import onnx_ir as ir

from opweld.rewrite.rules.product import close, product_of, scaled
from opweld.rewrite.scope import Scope, attribute, operand
from opweld.tensor.dim import ONE

_LAID_OUT = ("Reshape", "Unsqueeze", "Expand")
"""Operators that restore removed axes."""


@dataclass(frozen=True)
class Reduced:
    """The operand, and the axes in ascending order. `nodes` compute it, the last one first."""

    nodes: tuple[ir.Node, ...]
    source: ir.Value
    axes: list[int]


def mean_of(value: ir.Value | None, scope: Scope) -> Reduced | None:
    """A value as a mean: ReduceMean, or a sum divided by the number of elements."""
    found = reduced(value, "ReduceMean", scope)
    if found is not None or value is None:
        return found
    quotient = scope.producer(value, "Div", "Mul")
    base, number = scaled(value, scope)
    total = None if quotient is None or base is value else reduced(base, "ReduceSum", scope)
    if quotient is None or total is None:
        return None
    extents = [dim.constant for axis, dim in enumerate(scope.shape(total.source) or ()) if axis in total.axes]
    if None in extents or not number:
        return None
    count = math.prod(extent for extent in extents if extent is not None)
    if not close(1 / number, count, scope):
        return None
    return Reduced((*product_of(quotient, scope).nodes, *total.nodes), total.source, total.axes)


def reduced(value: ir.Value | None, operator: str, scope: Scope) -> Reduced | None:
    """A value as the result of a reduction; None if it is none, or if an axis is not known, or is removed and not
    restored."""
    whole, laid_out = scope.shape(value), list[ir.Node]()
    node = scope.producer(value, operator, *_LAID_OUT)
    while node is not None and node.op_type in _LAID_OUT:
        laid_out.append(node)
        node = scope.producer(operand(node, 0), operator, *_LAID_OUT)
    source = None if node is None else operand(node, 0)
    shape = scope.shape(source)
    if node is None or source is None or not shape:
        return None
    axes = scope.integers(node, "axes", 1)
    if axes is None and operand(node, 1) is not None:
        return None
    if not axes:
        if int(attribute(node, "noop_with_empty_axes", 0)):
            return None
        axes = list(range(len(shape)))
    axes = sorted(axis % len(shape) for axis in axes)
    kept = tuple(ONE if axis in axes else dim for axis, dim in enumerate(shape))
    if (laid_out or not int(attribute(node, "keepdims", 1))) and whole != kept:
        return None
    return Reduced((*laid_out, node), source, axes)

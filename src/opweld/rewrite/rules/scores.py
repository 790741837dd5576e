"""The scores of an attention and their softmax in any written form:number * left @ right + masks.

Masks are added, or fill in a number where a condition holds; the number may stand on any side of the product."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from opweld.rewrite.rule import Refusal
from opweld.rewrite.rules.product import product_of
from opweld.rewrite.rules.softmax import ONE_AXIS
from opweld.rewrite.scope import Scope, attribute, operand

LOWEST = -1e30
"""A mask of at most this excludes a key from every row that has another key."""

_MOVED = ("Reshape", "Unsqueeze", "Squeeze", "Expand", "Transpose", "Slice", "Concat")
"""Operators whose results are elements of their operands."""


@dataclass(frozen=True)
class Mask:
    """An addend of scores: factor * value; or a number where the value, a condition, holds or does not hold."""

    value: ir.Value
    factor: float = 1.0
    filled: float | None = None
    where: bool = True

    def is_finite(self, scope: Scope) -> bool:
        """Whether it certainly adds only finite numbers."""
        if self.filled is not None:
            return math.isfinite(self.filled)
        return abs(self.factor) <= 1 and _is_finite(self.value, scope)


@dataclass(frozen=True)
class Scores:
    """number * left @ right + masks; `nodes` compute it, the last one first."""

    left: ir.Value
    right: ir.Value
    number: float
    masks: tuple[Mask, ...]
    nodes: tuple[ir.Node, ...]


def weights_of(value: ir.Value | None, scope: Scope) -> tuple[ir.Node | None, tuple[ir.Node, ...]]:
    """The Softmax along the last axis that gives the weights, and the nodes after it that replace NaN by 0."""
    where, guard = scope.producer(value, "Where"), tuple[ir.Node, ...]()
    if where is not None:
        test = scope.producer(where.inputs[0], "IsNaN")
        if test is None or test.inputs[0] is not where.inputs[2]:
            return None, ()
        if not scope.wants(scope.single(where.inputs[1]), 0):
            return None, ()
        value, guard = where.inputs[2], (where, test)
    softmax = scope.producer(value, "Softmax")
    shape = scope.shape(value)
    if softmax is None or not shape:
        return None, ()
    axis = int(attribute(softmax, "axis", -1 if scope.opset >= ONE_AXIS else 1)) % len(shape)
    return (softmax, guard) if scope.wants(axis, len(shape) - 1) else (None, ())


def scores_of(value: ir.Value | None, scope: Scope) -> Scores | Refusal | None:
    """A value as scores; None if there is no product in it."""
    node = scope.producer(value, "MatMul", "Add", "Mul", "Div", "Where")
    if node is None or node.inputs[0] is None:
        return None
    if node.op_type == "MatMul" and node.inputs[1] is not None:
        return Scores(node.inputs[0], node.inputs[1], 1.0, (), (node,))
    if node.op_type == "Where":
        return _filled(node, scope)
    if node.op_type == "Add":
        for score, mask in ((0, 1), (1, 0)):
            inner, added = scores_of(node.inputs[score], scope), node.inputs[mask]
            if isinstance(inner, Scores) and added is not None:
                return replace(inner, masks=(*inner.masks, Mask(added)), nodes=(node, *inner.nodes))
            if isinstance(inner, Refusal):
                return inner
        return None
    return _scaled(node, scope)


def _scaled(node: ir.Node, scope: Scope) -> Scores | Refusal | None:
    """Scores times a number, including the masks."""
    product = product_of(node, scope)
    inner = scores_of(product.factors[0], scope) if len(product.factors) == 1 else None
    if not isinstance(inner, Scores):
        return inner
    nodes, masks = (*product.nodes, *inner.nodes), list[Mask]()
    for mask in inner.masks:
        filled = None if mask.filled is None else mask.filled * product.number
        if filled is not None and not filled <= LOWEST:
            return Refusal("the filled-in number is scaled with the scores", {"filled": str(filled)}, nodes)
        masks.append(replace(mask, filled=filled, factor=mask.factor * product.number))
    return replace(inner, number=inner.number * product.number, masks=tuple(masks), nodes=nodes)


def _filled(node: ir.Node, scope: Scope) -> Scores | Refusal | None:
    """Scores some of which are replaced by a number."""
    condition = operand(node, 0)
    for score, other, where in ((1, 2, False), (2, 1, True)):
        number, inner = scope.single(operand(node, other)), scores_of(operand(node, score), scope)
        if number is None or condition is None or inner is None:
            continue
        if isinstance(inner, Refusal):
            return inner
        nodes = (node, *inner.nodes)
        if not number <= LOWEST and not scope.wants(number, 2 * LOWEST):
            return Refusal("scores are filled with a number that others may be near", {"filled": str(number)}, nodes)
        return replace(inner, masks=(*inner.masks, Mask(condition, filled=number, where=where)), nodes=nodes)
    return None


def _is_finite(value: ir.Value | None, scope: Scope) -> bool:
    known = scope.constant(value)
    if known is not None:
        return bool(np.isfinite(known.astype(np.float64)).all())
    node = scope.producer(value, "Where", "Cast", *_MOVED)
    if node is None:
        return False
    if node.op_type == "Where":
        return _is_finite(node.inputs[1], scope) and _is_finite(node.inputs[2], scope)
    if node.op_type == "Cast":
        fact = scope.fact(node.inputs[0])
        return fact is not None and not fact.dtype.is_float
    return all(_is_finite(part, scope) for part in (node.inputs if node.op_type == "Concat" else node.inputs[:1]))

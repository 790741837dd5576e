"""Functions that make the one before superfluous: inverses, idempotent functions, and clamps after clamps."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from opweld.frontend.older import LARGEST
from opweld.rewrite.rule import Proposal, Refusal, Rule, handed_on
from opweld.rewrite.scope import Scope, attribute, operand

_UNDO = ("Neg", "Not", "BitwiseNot")
"""Exact involutions."""

_SAME = ("Abs", "Floor", "Ceil", "Round", "Sign")
"""Idempotent operators."""

BOUNDS_BY_INPUT = 11
"""The opset in which the limits of Clip became inputs."""

_RANGES: dict[str, tuple[float, float]] = {
    "Relu": (0.0, math.inf),
    "Abs": (0.0, math.inf),
    "Exp": (0.0, math.inf),
    "Sigmoid": (0.0, 1.0),
    "Softmax": (0.0, 1.0),
}
"""Bounds of the results of operators, except NaN."""


class Repeated(Rule):
    """-(-x) is x, |(|x|)| is |x|, and so on."""

    name = "rewrite.repeated"
    operators = (*_UNDO, *_SAME)

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        first = scope.producer(operand(node, 0), node.op_type)
        source = None if first is None else operand(first, 0)
        if first is None or source is None:
            return None
        if node.op_type in _UNDO:
            return handed_on(node, source, scope, "the second undoes the first", first)
        return handed_on(node, first.outputs[0], scope, "the second changes nothing", first)


@dataclass(frozen=True)
class _Limits:
    """min(highest, max(lowest, x))"""

    x: ir.Value
    lowest: float
    highest: float

    def after(self, first: _Limits) -> _Limits:
        """These limits and those before them, as one."""

        def within(number: float) -> float:
            return min(max(number, self.lowest), self.highest)

        return _Limits(first.x, within(first.lowest), within(first.highest))


class Limits(Rule):
    """Clamps of values within the limits are removed; two clamps are one."""

    name = "rewrite.limits"
    operators = ("Clip", "Relu")

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        outer, first = _limits(node, scope), scope.producer(operand(node, 0), "Clip", *_RANGES)
        if outer is None or first is None:
            return None
        if first.op_type in _RANGES and first.op_type != "Relu":
            lowest, highest = _RANGES[first.op_type]
            if outer.lowest <= lowest and highest <= outer.highest:
                return handed_on(node, outer.x, scope, f"{first.op_type} gives values within the limits", first)
            return None
        inner = _limits(first, scope)
        if inner is None:
            return Refusal("the limits before it are computed", {"value": first.outputs[0].name or ""}, (first,))
        if inner.lowest > inner.highest or outer.lowest > outer.highest:
            return Refusal("the lowest is above the highest", {"lowest": str(inner.lowest)}, (first,))
        both = outer.after(inner)
        if both == inner:
            return handed_on(node, outer.x, scope, "it is within the limits already", first)
        if not scope.only_reader(outer.x):
            return None  # the first remains, and one after it costs the same
        fact = scope.fact(node.outputs[0])
        if fact is None:
            return None
        dtype = fact.dtype.numpy

        def apply() -> None:
            if both.lowest == 0 and both.highest == math.inf and fact.dtype.is_float:
                scope.replace(node.outputs[0], scope.add(node, "Relu", [both.x]))
                return
            bounds = [None if math.isinf(bound) else bound for bound in (both.lowest, both.highest)]
            if scope.opset < BOUNDS_BY_INPUT:
                low, high = bounds
                scope.replace(node.outputs[0], scope.add(node, "Clip", [both.x], min=low, max=high))
                return
            stored = [None if bound is None else scope.store(node, np.array(bound, dtype)) for bound in bounds]
            scope.replace(node.outputs[0], scope.add(node, "Clip", [both.x, *stored]))

        return Proposal("two pairs of limits are one", apply, (first,), scope.traffic(outer.x))


def _limits(node: ir.Node, scope: Scope) -> _Limits | None:
    """A Clip or Relu as limits; None where they are computed, or not exact as floats."""
    x = operand(node, 0)
    if x is None:
        return None
    if node.op_type == "Relu":
        return _Limits(x, 0.0, math.inf)
    # Before opset 11 there are always finite limits, which infinity exceeds.
    furthest = LARGEST if scope.opset < BOUNDS_BY_INPUT else math.inf
    found = [-furthest, furthest]
    for place, name in enumerate(("min", "max")):
        if name in node.attributes:
            found[place] = float(attribute(node, name))
        elif operand(node, place + 1) is not None:
            number = scope.single(operand(node, place + 1))
            if number is None or math.isnan(number) or 1 << 53 < abs(number) < math.inf:
                return None
            found[place] = number
    return _Limits(x, *found)

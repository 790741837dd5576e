"""Acme's rules."""

from __future__ import annotations

import onnx_ir as ir

from opweld.operators import DType
from opweld.rewrite import Proposal, Refusal, Rule, Scope, attribute


class Absolute(Rule):
    """The larger of x and -x is the absolute value of x."""

    name = "acme.absolute"
    operators = ("Max",)

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        for value in node.inputs:
            negation = scope.producer(value, "Neg")
            if negation is None or negation.inputs[0] not in node.inputs:
                continue
            if len(node.inputs) > 2:
                return Refusal("it is the largest of more than two", {"inputs": len(node.inputs)}, (negation,))
            x = negation.inputs[0]
            return Proposal(
                "the larger of x and -x is its absolute value",
                lambda x=x: scope.replace(node.outputs[0], scope.add(node, "Abs", [x])),
                (negation,),
            )
        return None


class Median(Rule):
    """The last of the smaller half of a sorted row is its median: Acme's kernel, where it is right and faster."""

    name = "acme.median"
    operators = ("Gather",)
    measured = True

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`. TopK of the smaller half of a row, in order, of which Gather takes the last."""
        sort, (place,) = scope.producer(node.inputs[0], "TopK"), scope.integers(node, "", 1) or (None,)
        x = None if sort is None else sort.inputs[0]
        fact = scope.fact(x)
        if sort is None or x is None or fact is None or node.inputs[0] is not sort.outputs[0]:
            return None
        axis, last = attribute(sort, "axis", -1), len(fact.shape) - 1
        (count,), n = scope.integers(sort, "", 1) or (0,), fact.shape[-1].constant
        whole = axis in (-1, last) and attribute(node, "axis", 0) in (-1, last) and scope.shape(node.inputs[1]) == ()
        if (
            not whole
            or attribute(sort, "largest", 1)
            or not attribute(sort, "sorted", 1)
            or fact.dtype is not DType.F32
        ):
            return None
        if n is None or count != (n + 1) // 2 or place not in (-1, count - 1):
            return Refusal("it is not the one in the middle", {"taken": str(place), "of": str(n)}, (sort,))
        return Proposal(
            "the last of the smaller half of a sorted row is its median",
            lambda: scope.replace(node.outputs[0], scope.add(node, "Median", [x], domain="com.acme")),
            (sort,),
        )


RULES = (Absolute, Median)

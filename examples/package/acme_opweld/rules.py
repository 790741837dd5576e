"""Acme's rules."""

from __future__ import annotations

import onnx_ir as ir

from opweld.rewrite import Proposal, Refusal, Rule, Scope


class Absolute(Rule):
    """The larger of x and -x is the absolute value of x."""

    name = "acme.absolute"
    operators = ("Max",)

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        for value in node.inputs:
            negation = scope.maker(value, "Neg")
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


RULES = (Absolute,)

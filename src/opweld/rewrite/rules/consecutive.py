"""Two products in a row with nothing between them are one, where that costs less: W2 (W1 x + b1) + b2."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from opweld.rewrite.rule import Proposal, Refusal, Rule
from opweld.rewrite.rules.linear import Linear, linear
from opweld.rewrite.rules.rounding import unfit, unfit_bias
from opweld.rewrite.scope import Array, Scope, attribute, operand

BIAS_OPTIONAL = 11
"""The opset since which Gemm need not add anything."""


class Consecutive(Rule):
    """MatMul, Gemm or a convolution of single places after another of its kind. Weights are multiplied in float64."""

    name = "rewrite.consecutive"
    operators = ("MatMul", "Gemm", "Conv")

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        before = scope.maker(operand(node, 0), node.op_type)
        if before is None:
            return None
        first, second = linear(before, scope), linear(node, scope, alone=False)
        if isinstance(first, Refusal):
            return first
        if first is None or not isinstance(second, Linear) or first.dtype != second.dtype:
            return None
        a, b = _matrix(first), _matrix(second)
        if a is None or b is None:
            return None
        separate, joined = a.size + b.size, a.shape[0] * b.shape[1]
        if joined > separate:
            return Refusal("one product would cost more than two", {"products": joined, "now": separate}, (before,))
        with np.errstate(all="ignore"):
            product, magnitude, bias = a @ b, np.abs(a) @ np.abs(b), first.bias @ b + second.bias
        refusal = unfit("weights", product, first.dtype, None, (before,), magnitude=magnitude)
        refusal = refusal or unfit_bias(bias, first.dtype, (before,))
        if refusal is not None:
            return refusal

        def apply() -> None:
            _apply(first, second, product, bias, scope)

        return Proposal("nothing lies between two products", apply, (before,), scope.traffic(before.outputs[0]))


def _matrix(found: Linear) -> Array | None:
    """The weights with a row for each input and a column for each result; None where a place sees others."""
    weights, node = found.weights, found.node
    if node.op_type == "Conv":
        plain = {"group": 1, "auto_pad": "NOTSET"}
        if any(attribute(node, name, usual) != usual for name, usual in plain.items()):
            return None
        if (
            set(weights.shape[2:]) - {1}
            or any(attribute(node, "pads", ()))
            or set(attribute(node, "strides", ())) - {1}
        ):
            return None
        return weights.reshape(weights.shape[:2]).T
    if attribute(node, "transA", 0):
        return None
    return weights.T if node.op_type == "Gemm" and attribute(node, "transB", 0) else weights


def _apply(first: Linear, second: Linear, weights: Array, bias: Array, scope: Scope) -> None:
    node, data = second.node, first.node.inputs[0]
    shaped = weights.T.reshape(*weights.T.shape, *[1] * (first.weights.ndim - 2)) if node.op_type == "Conv" else weights
    inputs: list[ir.Value | None] = [data, scope.store(node, shaped.astype(first.dtype))]
    needed = node.op_type == "Gemm" and scope.opset < BIAS_OPTIONAL
    if node.op_type != "MatMul" and (needed or np.any(bias)):
        inputs.append(scope.store(node, bias.astype(first.dtype)))
    scope.replace(node.outputs[0], scope.add(node, node.op_type, inputs))

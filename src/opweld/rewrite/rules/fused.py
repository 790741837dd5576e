"""Fusion of activations and scales into a convolution or a product, as ONNX Runtime's own operators."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import onnx_ir as ir

from opweld.frontend.contributed import MICROSOFT
from opweld.rewrite.rule import Proposal, Refusal, Rule
from opweld.rewrite.scope import Scope, attribute, kept, operand, operands

_PARAMETERS: Mapping[str, tuple[tuple[str, float], ...]] = {
    "Relu": (),
    "Sigmoid": (),
    "Tanh": (),
    "LeakyRelu": (("alpha", 0.01),),
    "HardSigmoid": (("alpha", 0.2), ("beta", 0.5)),
}
"""By activation, the attributes that become parameters, with their defaults."""

_GEMM = ("activation_alpha", "activation_beta")
"""The names of the parameters of FusedGemm; those of FusedConv are a list."""


LEAST, LARGEST = 1.1754943508222875e-38, 3.4028234663852886e38
"""The range of normal numbers of float32, the type of an attribute."""


class FusedActivation(Rule):
    """Conv or Gemm of float32 and an activation are FusedConv or FusedGemm of com.microsoft."""

    name = "rewrite.fused_activation"
    operators = (*_PARAMETERS, "Clip")

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        made = scope.producer(operand(node, 0), "Conv", "Gemm") if scope.contributed else None
        if made is None or not _is_float32(node.outputs[0], scope):
            return None
        if node.op_type == "Clip" and made.op_type == "Gemm":
            return None  # not supported by ONNX Runtime
        parameters = _parameters(node, scope)
        if parameters is None:
            return Refusal("its bounds are computed", {"bounds": "computed"}, (made,))
        read = made.outputs[0]
        if not scope.only_reader(read):
            return Refusal("the result is read by more than one node", {"readers": len(scope.readers(read))}, (made,))
        attributes = kept(made) | {"activation": node.op_type}
        if made.op_type == "Gemm":
            attributes |= dict(zip(_GEMM, parameters, strict=False))
        elif parameters:
            attributes["activation_params"] = parameters
        operator = f"Fused{made.op_type}"

        def apply() -> None:
            scope.replace(node.outputs[0], scope.add(node, operator, made.inputs, MICROSOFT, **attributes))

        return Proposal(f"{operator} computes {node.op_type} too", apply, (made,), scope.traffic(read))


def _parameters(node: ir.Node, scope: Scope) -> list[float] | None:
    """The parameters of an activation; None where they are not known."""
    if node.op_type != "Clip":
        return [float(attribute(node, name, default)) for name, default in _PARAMETERS[node.op_type]]
    found: list[float] = []
    for name, position, default in (("min", 1, -LARGEST), ("max", 2, LARGEST)):
        bound = operand(node, position)
        known = scope.single(bound) if bound is not None else float(attribute(node, name, default))
        if known is None:
            return None
        found.append(known)
    return found


class FusedMatMul(Rule):
    """Matrices of float32 that are transposed before they are multiplied, and products that are scaled by a number, are
    FusedMatMul of com.microsoft."""

    name = "rewrite.fused_matmul"
    operators = ("MatMul", "com.microsoft::FusedMatMul", "Mul", "Div")

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        if not scope.contributed or not _is_float32(node.outputs[0], scope):
            return None
        if node.op_type in ("Mul", "Div"):
            return self._scaled(node, scope)
        refusal = None
        sides = [scope.shape(operand(node, position)) for position in (0, 1)]
        for position, name in enumerate(("transA", "transB")):
            before = scope.producer(operand(node, position), "Transpose")
            # A vector is a matrix of one row to ONNX Runtime, whose number of columns is ambiguous if the other operand
            # is transposed; the batch is transposed before the last two axes are.
            plain = all(side is not None and len(side) >= 2 for side in sides)
            if before is None or not plain or attribute(node, f"transBatch{name[-1]}", 0):
                continue
            if not _swaps_matrices(before, scope):
                continue
            if not scope.only_reader(before.outputs[0]):
                refusal = Refusal("the transposed value has other readers", {"operand": name[-1]}, (before,))
                continue
            inputs = [before.inputs[0] if at == position else value for at, value in enumerate(node.inputs)]
            attributes = kept(node)
            attributes[name] = 1 - int(attributes.get(name, 0))
            return _fused(node, inputs, attributes, before, scope)
        return refusal

    def _scaled(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        for product, other in operands(node):
            made = scope.producer(product, "MatMul", "com.microsoft::FusedMatMul")
            number = scope.single(other)
            if product is None or made is None or number is None:
                continue
            if scope.shape(product) != scope.shape(node.outputs[0]):
                continue  # the number has more axes
            factor = number if node.op_type == "Mul" else 1 / number if number else math.inf
            attributes = kept(made)
            attributes["alpha"] = factor * float(attributes.get("alpha", 1.0))
            if not LEAST <= abs(attributes["alpha"]) <= LARGEST:
                failed = {"factor": str(attributes["alpha"])}
                return Refusal("the factor is not a normal number of float32", failed, (made,))
            if not scope.only_reader(product):
                return Refusal("the product is read by more than one node", {}, (made,))
            return _fused(node, made.inputs, attributes, made, scope)
        return None


class BiasGelu(Rule):
    """The sum with a stored row and Gelu are BiasGelu of com.microsoft."""

    name = "rewrite.bias_gelu"
    operators = ("Gelu", "com.microsoft::Gelu")

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        added = scope.producer(operand(node, 0), "Add") if scope.contributed else None
        exact = attribute(node, "approximate", "none") in ("none", b"none")
        if added is None or not exact or not _is_float32(node.outputs[0], scope):
            return None
        shape = scope.shape(added.outputs[0])
        for data, bias in operands(added):
            stored = scope.constant(bias)
            if stored is None or not shape or scope.shape(data) != shape or stored.shape != (shape[-1].constant,):
                continue
            read = added.outputs[0]
            if not scope.only_reader(read):
                return Refusal("the sum is read by more than one node", {"readers": len(scope.readers(read))}, (added,))

            def apply(data: ir.Value | None = data, bias: ir.Value | None = bias) -> None:
                scope.replace(node.outputs[0], scope.add(node, "BiasGelu", [data, bias], MICROSOFT))

            return Proposal("a row is added first", apply, (added,), scope.traffic(read))
        return None


def _is_float32(value: ir.Value, scope: Scope) -> bool:
    fact = scope.fact(value)
    return fact is not None and fact.dtype.numpy == "float32"


def _swaps_matrices(node: ir.Node, scope: Scope) -> bool:
    """Whether a Transpose swaps the last two axes, and no others."""
    shape = scope.shape(node.inputs[0])
    rank = 0 if shape is None else len(shape)
    order = list(attribute(node, "perm", range(rank)[::-1]))
    return rank >= 2 and order == [*range(rank - 2), rank - 1, rank - 2]


def _fused(
    node: ir.Node, inputs: Sequence[ir.Value | None], attributes: Mapping[str, float | int], gone: ir.Node, scope: Scope
) -> Proposal:
    def apply() -> None:
        scope.replace(node.outputs[0], scope.add(node, "FusedMatMul", inputs, MICROSOFT, **attributes))

    return Proposal("FusedMatMul computes both", apply, (gone,), scope.traffic(gone.outputs[0]))

"""Activations that are written out, as one node where the model's opset, or the runtime it is for, has one.

Each is recognised by its product (see `product.py`), so that it does not matter who exported it, nor where the numbers
stand. Results differ by roundings of float32."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import onnx_ir as ir

from opweld.rewrite.rule import Proposal, Refusal, Rule, second_reader
from opweld.rewrite.rules.polynomial import polynomial_of
from opweld.rewrite.rules.product import Product, close, product_of, scaled, sum_with
from opweld.rewrite.scope import Scope, attribute, operand

LARGE = 17
"""From here on 1 + exp(x) is exp(x) in float32."""


class _Activation(Rule):
    """A product that is an activation of one value: one node of `operator`, from opset `since` on, or `contributed`."""

    operators = ("Mul", "Div")
    formula = True
    operator: str
    since: int
    attributes: Mapping[str, str] = {}
    contributed: tuple[str, Mapping[str, float]] | None = None

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        found = product_of(node, scope)
        matched = self.matched(found, scope)
        if matched is None:
            return None
        x, inner = matched
        nodes, output = (*found.nodes[1:], *inner), node.outputs[0]
        refusal = second_reader((node, *nodes))
        if refusal is not None:
            return refusal
        fact = scope.fact(output)
        if fact is None or not fact.dtype.is_float or fact.shape != scope.shape(x):
            return Refusal("its type and size are not certain", {"value": x.name or ""}, nodes)
        if scope.opset >= self.since:
            name, attributes, domain = self.operator, self.attributes, ""
        elif scope.contributed and self.contributed is not None:
            (name, attributes), domain = self.contributed, "com.microsoft"
        else:
            return Refusal(f"{self.operator} came with opset {self.since}", {"opset": scope.opset}, nodes)

        def apply() -> None:
            scope.replace(output, scope.add(node, name, [x], domain, **attributes))

        return Proposal(f"{len(nodes) + 1} nodes are {name}", apply, nodes, scope.traffic(output))

    def matched(self, found: Product, scope: Scope) -> tuple[ir.Value, tuple[ir.Node, ...]] | None:
        """What the product is the activation of, and the nodes that compute its other factor."""
        raise NotImplementedError


def _inner(value: ir.Value, scope: Scope, *operators: str) -> ir.Node | None:
    """The node that makes a value that nothing else reads."""
    return scope.maker(value, *operators) if scope.only_reader(value) else None


def _gates(found: Product, scope: Scope, function: str) -> Iterator[tuple[ir.Value, ir.Value, tuple[ir.Node, ir.Node]]]:
    """x, y and the nodes of the second factor, where a product is x / 2 * (1 + function(y))."""
    if len(found.factors) != 2:
        return
    for x, factor in (found.factors, found.factors[::-1]):
        added = _inner(factor, scope, "Add")
        for term, number in sum_with(added, scope):
            node = _inner(term, scope, function)
            if added is None or node is None or node.inputs[0] is None:
                continue
            if close(number, 1, scope) and close(found.number, 0.5, scope):
                yield x, node.inputs[0], (added, node)


class Gelu(_Activation):
    """x / 2 * (1 + erf(x / sqrt 2))"""

    name = "rewrite.gelu"
    operator, since, contributed = "Gelu", 20, ("Gelu", {})

    def matched(self, found: Product, scope: Scope) -> tuple[ir.Value, tuple[ir.Node, ...]] | None:
        """See `_Activation.matched`."""
        for x, argument, inner in _gates(found, scope, "Erf"):
            base, by = scaled(argument, scope)
            if base is x and close(by, math.sqrt(0.5), scope):
                return x, inner
        return None


class TanhGelu(_Activation):
    """x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3)))"""

    name = "rewrite.tanh_gelu"
    operator, since, attributes, contributed = "Gelu", 20, {"approximate": "tanh"}, ("FastGelu", {})

    def matched(self, found: Product, scope: Scope) -> tuple[ir.Value, tuple[ir.Node, ...]] | None:
        """See `_Activation.matched`."""
        wanted = {1: math.sqrt(2 / math.pi), 3: math.sqrt(2 / math.pi) * 0.044715}
        for x, argument, gate in _gates(found, scope, "Tanh"):
            cubic = polynomial_of(argument, x, scope)
            if cubic is None:
                continue
            terms = {power: value for power, value in cubic.coefficients.items() if value}
            inner = (*gate, *cubic.nodes)
            if terms.keys() == wanted.keys() and all(close(terms[power], wanted[power], scope) for power in wanted):
                return x, inner
        return None


def is_gelu(node: ir.Node, scope: Scope) -> bool:
    """Whether a node is the last of a Gelu that is written out, by erf or tanh."""
    if node.op_type not in _Activation.operators:
        return False
    found = product_of(node, scope)
    return any(rule.matched(found, scope) is not None for rule in (Gelu(), TanhGelu()))


class Swish(_Activation):
    """x * sigmoid(x)"""

    name = "rewrite.swish"
    operator, since, contributed = "Swish", 24, ("QuickGelu", {"alpha": 1.0})

    def matched(self, found: Product, scope: Scope) -> tuple[ir.Value, tuple[ir.Node, ...]] | None:
        """See `_Activation.matched`."""
        if len(found.factors) != 2:
            return None
        for x, factor in (found.factors, found.factors[::-1]):
            inner = _inner(factor, scope, "Sigmoid")
            base, by = (None, 0.0) if inner is None or inner.inputs[0] is None else scaled(inner.inputs[0], scope)
            if inner is not None and base is x and close(by, 1, scope) and close(found.number, 1, scope):
                return x, (inner,)
        return None


class Mish(_Activation):
    """x * tanh(log(1 + exp(x)))"""

    name = "rewrite.mish"
    operator, since = "Mish", 18

    def matched(self, found: Product, scope: Scope) -> tuple[ir.Value, tuple[ir.Node, ...]] | None:
        """See `_Activation.matched`."""
        if len(found.factors) != 2:
            return None
        for x, factor in (found.factors, found.factors[::-1]):
            tanh = _inner(factor, scope, "Tanh")
            soft = None if tanh is None else softplus(operand(tanh, 0), x, scope)
            if tanh is not None and soft and close(found.number, 1, scope):
                return x, (tanh, *soft)
        return None


def softplus(value: ir.Value | None, x: ir.Value, scope: Scope) -> tuple[ir.Node, ...]:
    """The nodes of log(1 + exp(x)), which nothing else reads; none where a value is something else. For large x it may
    be x itself, as torch computes it."""
    node = None if value is None else _inner(value, scope, "Softplus", "Log", "Where")
    if node is None or node.inputs[0] is None:
        return ()
    if node.op_type == "Softplus":
        return (node,) if node.inputs[0] is x else ()
    if node.op_type == "Log":
        added = _inner(node.inputs[0], scope, "Add")
        for term, number in sum_with(added, scope):
            power = _inner(term, scope, "Exp")
            if added is not None and power is not None and power.inputs[0] is x and close(number, 1, scope):
                return (node, added, power)
        return ()
    test, rest = _inner(node.inputs[0], scope, "Greater"), softplus(operand(node, 2), x, scope)
    if test is None or not rest or node.inputs[1] is not x or test.inputs[0] is not x:
        return ()
    border = scope.single(operand(test, 1))
    large = border is not None and (border >= LARGE or scope.wants(border, LARGE))
    return (node, test, *rest) if large else ()


class HardSwish(_Activation):
    """x * max(0, min(1, x / 6 + 1 / 2))"""

    name = "rewrite.hard_swish"
    operator, since = "HardSwish", 14

    def matched(self, found: Product, scope: Scope) -> tuple[ir.Value, tuple[ir.Node, ...]] | None:
        """See `_Activation.matched`."""
        if len(found.factors) != 2:
            return None
        for x, factor in (found.factors, found.factors[::-1]):
            clipped = clipped_sum(factor, scope)
            if clipped is not None and clipped[0] is x:
                _, shift, highest, nodes = clipped
                if close(highest, 6, scope) and close(shift, 3, scope) and close(found.number, 1 / 6, scope):
                    return x, nodes
            gate = _inner(factor, scope, "HardSigmoid")
            if gate is not None and gate.inputs[0] is x and close(found.number, 1, scope):
                slopes = attribute(gate, "alpha", 0.2), attribute(gate, "beta", 0.5)
                if close(slopes[0], 1 / 6, scope) and close(slopes[1], 0.5, scope):
                    return x, (gate,)
        return None


def clipped_sum(value: ir.Value, scope: Scope) -> tuple[ir.Value, float, float, tuple[ir.Node, ...]] | None:
    """x, shift, highest and the nodes of max(0, min(highest, x + shift)), where nothing else reads what is inside."""
    clip = _inner(value, scope, "Clip")
    if clip is None or clip.inputs[0] is None:
        return None
    bounds = [
        float(attribute(clip, name)) if name in clip.attributes else scope.single(operand(clip, position))
        for name, position in (("min", 1), ("max", 2))
    ]
    lowest, highest = bounds
    added = _inner(clip.inputs[0], scope, "Add", "Sub")
    for x, shift in sum_with(added, scope):
        if scope.wants(lowest, 0) and highest is not None and highest > 0 and added is not None:
            return x, shift, highest, (clip, added)
    return None


class HardSigmoid(Rule):
    """y * max(0, min(h, x + s)) / h, which is y * HardSigmoid(x) with slope 1 / h and shift s / h; y may be absent."""

    name = "rewrite.hard_sigmoid"
    operators = ("Mul", "Div")
    formula = True

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        found = product_of(node, scope)
        if not 1 <= len(found.factors) <= 2:
            return None
        output = node.outputs[0]
        for factor in found.factors:
            clipped = clipped_sum(factor, scope)
            fact = scope.fact(factor)
            if clipped is None or fact is None or not fact.dtype.is_float:
                continue
            x, shift, highest, inner = clipped
            if not close(found.number * highest, 1, scope):
                continue
            if fact.shape != scope.shape(x):
                return Refusal("its size is not certain", {"value": x.name or ""}, inner)

            def apply(
                x: ir.Value = x, shift: float = shift, highest: float = highest, factor: ir.Value = factor
            ) -> None:
                made = scope.add(node, "HardSigmoid", [x], alpha=1 / highest, beta=shift / highest)
                rest = found.without(factor)
                scope.replace(output, scope.add(node, "Mul", [rest[0], made]) if rest else made)

            return Proposal("a sum that is clipped and scaled is HardSigmoid", apply, (*found.nodes[1:], *inner))
        return None

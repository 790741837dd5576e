"""Activations that are written out in several nodes, as one operator of the model's opset or of the target runtime.

Each is matched by its product (see `product.py`), independently of the exporter and of where the constant factors are.
Results differ by rounding in float32."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import onnx_ir as ir

from opweld.rewrite.rule import Proposal, Refusal, Rule, second_reader
from opweld.rewrite.rules.polynomial import polynomial_of
from opweld.rewrite.rules.product import Product, close, is_scalar, product_of, scaled, sum_with
from opweld.rewrite.scope import Scope, attribute, operand

LARGE = 17
"""For x from here on, 1 + exp(x) equals exp(x) in float32."""


class _Activation(Rule):
    """A product that is an activation of one value: a node of `operator`, from opset `since` on or, if `contributed`,
    always."""

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
            return Refusal(f"{self.operator} exists since opset {self.since}", {"opset": scope.opset}, nodes)

        def apply() -> None:
            scope.replace(output, scope.add(node, name, [x], domain, **attributes))

        return Proposal(f"{len(nodes) + 1} nodes are {name}", apply, nodes, scope.traffic(output))

    def matched(self, found: Product, scope: Scope) -> tuple[ir.Value, tuple[ir.Node, ...]] | None:
        """The operand of the activation, and the nodes that compute the product's other factor."""
        raise NotImplementedError


def _inner(value: ir.Value, scope: Scope, *operators: str) -> ir.Node | None:
    """The node that computes a value without other readers."""
    return scope.producer(value, *operators) if scope.only_reader(value) else None


def _gates(found: Product, scope: Scope, function: str) -> Iterator[tuple[ir.Value, ir.Value, tuple[ir.Node, ir.Node]]]:
    """x, y and the nodes of the second factor, if a product is x / 2 * (1 + function(y))."""
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
    """The nodes of log(1 + exp(x)), without other readers; None if a value is something else. For large x it may be x
    itself, as torch computes it."""
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
            for clipped in clipped_sums(factor, scope):
                number = found.number * clipped.slope
                if clipped.x is not x or not close(clipped.highest, 6, scope):
                    continue
                if close(clipped.shift, 3, scope) and close(number, 1 / 6, scope):
                    return x, clipped.nodes
            gate = _inner(factor, scope, "HardSigmoid")
            if gate is None or gate.inputs[0] is None or not close(found.number, 1, scope):
                continue
            base, by = scaled(gate.inputs[0], scope)
            scaling = () if base is gate.inputs[0] else (gate.inputs[0].producer(),)
            slopes = attribute(gate, "alpha", 0.2) * by, attribute(gate, "beta", 0.5)
            if base is x and close(slopes[0], 1 / 6, scope) and close(slopes[1], 0.5, scope):
                return x, (gate, *(step for step in scaling if step is not None))
        return None


@dataclass(frozen=True)
class Clipped:
    """slope * max(0, min(highest, x + shift)), where inner values have no other readers; `nodes` compute it."""

    x: ir.Value
    slope: float
    shift: float
    highest: float
    nodes: tuple[ir.Node, ...]


def clipped_sums(value: ir.Value, scope: Scope) -> Iterator[Clipped]:
    """A Clip of a sum with a number in all possible readings: also of a x + b, with a as its slope."""
    clip = _inner(value, scope, "Clip")
    if clip is not None:
        yield from clipped_by(clip, scope)


def clipped_by(clip: ir.Node, scope: Scope) -> Iterator[Clipped]:
    """The same, of the Clip itself."""
    if clip.inputs[0] is None:
        return
    lowest, highest = (
        float(attribute(clip, name)) if name in clip.attributes else scope.single(operand(clip, position))
        for name, position in (("min", 1), ("max", 2))
    )
    added = _inner(clip.inputs[0], scope, "Add", "Sub")
    for x, shift in sum_with(added, scope):
        if not scope.wants(lowest, 0) or highest is None or highest <= 0 or added is None:
            continue
        base, slope = scaled(x, scope)
        scaling = x.producer()
        if base is not x and slope > 0 and scaling is not None:
            inner = product_of(scaling, scope).nodes
            yield Clipped(base, slope, shift / slope, highest / slope, (clip, added, *inner))
        yield Clipped(x, 1.0, shift, highest, (clip, added))


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
            for clipped in clipped_sums(factor, scope):
                fact = scope.fact(factor)
                if fact is None or not fact.dtype.is_float:
                    continue
                if not close(found.number * clipped.slope * clipped.highest, 1, scope):
                    continue
                if fact.shape != scope.shape(clipped.x):
                    return Refusal("its size is not certain", {"value": clipped.x.name or ""}, clipped.nodes)

                def apply(clipped: Clipped = clipped, factor: ir.Value = factor) -> None:
                    alpha, beta = 1 / clipped.highest, clipped.shift / clipped.highest
                    made = scope.add(node, "HardSigmoid", [clipped.x], alpha=alpha, beta=beta)
                    rest = found.without(factor)
                    scope.replace(output, scope.add(node, "Mul", [rest[0], made]) if rest else made)

                nodes = (*found.nodes[1:], *clipped.nodes)
                return Proposal("a sum that is clipped and scaled is HardSigmoid", apply, nodes)
        return None


class Sigmoid(Rule):
    """y / (1 + exp(-x)), which is y * sigmoid(x), and where y is 1, sigmoid(x)."""

    name = "rewrite.sigmoid"
    operators = ("Div", "Reciprocal")
    formula = True

    def look(self, node: ir.Node, scope: Scope) -> Proposal | Refusal | None:
        """See `Rule.look`."""
        above, below = (None, operand(node, 0)) if node.op_type == "Reciprocal" else node.inputs
        added = None if below is None else _inner(below, scope, "Add")
        for term, one in sum_with(added, scope):
            power = _inner(term, scope, "Exp")
            argument = None if power is None else operand(power, 0)
            found = None if argument is None else _negated(argument, scope)
            if added is None or power is None or found is None or not close(one, 1, scope):
                continue
            x, inner = found
            nodes = (added, power, inner)
            fact, shape = scope.fact(below), scope.shape(node.outputs[0])
            if fact is None or not fact.dtype.is_float or scope.shape(x) != fact.shape or shape is None:
                return Refusal("its type and size are not certain", {"value": x.name or ""}, nodes)
            single = 1.0 if above is None else scope.single(above) if is_scalar(above) else None

            def apply(x: ir.Value = x, bare: bool = single == 1) -> None:
                made = scope.add(node, "Sigmoid", [x])
                scope.tell(made, scope.shape(x) or (), x)
                scope.replace(node.outputs[0], made if bare else scope.add(node, "Mul", [above, made]))

            return Proposal("1 / (1 + exp(-x)) is Sigmoid", apply, nodes, scope.traffic(node.outputs[0]))
        return None


def _negated(value: ir.Value, scope: Scope) -> tuple[ir.Value, ir.Node] | None:
    """The operand of a negation without other readers, and its node."""
    node = _inner(value, scope, "Neg", "Mul")
    if node is None or node.inputs[0] is None:
        return None
    if node.op_type == "Neg":
        return node.inputs[0], node
    base, by = scaled(value, scope)
    return (base, node) if base in node.inputs and close(by, -1, scope) else None

"""Matches normalisations of rows: by their mean and variance, or by their mean square alone.

    centred: (x - mean(x)) / sqrt(mean((x - mean(x)) ** 2) + epsilon) * scale + bias
    else:    x / sqrt(mean(x ** 2) + epsilon) * scale + bias

Scale and bias vary along the axes of the means; constant factors may be anywhere in the product."""

from __future__ import annotations

from dataclasses import dataclass, replace

import onnx_ir as ir

from opweld.rewrite.dtypes import cast_type, dtype_of
from opweld.rewrite.rule import Refusal
from opweld.rewrite.rules.product import product_of, sum_with
from opweld.rewrite.rules.quotient import Quotient, quotient_of
from opweld.rewrite.rules.reduced import Reduced, mean_of
from opweld.rewrite.scope import Scope, operand
from opweld.tensor.dim import ONE


@dataclass(frozen=True)
class Normalised:
    """A normalisation along the axes from `axis` on, with a factor in addition to its scale; `nodes` compute it, the
    last one first."""

    x: ir.Value
    axis: int
    epsilon: float
    centred: bool
    number: float
    scale: ir.Value | None
    bias: ir.Value | None
    nodes: tuple[ir.Node, ...]


@dataclass(frozen=True)
class NearlyNormalised(Refusal):
    """Why something that has the form of a normalisation, centred or not, is not one of ONNX's."""

    centred: bool = False


Found = Normalised | NearlyNormalised | None


def normalised(node: ir.Node, scope: Scope) -> Found:
    """The normalisation that ends at a node, if it is the last one of it."""
    if node.op_type != "Add":
        return _scaled(node, scope)
    for inner, other in ((0, 1), (1, 0)):
        value, added = operand(node, inner), operand(node, other)
        if value is None or added is None or not scope.only_reader(value):
            continue
        producer = scope.producer(value, "Mul", "Div")
        found = None if producer is None else _scaled(producer, scope)
        if isinstance(found, Normalised) and _fits(added, found.x, found.axis, scope):
            return replace(found, bias=added, nodes=(node, *found.nodes))
    return _distributed(node, scope)


def _distributed(node: ir.Node, scope: Scope) -> Found:
    """x * k + (bias - mean * k) where k is the scale divided by the root: TensorFlow's batch normalisation, of rows."""
    for first, second in ((0, 1), (1, 0)):
        data, rest = scope.producer(operand(node, first), "Mul"), scope.producer(operand(node, second), "Sub")
        shift = None if rest is None else scope.producer(operand(rest, 1), "Mul")
        bias = None if rest is None else operand(rest, 0)
        if data is None or rest is None or shift is None or bias is None:
            continue
        for factor in data.inputs:
            inner = None if factor not in shift.inputs else quotient_of(scope.producer(factor, "Mul", "Div"), scope)
            centre = None if inner is None else _centre(inner.radicand, scope)
            x, mean = (_other(product, factor) for product in (data, shift))
            if inner is None or centre is None or x is not operand(centre, 0) or mean is not operand(centre, 1):
                continue
            factors, nodes = (centre.outputs[0], *inner.factors), (node, data, rest, shift, *inner.nodes)
            found = _from_quotient(replace(inner, factors=factors, nodes=nodes), scope)
            if isinstance(found, NearlyNormalised):
                return found
            if found is not None and found.centred and _fits(bias, found.x, found.axis, scope):
                return replace(found, bias=bias)
    return None


def _centre(radicand: ir.Value, scope: Scope) -> ir.Node | None:
    """The difference whose mean square is under a root."""
    for value, _ in sum_with(scope.producer(radicand, "Add"), scope):
        variance = mean_of(value, scope)
        if variance is not None:
            return scope.producer(square_of(variance.source, scope), "Sub")
    return None


def _other(product: ir.Node, factor: ir.Value | None) -> ir.Value | None:
    return product.inputs[1] if product.inputs[0] is factor else product.inputs[0]


def _scaled(node: ir.Node, scope: Scope) -> Found:
    """A normalisation without its bias; the scale may come after a cast."""
    quotient = quotient_of(node, scope)
    if quotient is not None:
        return _from_quotient(quotient, scope)
    if node.op_type != "Mul":
        return None
    product = product_of(node, scope)
    for factor in product.factors:
        cast = scope.producer(factor, "Cast") if scope.only_reader(factor) else None
        inner = None if cast is None else quotient_of(scope.producer(operand(cast, 0), "Mul", "Div"), scope)
        found = None if inner is None else _from_quotient(inner, scope)
        if cast is None or not isinstance(found, Normalised):
            continue
        rest = product.without(factor)
        if len(rest) > 1 or not all(_fits(value, found.x, found.axis, scope) for value in rest):
            return None
        return _uncast(found, cast, product.number, rest[0] if rest else None, product.nodes, scope)
    return None


def _uncast(
    found: Normalised,
    cast: ir.Node,
    number: float,
    scale: ir.Value | None,
    outer: tuple[ir.Node, ...],
    scope: Scope,
) -> Found:
    """The normalisation of a value in its own type, which is computed in float32 and cast back before the scale."""
    nodes = (*outer, cast, *found.nodes)
    before = scope.producer(found.x, "Cast")
    source = None if before is None else operand(before, 0)
    own, between, after = dtype_of(source, scope), dtype_of(found.x, scope), cast_type(cast)

    def near(reason: str) -> NearlyNormalised:
        names = (("from", own), ("in", between), ("to", after))
        failed = {name: "not known" if dtype is None else dtype.name for name, dtype in names}
        return NearlyNormalised(reason, failed, nodes, found.centred)

    if before is None or source is None or own != after:
        return near("a Cast stands in between, and not the same one before")
    if between != ir.DataType.FLOAT:
        return near("it is not computed in FLOAT")
    if found.scale is not None or found.number != 1:
        return near("it is scaled before the Cast, not after")
    return replace(found, x=source, number=number, scale=scale, nodes=nodes)


def _from_quotient(quotient: Quotient, scope: Scope) -> Found:
    added = scope.producer(quotient.radicand, "Add")
    for value, epsilon in sum_with(added, scope):
        variance = mean_of(value, scope)
        base = None if variance is None else square_of(variance.source, scope)
        if variance is None or base is None or epsilon < 0:
            continue
        factor = next((factor for factor in quotient.factors if _equal(factor, base, scope)), None)
        if factor is None:
            return None
        inside = (added, *variance.nodes, variance.source.producer(), None if factor is base else factor.producer())
        nodes = tuple(node for node in inside if node is not None)
        whole = replace(quotient, factors=tuple(base if other is factor else other for other in quotient.factors))
        return _rows(whole, base, variance, epsilon, nodes, scope)
    return _without_number(quotient, added, scope)


def _rows(
    quotient: Quotient, base: ir.Value, variance: Reduced, epsilon: float, inside: tuple[ir.Node, ...], scope: Scope
) -> Found:
    """A value divided by the root of its mean square, and the value before its mean was subtracted, if it was."""
    x, nodes = base, (*quotient.nodes, *inside)
    centre = scope.producer(base, "Sub")
    mean = None if centre is None else mean_of(operand(centre, 1), scope)
    centred = centre is not None and mean is not None and mean.source is centre.inputs[0]
    if centred and centre is not None and mean is not None:
        x, nodes = mean.source, (*nodes, centre, *mean.nodes)
        if mean.axes != variance.axes:
            failed = {"mean": _text(mean.axes), "variance": _text(variance.axes)}
            return NearlyNormalised("the mean is over other axes than the variance", failed, nodes, centred)
    rank = len(scope.shape(x) or ())
    axis = rank - len(variance.axes)
    if variance.axes != list(range(axis, rank)):
        failed = {"axes": _text(variance.axes), "rank": rank}
        return NearlyNormalised("the axes that it normalises are not the last ones", failed, nodes, centred)
    scales = list(quotient.factors)
    scales.remove(base)
    if len(scales) > 1 or not all(_fits(value, x, axis, scope) for value in scales):
        return None
    return Normalised(x, axis, epsilon, centred, quotient.number, scales[0] if scales else None, None, nodes)


def _without_number(quotient: Quotient, added: ir.Node | None, scope: Scope) -> Found:
    """A near miss where epsilon is not one number."""
    if added is None:
        return None
    for value, other in (added.inputs, added.inputs[::-1]):
        mean = mean_of(value, scope)
        base = None if mean is None else square_of(mean.source, scope)
        if mean is None or other is None or base is None or base not in quotient.factors:
            continue
        nodes, centred = (*quotient.nodes, added, *mean.nodes), scope.producer(base, "Sub") is not None
        number = scope.single(other)
        if number is not None and number < 0:
            return NearlyNormalised("epsilon is negative", {"epsilon": str(number)}, nodes, centred)
        return NearlyNormalised("epsilon is not one number", {"epsilon": other.name or ""}, nodes, centred)
    return None


def square_of(value: ir.Value | None, scope: Scope) -> ir.Value | None:
    """The operand of a square; None if a value is not a square."""
    node = scope.producer(value, "Mul", "Pow")
    if node is None:
        return None
    if node.op_type == "Mul":
        return node.inputs[0] if node.inputs[0] is node.inputs[1] else None
    return node.inputs[0] if scope.wants(scope.single(operand(node, 1)), 2) else None


def _equal(value: ir.Value, other: ir.Value, scope: Scope) -> bool:
    """Whether two values are the same, or the same difference."""
    first, second = scope.producer(value, "Sub"), scope.producer(other, "Sub")
    if value is other:
        return True
    if first is None or second is None or first.inputs[0] is not second.inputs[0]:
        return False
    if first.inputs[1] is second.inputs[1]:
        return True
    means = mean_of(first.inputs[1], scope), mean_of(second.inputs[1], scope)
    return (
        means[0] is not None
        and means[1] is not None
        and (means[0].source, means[0].axes)
        == (
            means[1].source,
            means[1].axes,
        )
    )


def _fits(value: ir.Value, x: ir.Value, axis: int, scope: Scope) -> bool:
    """Whether a value has a number for each element of a row, the same for all rows."""
    shape, whole = scope.shape(value), scope.shape(x)
    if shape is None or whole is None or len(shape) > len(whole):
        return False
    row, outer = whole[axis:], len(shape) - (len(whole) - axis)
    if scope.constant(value) is None or any(dim.constant is None for dim in row):
        return shape == row
    if all(dim is ONE for dim in shape):
        return True
    return outer >= 0 and shape[outer:] == row and all(dim is ONE for dim in shape[:outer])


def _text(axes: list[int]) -> str:
    return ", ".join(map(str, axes))

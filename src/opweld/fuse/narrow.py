"""Narrows sums of products to the taps that ever lie on the data: a window over a short axis is mostly padding."""

from __future__ import annotations

from collections.abc import Container

from opweld.tensor.dim import Atom, Axis, Dim, axes_of, symbols_of
from opweld.tensor.expr import Binary, Expr, Load, Reduce, const, reduce, substitute, transform, walk


def narrow(body: Expr, constants: Container[str]) -> Expr:
    """The expression with each sum of products running only over taps that some guard does not rule out for every
    element. What such a tap multiplies with zero must be a constant, for zero times infinity would not be zero."""

    def rewrite(node: Expr) -> Expr | None:
        if not isinstance(node, Reduce) or node.kind != "sum":
            return None
        data = _padded_factor(node.body, constants)
        if data is None:
            return None
        axes = list(node.axes)
        inner = node.body
        for position, axis in enumerate(axes):
            low, high = _range(data, axis)
            if low < high and (low > 0 or high < (axis.extent.constant or 0)):
                axes[position] = Axis(axis.name, high - low)
                mapping: dict[Atom, Dim] = {axis: axes[position].dim + low}
                inner = substitute(inner, mapping)
        return None if inner is node.body else reduce("sum", tuple(axes), inner)

    return transform(body, rewrite) if any(isinstance(node, Reduce) for node in walk(body)) else body


def _padded_factor(body: Expr, constants: Container[str]) -> Load | None:
    """The factor that is zero where its guards fail, if the other is an element of a constant."""
    if not isinstance(body, Binary) or body.op != "mul":
        return None
    for data, weight in ((body.x, body.y), (body.y, body.x)):
        if isinstance(data, Load) and isinstance(weight, Load) and weight.tensor in constants:
            return data if data.fill is const(0, data.dtype) else None
    return None


def _range(data: Load, axis: Axis) -> tuple[int, int]:
    """The indices of an axis that guards on this axis alone allow; the whole extent, or nothing if it is dynamic."""
    extent = axis.extent.constant
    if extent is None:
        return 0, 0
    low, high = 0, extent
    for guard in data.guards:
        if axes_of(guard) != frozenset((axis,)) or symbols_of(guard):
            continue
        slope, rest = guard.coefficient(axis), guard.without(axis).constant
        if slope is None or rest is None:
            continue
        if slope.constant == 1:
            low = max(low, -rest)
        elif slope.constant == -1:
            high = min(high, rest + 1)
    return low, high

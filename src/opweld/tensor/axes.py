"""Splits axes that indices divide, and orders axes by stride.

y with y // 2 and y % 2 becomes 2 * y' + dy, which removes the divisions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from opweld.tensor.dim import ONE, Atom, Axis, Dim, FloorDiv, Mod, atoms_of, floordiv
from opweld.tensor.expr import Expr, Reduce, dims_of, reduce, substitute, transform, walk

ROUNDS = 16
"""The most times that an axis is split; reshapes of reshapes rarely need more than three."""


def split(axes: Sequence[Axis], body: Expr, stores: Sequence[Dim]) -> tuple[tuple[Axis, ...], Expr, tuple[Dim, ...]]:
    """Splits every axis, free or reduced, that an index of the body or a store divides by a factor of its extent.

    Returns the new free axes, the body over them, and the stores over them."""
    own = tuple(axes)
    places: tuple[Dim, ...] = tuple(stores)
    for _ in range(ROUNDS):
        found = _divided(own, body, places)
        if found is None:
            break
        axis, divisor = found
        outer, inner = Axis(axis.name + "o", floordiv(axis.extent, divisor)), Axis(axis.name + "i", divisor)
        mapping: dict[Atom, Dim] = {axis: divisor * outer.dim + inner.dim}
        if axis in own:
            position = own.index(axis)
            own = (*own[:position], outer, inner, *own[position + 1 :])
            body = substitute(body, mapping)
            places = tuple(place.substitute(mapping) for place in places)
        else:
            body = replace_reduced(body, (axis,), (outer, inner), mapping)
    return own, body, places


def _divided(own: tuple[Axis, ...], body: Expr, stores: tuple[Dim, ...]) -> tuple[Axis, Dim] | None:
    """An axis and a divisor of it: of several, the largest number, whose remainders the others divide again."""
    found: tuple[Axis, Dim] | None = None
    candidates = {*own, *(axis for node in walk(body) if isinstance(node, Reduce) for axis in node.axes)}
    for dim in (*stores, *(d for node in walk(body) for d in dims_of(node))):
        for atom in sorted(atoms_of(dim), key=lambda a: a.key):
            if not isinstance(atom, FloorDiv | Mod):
                continue
            axis, divisor = _with_offset(atom.left), atom.right
            if axis is None or axis not in candidates or divisor in (ONE, axis.extent):
                continue
            if floordiv(axis.extent, divisor) * divisor is not axis.extent:
                continue
            if found is None or (axis is found[0] and (divisor.constant or 0) > (found[1].constant or 0)):
                found = axis, divisor
    return found


def _with_offset(dim: Dim) -> Axis | None:
    """The axis of an index that is one but for a constant, as with the padding of a transposed convolution."""
    axes = [atom for atom in dim.atoms if isinstance(atom, Axis) and dim.coefficient(atom) is ONE]
    return axes[0] if len(axes) == 1 and dim.without(axes[0]).constant is not None else None


def replace_reduced(body: Expr, old: tuple[Axis, ...], new: tuple[Axis, ...], mapping: Mapping[Atom, Dim]) -> Expr:
    """Reduces over `new` axes instead of `old` ones, which `mapping` expresses in terms of the new."""

    def rewrite(node: Expr) -> Expr | None:
        if not isinstance(node, Reduce) or not set(old) <= set(node.axes):
            return None
        position = node.axes.index(old[0])
        kept = [axis for axis in node.axes if axis not in old]
        axes = (*kept[:position], *new, *kept[position:])
        return reduce(node.kind, axes, substitute(node.body, mapping))

    return transform(body, rewrite)


def by_stride(axes: Sequence[Axis], address: Dim) -> tuple[Axis, ...]:
    """Axes from the largest stride to the smallest; symbolic strides count as large."""

    def step(axis: Axis) -> float:
        stride = address.coefficient(axis)
        if stride is None:
            return 1e30
        if stride.constant is not None:
            return abs(stride.constant)
        return 1e12 * max(len(monomial) for monomial, _ in stride.terms) + abs(stride.terms[0][1])

    return tuple(sorted(axes, key=lambda axis: (-step(axis), axes.index(axis))))

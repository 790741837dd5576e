"""Sums of a window as sums of its points: what every window that holds a point would add again is added once.

    sum<r0, r1, r2>(i32(x[i2 + r1 - 1, i3 + r2 - 1, r0 if GUARDS else zero]))
      = sum<r1, r2>(points[i2 + r1 - 1, i3 + r2 - 1 if GUARDS else C * i32(zero)])
        where points[j0, j1] = sum<r0: C>(i32(x[j0, j1, r0]))

For integers, whose sums are the same in any order. A 3x3 window over C channels reads 9 C elements for each result,
the sums of points C and 9 words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opweld.schedule.expected import Expected
from opweld.tensor.dim import Atom, Axis, Dim, product
from opweld.tensor.expr import Expr, Load, binary, const, free_atoms, load, loads, reduce, transform
from opweld.tensor.operators import WORD_BYTES


@dataclass(frozen=True)
class PointSums:
    """Sums in two steps.

    Attributes:
        axes, body: of the tensor of the points' sums.
        windows: the sum of a window, which reads that tensor.
    """

    axes: tuple[Axis, ...]
    body: Expr
    windows: Expr


def point_sums(
    number: Expr, axes: Sequence[Axis], results: Dim, shape: Sequence[Dim], name: str, expected: Expected
) -> PointSums | None:
    """The sum of integers over axes by points that lie in a tensor `name`; None where it does not slide over them, or
    where that reads no fewer bytes.

    Args:
        number: what is summed, of one element of a tensor of this shape.
        results: how many sums there are.
    """
    found = [node for node in loads(number) if any(index.depends_on(axis) for index in node.indices for axis in axes)]
    if len(found) != 1:
        return None
    (element,) = found
    within = [axis for axis in axes if _is_of_a_point(element, axis)]
    around = tuple(axis for axis in axes if axis not in within)
    if not within or not around:
        return None
    taps, depth = (expected.product(axis.extent for axis in group) for group in (around, within))
    places = [place for place, index in enumerate(element.indices) if not any(index.depends_on(a) for a in within)]
    points = expected.product(shape[place] for place in places)
    # A sum of a point is written and read as a word, beside its elements.
    sums = expected(results)
    if points * (depth * element.dtype.bytes + WORD_BYTES) + sums * taps * WORD_BYTES >= (
        sums * taps * depth * element.dtype.bytes
    ):
        return None
    own = {place: Axis(f"i{number}", shape[place]) for number, place in enumerate(places)}
    inner = {axis: Axis(f"r{number}", axis.extent) for number, axis in enumerate(within)}
    mapping: dict[Atom, Dim] = {axis: new.dim for axis, new in inner.items()}
    indices = tuple(
        own[place].dim if place in own else index.substitute(mapping) for place, index in enumerate(element.indices)
    )
    there = load(element.tensor, element.dtype, indices)
    body = reduce("sum", tuple(inner.values()), _with(number, element, there))
    fill = None
    if element.guards:
        assert element.fill is not None
        count = product(axis.extent for axis in within).constant
        if count is None:
            return None
        fill = binary("mul", _with(number, element, element.fill), const(count, number.dtype))
    read = load(name, number.dtype, tuple(element.indices[place] for place in places), element.guards, fill)
    return PointSums(tuple(own.values()), body, reduce("sum", around, read))


def _is_of_a_point(element: Load, axis: Axis) -> bool:
    """Whether an axis is where an element lies in its point, and tells nothing else."""
    at = [index for index in element.indices if index.depends_on(axis)]
    elsewhere = any(guard.depends_on(axis) for guard in element.guards)
    filled = element.fill is not None and axis in free_atoms(element.fill)
    return len(at) == 1 and at[0] is axis.dim and not elsewhere and not filled


def _with(number: Expr, element: Load, other: Expr) -> Expr:
    return transform(number, lambda node: other if node is element else None)

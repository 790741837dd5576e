"""Which contractions multiply a value, directly or after elementwise work that keeps its axes, and so are read in the
order in which it is stored."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from opweld.fuse.region import Kind, Region, factors, reductions
from opweld.tensor.dim import axes_of
from opweld.tensor.expr import loads
from opweld.tensor.program import Tensor

MOST = 8
"""So many are found of each value, the nearest: more would not decide otherwise, and long chains would take long."""


@dataclass(frozen=True, eq=False)
class Product:
    """A contraction, the member of a region with this number, and the value that it multiplies."""

    region: Region
    number: int
    factor: str


def products_of(regions: Iterable[Region], fixed: frozenset[str]) -> Mapping[str, list[Product]]:
    """The contractions that multiply each value, or one that is computed from it element by element. fixed: the values
    whose order is given."""
    found: dict[str, list[Product]] = {}
    for region in reversed(list(regions)):
        for number, member in enumerate(region.members):
            if member.kind is Kind.CONTRACTION:
                for node in factors(reductions(member.tensor.body)[0]) or ():
                    found.setdefault(node.tensor, []).append(Product(region, number, node.tensor))
            elif region.kind is Kind.MAP and member.tensor.name not in fixed:
                for name in _alike(member.tensor):
                    found.setdefault(name, []).extend(found.get(member.tensor.name, ())[-MOST:])
    return {name: products[-MOST:] for name, products in found.items()}


def _alike(tensor: Tensor) -> dict[str, None]:
    """The values that elementwise work reads along its own axes: they are best stored in the same order."""
    return dict.fromkeys(
        node.tensor
        for node in loads(tensor.body)
        if len(node.indices) == len(tensor.axes)
        and all(axes_of(index) <= {axis} for index, axis in zip(node.indices, tensor.axes, strict=True))
    )

"""The padding around a value that makes the guards of its loads redundant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from opweld.fuse.region import axes_in
from opweld.place.storage import Storage
from opweld.schedule.cost import GUARD, core_of
from opweld.schedule.expected import Expected
from opweld.target import Target
from opweld.tensor.dim import Atom, Dim, FloorDiv, Value, axes_of, lower_constant, smallest
from opweld.tensor.expr import Expr, Load, free_atoms, loads

WIDEST = 64
"""The widest halo: a wider one costs more memory traffic than the guards that it saves."""


def halo_of(node: Load, shape: Sequence[Dim]) -> tuple[tuple[int, int], ...] | None:
    """Padding before and after each axis that makes the guards unnecessary; None when padding cannot.

    Every guard must compare one index with a bound: `index >= 0` or `extent - 1 - index >= 0`. It must not protect an
    index computed at run time: padding is around the value, not around its indices."""
    guarded = frozenset[Atom]().union(*(guard.atoms for guard in node.guards))
    if any(isinstance(atom, Value) and atom.inside() & guarded for dim in node.indices for atom in dim.atoms):
        return None
    bounds = {dim: position for position, dim in enumerate(node.indices)}
    ends = {extent - 1 - dim: p for p, (dim, extent) in enumerate(zip(node.indices, shape, strict=True))}
    if any(guard not in bounds and guard not in ends for guard in node.guards):
        return None
    halo: list[tuple[int, int]] = []
    for dim, extent in zip(node.indices, shape, strict=True):
        low = _overhang(dim) if dim in node.guards else 0
        high = _overhang(extent - 1 - dim) if extent - 1 - dim in node.guards else 0
        if low is None or high is None or max(low, high) > WIDEST:
            return None
        halo.append((low, high))
    return tuple(halo)


def fill_of(node: Load) -> Expr | None:
    """What padding around a value holds for a load whose guards it makes unnecessary: a number, or what is computed
    from elements of other values; None where that is not the same for all elements."""
    if node.fill is None or free_atoms(node.fill) or any(site.guards for site in loads(node.fill)):
        return None
    return node.fill


def inside_halo(node: Load, storage: Storage, shape: Sequence[Dim]) -> bool:
    """Whether the padding around a value makes the guards of a load redundant."""
    if not node.guards or not storage.padded:
        return False
    needed = halo_of(node, shape)
    return (
        needed is not None
        and fill_of(node) is storage.fill
        and all(a <= c and b <= d for (a, b), (c, d) in zip(needed, storage.halo, strict=True))
    )


def edge_tests(nodes: Iterable[Load], single: Mapping[Load, float], expected: Expected, target: Target) -> float:
    """Seconds of the guards of loads, for vectors of elements. `single`: for loads that are broadcast to all lanes, the
    number of lane tiles that repeat them."""
    tests = 0.0
    for node in nodes:
        times = expected.product(axis.extent for axis in axes_in(node))
        tests += len(node.guards) * times * single.get(node, 1 / target.vector_lanes_f32)
    core = core_of(target)
    return GUARD * tests / core.products / core.hertz


def _overhang(dim: Dim) -> int | None:
    """How far an index is below 0 at most; quotients, as of the phases of a transposed convolution, by their bounds."""
    quotients = [atom for monomial, _ in dim.terms for atom in monomial if isinstance(atom, FloorDiv)]
    for atom in quotients:
        if not axes_of(atom.left):
            continue
        slope = dim.coefficient(atom)
        if slope is None or slope.constant is None:
            return None
        ends = atom.lower_bounds() if slope.constant > 0 else atom.upper_bounds()
        if not ends:
            return None
        dim = slope * ends[0] + dim.without(atom)
    least = smallest(dim)
    constant = None if least is None else lower_constant(least)
    return None if constant is None else max(0, -constant)

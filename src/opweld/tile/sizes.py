"""Sizes that a kernel is given instead of computing them: a feature map of (H + 31) // 32 rows is one of n rows.

Kernels of two variants, one for any H and one for multiples of 32, become one that is rendered and compiled once, and
their code divides nothing. Only what loses no knowledge is given: where H itself is needed too, or its remainder, the
relation between both says which edges there are, and the division stays."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

from opweld.tensor.bounds import lower_constant
from opweld.tensor.dim import Atom, Axis, Dim, FloorDiv, Symbol, Value
from opweld.tensor.expr import Expr, transform
from opweld.tile.tile import Kernel, Loop, Statement, Tile, dims_of_kernel, map_operands, walk_statements

Sized: TypeAlias = tuple[Kernel, tuple[Dim, ...]]
"""A kernel, and what each of its sizes is bound to."""


def given_sizes(kernel: Kernel) -> Sized:
    """The kernel that is given what it would divide, and what each of its sizes is bound to: polynomials of the sizes
    that it had."""
    bound: dict[Symbol, Dim] = {symbol: symbol.dim for symbol in kernel.sizes}
    while (division := _needless(kernel)) is not None:
        inside = sorted((atom for atom in division.inside() if isinstance(atom, Symbol)), key=lambda atom: atom.name)
        taken = {symbol.name for symbol in bound}
        symbol = Symbol(_fresh(inside[0].name, taken), lower_constant(division.dim))
        bound[symbol] = division.dim.substitute({made: bound.pop(made) for made in inside})
        kernel = replace(_with(kernel, {division: symbol.dim}), sizes=tuple(sorted(bound, key=lambda made: made.name)))
    return kernel, tuple(bound[symbol] for symbol in kernel.sizes)


def _needless(kernel: Kernel) -> FloorDiv | None:
    """A division of sizes which occur nowhere else in the kernel."""
    if not kernel.sizes:
        return None
    dims = set(dims_of_kernel(kernel.grid, kernel.scratch, kernel.body))
    dims |= {statement.axis.extent for statement in walk_statements(kernel.body) if isinstance(statement, Loop)}
    atoms = {atom for dim in dims for atom in dim.atoms}
    if any(isinstance(atom, Value) for atom in atoms):
        return None  # what is looked up at run time has expressions inside
    divisions = [atom for atom in atoms if isinstance(atom, FloorDiv)]
    for division in sorted(divisions, key=lambda atom: atom.key):
        sizes = division.inside() - {division}
        if not sizes <= set(kernel.sizes) or lower_constant(division.dim) is None:
            continue
        gone: dict[Atom, Dim] = {division: Symbol("?").dim}  # a name that no size has
        if not any(sizes & dim.substitute(gone).atoms for dim in dims):
            return division
    return None


def _fresh(name: str, taken: Container[str]) -> str:
    """A name that no other size has, and that comes where the one it is made from did: kernels that differ in names
    only are one by the order of these."""
    name += "_"
    while name in taken:
        name += "_"
    return name


def _with(kernel: Kernel, mapping: Mapping[Atom, Dim]) -> Kernel:
    """The kernel with sizes replaced, in the extents of its axes too."""
    mapping = dict(mapping)
    grid = tuple(_axis(axis, mapping) for axis in kernel.grid)
    scratch = tuple(replace(block, elements=block.elements.substitute(mapping)) for block in kernel.scratch)
    return replace(kernel, grid=grid, scratch=scratch, body=tuple(_statements(kernel.body, mapping)))


def _axis(axis: Axis, mapping: dict[Atom, Dim]) -> Axis:
    """The axis with its extent replaced; where that changes it, what reads it is from then on the new one."""
    extent = axis.extent.substitute(mapping)
    if extent is axis.extent:
        return axis
    made = Axis(axis.name, extent)
    mapping[axis] = made.dim
    return made


def _kept(node: Expr) -> None:
    """The node as it is: only its polynomials change."""


def _statements(body: Iterable[Statement], mapping: dict[Atom, Dim]) -> Iterator[Statement]:
    def changed(dim: Dim) -> Dim:
        return dim.substitute(mapping)

    for statement in body:
        found = statement
        if isinstance(found, Loop):
            found = replace(found, axis=_axis(found.axis, mapping))
        found = map_operands(found, changed, lambda root: transform(root, _kept, changed))
        if isinstance(found, Loop | Tile):
            found = replace(found, body=tuple(_statements(found.body, mapping)))
        yield found

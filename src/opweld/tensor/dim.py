"""Integer algebra for sizes and indices.

A `Dim` is a polynomial with integer coefficients over *atoms*: symbols (dynamic sizes), axes (loop indices), floor
divisions, remainders, minima, maxima, and checked run-time integers. Polynomials are canonical and interned, so two
equal sizes are the same object, and most index arithmetic that a Reshape or a Slice creates vanishes by construction.
Symbols are sizes of at least one; every compiled program guards that. An empty domain is never iterated.

    polynomial.py   Dim: terms and their sums, products, substitution, evaluation
    atoms.py        Symbol, Axis, Value: the variables of polynomials, and their ranges
    bounds.py       proofs of signs and bounds
    division.py     FloorDiv and Mod, and their constructors floordiv and mod, which simplify by proofs
    extremes.py     Min and Max, and their constructors minimum and maximum
    intern.py       the intern tables
"""

from __future__ import annotations

from collections.abc import Iterable

from opweld.tensor.atoms import Atom, Axis, Symbol, Value, axes_of, symbols_of
from opweld.tensor.bounds import lower_constant, nonnegative, smallest, upper_constant
from opweld.tensor.division import FloorDiv, Mod, ceildiv, floordiv, mod
from opweld.tensor.extremes import Max, Min, maximum, minimum
from opweld.tensor.polynomial import ONE, ZERO, Dim, DimLike, Monomial, TooLargeError, as_dim, product


def atoms_of(dim: Dim) -> frozenset[Atom]:
    """Every atom that occurs in the polynomial, at any depth."""
    return dim.atoms


def inner_atoms(atom: Atom) -> frozenset[Atom]:
    """The atom and all atoms inside it; for a run-time value, those of its index expressions too."""
    return atom.inside()


def row_major(indices: Iterable[DimLike], shape: Iterable[DimLike]) -> Dim:
    """The row-major offset of an element, given its indices and the shape."""
    place = ZERO
    for at, extent in zip(indices, shape, strict=True):
        place = place * extent + at
    return place


__all__ = [
    "ONE",
    "ZERO",
    "Atom",
    "Axis",
    "Dim",
    "DimLike",
    "FloorDiv",
    "Max",
    "Min",
    "Mod",
    "Monomial",
    "Symbol",
    "TooLargeError",
    "Value",
    "as_dim",
    "atoms_of",
    "axes_of",
    "ceildiv",
    "floordiv",
    "inner_atoms",
    "lower_constant",
    "maximum",
    "minimum",
    "mod",
    "nonnegative",
    "product",
    "row_major",
    "smallest",
    "symbols_of",
    "upper_constant",
]

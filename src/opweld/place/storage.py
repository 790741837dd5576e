"""The storage of a value: the address of each element."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from opweld.schedule.cost import LINE
from opweld.tensor.dim import ONE, ZERO, Dim, as_dim, ceildiv, floordiv, mod
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr
from opweld.tensor.operators import WORD_BYTES

SHORT = 256
"""Rows of at most this many elements are never padded."""


@dataclass(frozen=True)
class Term:
    """One summand of an address: stride * ((index[axis] + shift) // divisor % modulus)."""

    axis: int
    stride: Dim
    divisor: int = 1
    modulus: int | None = None
    shift: int = 0


@dataclass(frozen=True)
class Storage:
    """The address of element [i0, i1, ...], in elements from the start of `root`'s memory.

    `root` is the value that owns the memory: the value itself, or the parent of which it is a slice. `elements` is the
    size of the root's memory. `halo` is, for each axis, the number of elements of padding before and after; they hold
    `fill`: a number, or what is computed from elements of other values, as a zero point is. `pairs_fit`: of
    constant bytes in words, whether they are as `saturation.pairs_fit` says."""

    root: str
    dtype: DType
    terms: tuple[Term, ...]
    offset: Dim
    elements: Dim
    halo: tuple[tuple[int, int], ...] = ()
    fill: Expr | None = None
    pairs_fit: bool = False

    def address(self, indices: Sequence[Dim]) -> Dim:
        """The linear position of an element."""
        total = self.offset
        for term in self.terms:
            piece = indices[term.axis] + term.shift
            if term.divisor != 1:
                piece = floordiv(piece, term.divisor)
            if term.modulus is not None:
                piece = mod(piece, term.modulus)
            total = total + term.stride * piece
        return total

    def is_at(self, other: Storage) -> bool:
        """Whether each element has the same address in both."""
        return self.root == other.root and self.terms == other.terms and self.offset is other.offset

    @property
    def padded(self) -> bool:
        """Whether any axis has a halo."""
        return any(low or high for low, high in self.halo)

    def stride(self, axis: int) -> Dim | None:
        """The stride of an axis, or None when the axis is blocked."""
        terms = [term for term in self.terms if term.axis == axis]
        if not terms:
            return ZERO
        return terms[0].stride if len(terms) == 1 and terms[0].modulus is None and terms[0].divisor == 1 else None


def dense(
    name: str,
    dtype: DType,
    shape: Sequence[Dim],
    order: Sequence[int] | None = None,
    halo: Sequence[tuple[int, int]] | None = None,
    fill: Expr | None = None,
    *,
    rows_apart: bool = False,
) -> Storage:
    """Memory of its own, axes nested in `order` (outermost first; default row-major), each padded by its halo; with
    `rows_apart`, the leading dimension is padded as by `apart`."""
    order = tuple(range(len(shape))) if order is None else tuple(order)
    halo = tuple(halo) if halo is not None else ((0, 0),) * len(shape)
    terms: list[Term] = []
    stride = ONE
    for axis in reversed(order):
        low, high = halo[axis]
        size = shape[axis] + low + high
        if size.constant == 1:
            continue
        terms.append(Term(axis, stride, shift=low))
        stride = apart(size, dtype) if rows_apart and stride is ONE else stride * size
    return Storage(name, dtype, tuple(sorted(terms, key=lambda t: t.axis)), ZERO, stride, halo, fill)


def apart(row: Dim, dtype: DType) -> Dim:
    """The leading dimension of rows of this many elements, a cache line more than a multiple of 64 elements: rows at a
    power of two map to the same sets of the first-level cache, and evict each other."""
    return ceildiv(row, 64) * 64 + LINE // dtype.bytes


def dense_apart(name: str, dtype: DType, shape: Sequence[Dim]) -> Storage:
    """Row-major memory of its own with a padded leading dimension, unless rows are known to be short."""
    row = shape[-1].constant
    return dense(name, dtype, shape, rows_apart=len(shape) > 1 and (row is None or row >= SHORT))


def blocked(
    name: str,
    dtype: DType,
    shape: Sequence[int],
    order: Sequence[int],
    axis: int,
    block: int,
    words: int | None = None,
) -> Storage:
    """Constant memory [axis // block][order...][axis % block], the last block padded with zeros: the order in which a
    contraction reads its packed operand. `words`: neighbours on this axis lie side by side, as many as a word has, and
    it has whole ones."""
    each = 1 if words is None else WORD_BYTES // dtype.bytes
    terms: list[Term] = [] if words is None else [Term(words, ONE, modulus=each)]
    terms.append(Term(axis, as_dim(each), modulus=block))
    stride = as_dim(each * block)
    for other in reversed([a for a in order if a != axis]):
        part = each if other == words else 1
        terms.append(Term(other, stride, divisor=part))
        stride = stride * (shape[other] // part)
    terms.append(Term(axis, stride, divisor=block))
    stride = stride * ceildiv(shape[axis], block)
    return Storage(name, dtype, tuple(terms), ZERO, stride)


def slice_of(parent: Storage, axis: int, start: Dim) -> Storage:
    """A part of a parent that begins at `start` on an axis."""
    at = [ZERO] * (1 + max((term.axis for term in parent.terms), default=0))
    at = at + [ZERO] * max(0, axis + 1 - len(at))
    base = parent.address(at)
    at[axis] = start
    moved = parent.address(at) - base
    return Storage(parent.root, parent.dtype, parent.terms, parent.offset + moved, parent.elements)


def lay_out(array: np.ndarray[Any, Any], storage: Storage) -> np.ndarray[Any, Any]:
    """The flat memory image of a constant under a storage without symbols; padding is zero."""
    flat = np.zeros(int(storage.elements), storage.dtype.numpy)
    runs = [_runs(_positions(storage, axis, size)) if size else [] for axis, size in enumerate(array.shape)]
    for chosen in itertools.product(*runs):
        first = int(storage.offset) + sum(run.first for run in chosen)
        shape = [extent for run in chosen for extent in (run.blocks, run.block)]
        strides = [stride * flat.itemsize for run in chosen for stride in (run.outer, run.inner)]
        part = array[tuple(slice(run.begin, run.begin + run.blocks * run.block) for run in chosen)]
        as_strided(flat[first:], shape, strides)[...] = part.reshape(shape)
    return flat


@dataclass(frozen=True)
class _Run:
    """Indices of an axis from `begin` on, `blocks` of `block` each, at positions first + (i // block) * outer + (i %
    block) * inner, which NumPy copies at memory bandwidth."""

    begin: int
    first: int
    blocks: int
    block: int
    outer: int
    inner: int


def _positions(storage: Storage, axis: int, size: int) -> np.ndarray[Any, Any]:
    """The address offset of each index of an axis."""
    positions = np.zeros(size, np.int64)
    for term in storage.terms:
        if term.axis == axis:
            piece = (np.arange(size, dtype=np.int64) + term.shift) // term.divisor
            positions += (piece if term.modulus is None else piece % term.modulus) * int(term.stride)
    return positions


def _runs(positions: np.ndarray[Any, Any]) -> list[_Run]:
    """The fewest consecutive runs: full blocks, then the remainder."""
    found: list[_Run] = []
    begin = 0
    while begin < positions.size:
        rest = positions[begin:]
        steps = np.diff(rest)
        inner = int(steps[0]) if steps.size else 0
        breaks = np.flatnonzero(steps != inner)
        block = int(breaks[0]) + 1 if breaks.size else rest.size
        outer = int(rest[block] - rest[0]) if block < rest.size else 0
        at = np.arange(rest.size)
        regular = rest == rest[0] + at // block * outer + at % block * inner
        alike = rest.size if bool(regular.all()) else int(np.argmin(regular))
        blocks = max(1, alike // block)
        found.append(_Run(begin, int(rest[0]), blocks, block, outer, inner))
        begin += blocks * block
    return found

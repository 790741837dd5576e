"""Distinct elements, or slices along an axis: how many there are depends on data."""

from __future__ import annotations

from opweld.frontend.torch.builder import Builder, Value
from opweld.frontend.torch.rows import aten
from opweld.tensor.dtype import DType

_I64 = DType.I64

Groups = tuple[Value, Value, Value]
"""The distinct ones, which of them each element is, how often each is there."""


@aten("_unique2.default")
def unique(
    b: Builder, x: Value, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> Groups:
    """The elements, in order: PyTorch promises none where it does not sort."""
    values, _, inverse, counts = b.ops("Unique", x, dtypes=[None, _I64, _I64, _I64])
    return values, b.reshape(inverse, b.sizes(x)), counts


@aten("unique_dim.default")
def unique_dim(
    b: Builder, x: Value, dim: int, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> Groups:
    """The slices, in lexicographic order."""
    axis = b.axis(dim, b.rank(x))
    values, _, inverse, counts = b.ops("Unique", x, dtypes=[None, _I64, _I64, _I64], axis=axis)
    return values, inverse, counts


@aten("unique_consecutive.default")
def unique_consecutive(
    b: Builder, x: Value, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Groups:
    """One of each run of equal elements, or slices: where one differs from that before it a run begins."""
    shape = b.sizes(x)
    rank, axis = (1, 0) if dim is None else (b.rank(x), b.axis(dim, b.rank(x)))
    if dim is None:
        x = b.reshape(x, [-1])
    zero, one = b.constant(0, _I64), b.constant(1, _I64)
    size = b.size(x, axis) if dim is not None else b.op("Size", x, dtype=_I64)
    places = b.op("Range", zero, b.cast(size, _I64), one)
    before = b.op("Gather", x, b.op("Max", b.op("Sub", places, one), zero), axis=axis)
    differs = b.op("Not", b.op("Equal", x, before, dtype=DType.BOOL))
    others = [other for other in range(rank) if other != axis]
    if others:
        any_of = b.op("ReduceMax", b.cast(differs, DType.I32), b.ints(others), keepdims=0)
        differs = b.cast(any_of, DType.BOOL)
    begins = b.op("Or", differs, b.op("Equal", places, zero, dtype=DType.BOOL))
    inverse = b.op("Sub", b.op("CumSum", b.cast(begins, _I64), zero), one)
    starts = b.op("Compress", places, begins, axis=0)
    ends = b.op("Concat", b.op("Slice", starts, b.ints([1]), b.ints([2**31]), b.ints([0])), b.ints([size]), axis=0)
    counts = b.op("Sub", ends, starts)
    return b.op("Compress", x, begins, axis=axis), inverse if dim is not None else b.reshape(inverse, shape), counts

"""Elements in order: extremes, medians, modes, places in a sequence."""

from __future__ import annotations

import math

from opweld.frontend.torch.builder import Builder, Scalar, Value
from opweld.frontend.torch.indexing import Known, Size, gather
from opweld.frontend.torch.rows import aten
from opweld.tensor.dtype import DType


@aten("topk.default")
def topk(b: Builder, x: Value, k: Size, dim: int = -1, largest: bool = True, sorted: bool = True) -> list[Value]:
    """The extreme elements along an axis, and their places."""
    if not b.rank(x):
        return [x, b.constant(0, DType.I64)]
    count = b.ints([k])
    axis = b.axis(dim, b.rank(x))
    return b.ops("TopK", x, count, dtypes=[None, DType.I64], axis=axis, largest=int(largest), sorted=1)


@aten("sort.default", "sort.stable")
def sort(b: Builder, x: Value, dim: int = -1, descending: bool = False, *, stable: bool = False) -> tuple[Value, ...]:
    """All elements along an axis in order, and their places."""
    if not b.rank(x):
        return x, b.constant(0, DType.I64)
    axis = b.axis(dim, b.rank(x))
    count = b.ints([b.sizes(x)[axis]])
    return tuple(b.ops("TopK", x, count, dtypes=[None, DType.I64], axis=axis, largest=int(descending), sorted=1))


@aten("kthvalue.default")
def kthvalue(b: Builder, x: Value, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Value, Value]:
    """The k-th smallest element along an axis, and its place."""
    return _ordered(b, x, b.constant(k - 1, DType.I64), dim, keepdim)


@aten("median.dim")
def median(b: Builder, x: Value, dim: int = -1, keepdim: bool = False) -> tuple[Value, Value]:
    """The lower one of the middle elements along an axis, and its place; a NaN where there is one."""
    if not b.rank(x):
        return x, b.constant(0, DType.I64)
    axis = b.axis(dim, b.rank(x))
    size = b.sizes(x)[axis]
    middle = b.op("Div", b.op("Sub", b.cast(size, DType.I64), b.cast(1, DType.I64)), b.cast(2, DType.I64))
    value, place = _ordered(b, x, middle, dim, keepdim)
    if not b.dtype_of(x).is_float:
        return value, place
    unknown = b.cast(b.op("IsNaN", x, dtype=DType.BOOL), DType.U8)
    some = b.cast(b.op("ReduceMax", unknown, b.constant([axis], DType.I64), keepdims=int(keepdim)), DType.BOOL)
    first = b.op("ArgMax", unknown, dtype=DType.I64, axis=axis, keepdims=int(keepdim))
    nan = b.cast(math.nan, b.dtype_of(x))
    return b.op("Where", some, nan, value, dtype=b.dtype_of(x)), b.op("Where", some, first, place, dtype=DType.I64)


@aten("median.default")
def median_of_all(b: Builder, x: Value) -> Value:
    """The lower one of the middle elements."""
    return median(b, _flattened(b, x), 0)[0]


@aten("nanmedian.dim")
def nanmedian(b: Builder, x: Value, dim: int = -1, keepdim: bool = False) -> tuple[Value, Value]:
    """The same of those that are numbers; NaN where none is."""
    if not b.rank(x) or not b.dtype_of(x).is_float:
        return median(b, x, dim, keepdim)
    axis = b.axis(dim, b.rank(x))
    numbers = b.cast(b.op("Not", b.op("IsNaN", x, dtype=DType.BOOL)), DType.I64)
    axes = b.constant([axis], DType.I64)
    count = b.op("ReduceSum", numbers, axes, keepdims=1)
    zero, one, two = (b.constant(number, DType.I64) for number in (0, 1, 2))
    middle = b.op("Max", b.op("Div", b.op("Sub", count, one), two), zero)
    found = [b.op("GatherElements", value, middle, axis=axis) for value in sort(b, x, dim)]  # NaN comes last
    if not keepdim:
        found = [b.op("Squeeze", value, axes) for value in found]
    return found[0], found[1]


@aten("nanmedian.default")
def nanmedian_of_all(b: Builder, x: Value) -> Value:
    """The lower one of the middle elements that are numbers."""
    return nanmedian(b, _flattened(b, x), 0)[0]


def _flattened(b: Builder, x: Value) -> Value:
    flat = b.reshape(x, [-1])
    b.known[flat] = Known((math.prod(b.shape(x)),))
    return flat


def _ordered(b: Builder, x: Value, place: Value, dim: int, keepdim: bool) -> tuple[Value, Value]:
    """The element at a place among those of an axis in order."""
    if not b.rank(x):
        return x, b.constant(0, DType.I64)
    axis = b.axis(dim, b.rank(x))
    found = sort(b, x, dim)
    values = [b.op("Gather", value, place, axis=axis) for value in found]
    if keepdim:
        values = [b.op("Unsqueeze", value, b.constant([axis], DType.I64)) for value in values]
    return values[0], values[1]


@aten("bucketize.Tensor", "bucketize.Scalar")
def bucketize(b: Builder, x: Value, boundaries: Value, *, out_int32: bool = False, right: bool = False) -> Value:
    """Before which boundary each element lies; see `searchsorted`."""
    return searchsorted(b, boundaries, x, out_int32=out_int32, right=right)


@aten("searchsorted.Tensor", "searchsorted.Scalar")
def searchsorted(
    b: Builder,
    sorted_sequence: Value,
    x: Scalar,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: Value | None = None,
) -> Value:
    """How many elements of a sequence, the last axis, are less than each element; or not more."""
    if sorter is not None:
        sorted_sequence = gather(b, sorted_sequence, -1, sorter)
        b.known[sorted_sequence] = b.known[sorter]
    dtype = b.promoted(sorted_sequence, x)
    value = b.cast(x, dtype)
    last = b.constant([-1], DType.I64)
    rows = b.op("Unsqueeze", value, last)
    sequence = b.cast(sorted_sequence, dtype)
    sequence = b.op("Unsqueeze", sequence, b.constant([-2], DType.I64)) if b.rank(sorted_sequence) > 1 else sequence
    op_type = "LessOrEqual" if right or side == "right" else "Less"
    less = b.op(op_type, sequence, rows, dtype=DType.BOOL)
    return b.cast(b.op("ReduceSum", b.cast(less, DType.I64), last, keepdims=0), b.dtype)


@aten("mode.default")
def mode(b: Builder, x: Value, dim: int = -1, keepdim: bool = False) -> tuple[Value, Value]:
    """The most frequent element along an axis, of several the least, and its last place."""
    if not b.rank(x):
        return x, b.constant(0, DType.I64)
    axis = b.axis(dim, b.rank(x))
    axes, sizes, own = b.constant([axis], DType.I64), b.sizes(x), b.dtype_of(x)
    data = b.cast(x, DType.U8) if own is DType.BOOL else x
    zero, one = b.constant(0, DType.I64), b.constant(1, DType.I64)
    end = b.constant([2**63 - 1], DType.I64)
    ordered, places = b.ops(
        "TopK", data, b.ints([sizes[axis]]), dtypes=[None, DType.I64], axis=axis, largest=0, sorted=1
    )
    former = b.op("Slice", ordered, b.constant([0], DType.I64), b.constant([-1], DType.I64), axes)
    latter = b.op("Slice", ordered, b.constant([1], DType.I64), end, axes)
    another = b.cast(b.op("Not", b.op("Equal", former, latter, dtype=DType.BOOL)), DType.I64)
    first = b.expanded(zero, [1 if i == axis else size for i, size in enumerate(sizes)])
    run = b.op("CumSum", b.op("Concat", first, another, axis=axis), b.constant(axis, DType.I64))  # of equal elements
    counts = b.op("ScatterElements", b.expanded(zero, sizes), run, b.expanded(one, sizes), axis=axis, reduction="add")
    most = b.op("ArgMax", counts, dtype=DType.I64, axis=axis, keepdims=1)
    until = b.op("CumSum", counts, b.constant(axis, DType.I64))
    last = b.op("Sub", b.op("GatherElements", until, most, axis=axis), one)
    found = [b.op("GatherElements", value, last, axis=axis) for value in (ordered, places)]
    value, place = found if keepdim else [b.op("Squeeze", each, axes) for each in found]
    return b.cast(value, own), place

"""Elements at computed places: read, written, ordered."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from opweld.errors import UnsupportedError
from opweld.frontend.torch.builder import Builder, Scalar, Value
from opweld.frontend.torch.movement import slice_
from opweld.frontend.torch.rows import aten
from opweld.tensor.dtype import DType

Size = int | Value


@aten("embedding.default")
def embedding(b: Builder, weight: Value, indices: Value, *_: Any, **__: Any) -> Value:
    """Rows of a table."""
    return b.op("Gather", weight, indices, axis=0)


@aten("index_select.default")
def index_select(b: Builder, x: Value, dim: int, index: Value) -> Value:
    """Indices of an axis."""
    if not b.rank(x):
        return x
    flat = index if b.rank(index) else b.reshape(index, [1])
    return b.op("Gather", x, flat, axis=b.axis(dim, b.rank(x)))


@aten("gather.default")
def gather(b: Builder, x: Value, dim: int, index: Value, **_: Any) -> Value:
    """An index of an axis for each element."""
    index = _whole(b, index)
    if not b.rank(x) or not b.rank(index):
        flat = b.op("GatherElements", b.reshape(x, [-1]), b.reshape(index, [-1]), axis=0)
        return b.reshape(flat, b.sizes(index))
    return b.op("GatherElements", x, index, axis=b.axis(dim, b.rank(x)))


@aten("index.Tensor", "_unsafe_index.Tensor")
def index(b: Builder, x: Value, indices: Sequence[Value | None]) -> Value:
    """Elements at the places that tensors tell together, as NumPy has it; masks are the places where they hold."""
    if any(i is not None and b.dtype_of(i) in (DType.BOOL, DType.U8) for i in indices):
        return _masked(b, x, indices)
    found = [(axis, i) for axis, i in enumerate(indices) if i is not None]
    if len(found) == 1:
        return b.op("Gather", x, found[0][1], axis=found[0][0])
    axes = [axis for axis, _ in found]
    rest = [axis for axis in range(b.rank(x)) if axis not in axes]
    order = axes + rest
    data = x if order == sorted(order) else b.op("Transpose", x, perm=order)
    places, rank = _places(b, [i for _, i in found])
    y = b.op("GatherND", data, places)
    if axes != list(range(axes[0], axes[-1] + 1)) or axes[0] == 0:
        return y  # apart, or in front: what they tell together comes first
    total = rank + len(rest)
    back = [*range(rank, rank + axes[0]), *range(rank), *range(rank + axes[0], total)]
    return b.op("Transpose", y, perm=back)


def _places(b: Builder, indices: Sequence[Value]) -> tuple[Value, int]:
    """Tensors of indices, broadcast against each other, side by side; and their common rank."""
    rank = max(b.rank(i) for i in indices)
    wide = [b.cast(i, DType.I64) for i in indices]
    if len({str(tuple(b.shape(i))) for i in indices}) > 1:
        total = wide[0]
        zero = b.constant(0, DType.I64)
        for other in wide[1:]:  # zeros of the common sizes
            total = b.op("Mul", b.op("Add", total, other), zero)
        wide = [b.op("Add", i, total) for i in wide]
    last = b.constant([-1], DType.I64)
    return b.op("Concat", *(b.op("Unsqueeze", i, last) for i in wide), axis=-1), rank


def _masked(b: Builder, x: Value, indices: Sequence[Value | None]) -> Value:
    if len(indices) != 1 or indices[0] is None:
        raise UnsupportedError(f"node {b.name!r}: a mask beside other indices")
    mask = b.cast(indices[0], DType.BOOL)
    count = b.rank(indices[0])
    if count != b.rank(x):
        x = b.reshape(x, [-1, *b.sizes(x)[count:]])
        return b.op("Compress", x, b.reshape(mask, [-1]), axis=0)
    return b.op("Compress", b.reshape(x, [-1]), b.reshape(mask, [-1]), axis=0)


@aten("nonzero.default")
def nonzero(b: Builder, x: Value) -> Value:
    """The places of what is not zero, a row each."""
    return b.op("Transpose", b.op("NonZero", x, dtype=DType.I64), perm=[1, 0])


@aten("scatter.src", "scatter.value")
def scatter(b: Builder, x: Value, dim: int, index: Value, src: Scalar) -> Value:
    """x with elements replaced."""
    return _scatter(b, x, dim, index, src, "none")


@aten("scatter.value_reduce", "scatter.reduce")
def scatter_mode(b: Builder, x: Value, dim: int, index: Value, src: Scalar, *, reduce: str) -> Value:
    """x with elements added to or multiplied."""
    return _scatter(b, x, dim, index, src, {"add": "add", "multiply": "mul"}[reduce])


@aten("scatter_add.default")
def scatter_add(b: Builder, x: Value, dim: int, index: Value, src: Value) -> Value:
    """x with elements added to."""
    return _scatter(b, x, dim, index, src, "add")


@aten("scatter_reduce.two")
def scatter_reduce(
    b: Builder, x: Value, dim: int, index: Value, src: Value, reduce: str, *, include_self: bool = True
) -> Value:
    """x with elements combined."""
    dtype = b.dtype
    modes = {"sum": "add", "mean": "add", "prod": "mul", "amax": "max", "amin": "min"}
    least, most = (-math.inf, math.inf) if dtype.is_float else dtype.limits
    neutral = {"sum": 0, "mean": 0, "prod": 1, "amax": least, "amin": most}[reduce]
    start = x if include_self else _scatter(b, x, dim, index, neutral, "none")
    b.known.setdefault(start, b.known[x])
    total = _scatter(b, start, dim, index, src, modes[reduce])
    if reduce != "mean":
        return total
    if not dtype.is_float:
        raise UnsupportedError(f"node {b.name!r}: a mean of integers")
    ones = b.expanded(b.cast(1 if include_self else 0, dtype), b.sizes(x))
    b.known[ones] = b.known[x]
    count = _scatter(b, ones, dim, index, 1, "add")
    return b.op("Div", total, b.op("Max", count, b.cast(1, dtype)))


def _whole(b: Builder, index: Value) -> Value:
    """Indices in a type that operators take."""
    if b.dtype_of(index) in (DType.I32, DType.I64):
        return index
    found = b.cast(index, DType.I64)
    b.known[found] = b.known[index]
    return found


def _scatter(b: Builder, x: Value, dim: int, index: Value, src: Scalar, reduction: str) -> Value:
    dtype = b.dtype
    index = _whole(b, index)
    if dtype is DType.BOOL and reduction != "none":
        raise UnsupportedError(f"node {b.name!r}: truth values combined")
    sizes = b.sizes(index)
    if isinstance(src, Value) and b.rank(src) == b.rank(index):
        part = b.cast(src, dtype)
        for axis, (own, wanted) in enumerate(zip(b.shape(src), b.shape(index), strict=True)):
            if own != wanted:
                part = b.op("Slice", part, *(b.ints([n]) for n in (0, sizes[axis], axis, 1)))
    else:
        part = b.expanded(b.cast(src, dtype), sizes)
    if b.rank(x):
        return b.op("ScatterElements", x, index, part, axis=b.axis(dim, b.rank(x)), reduction=reduction)
    return b.reshape(_scatter_flat(b, x, index, part, reduction), [])


def _scatter_flat(b: Builder, x: Value, index: Value, part: Value, reduction: str) -> Value:
    """The same with elements counted through the whole tensor."""
    flat = (b.reshape(value, [-1]) for value in (x, index, part))
    return b.op("ScatterElements", *flat, axis=0, reduction=reduction)


@aten("index_put.default", "_unsafe_index_put.default")
def index_put(b: Builder, x: Value, indices: Sequence[Value | None], values: Value, accumulate: bool = False) -> Value:
    """x with elements at places replaced or added to."""
    dtype = b.dtype
    if len(indices) == 1 and indices[0] is not None and b.dtype_of(indices[0]) is DType.BOOL:
        return _put_masked(b, x, indices[0], values, accumulate)
    found = [(axis, i) for axis, i in enumerate(indices) if i is not None]
    if any(b.dtype_of(i) in (DType.BOOL, DType.U8) for _, i in found):
        raise UnsupportedError(f"node {b.name!r}: writes at places that masks tell")
    axes = [axis for axis, _ in found]
    rest = [axis for axis in range(b.rank(x)) if axis not in axes]
    order = axes + rest
    data = b.op("Transpose", x, perm=order) if axes != list(range(len(axes))) else x
    places, rank = _places(b, [i for _, i in found])
    shape = b.op(
        "Concat",
        b.op("Shape", places, dtype=DType.I64, start=0, end=-1),
        b.ints([b.sizes(x)[axis] for axis in rest]) if rest else b.constant(np.zeros(0, np.int64)),
        axis=0,
    )
    if axes == list(range(axes[0], axes[-1] + 1)) and axes[0] > 0:
        # What is written has the places' axes where the indices were.
        total = axes[0] + rank + len(rest) - axes[0]
        own = b.rank(values)
        values_ = b.reshape(values, [1] * (total - own) + b.sizes(values)) if own < total else values
        front = [*range(axes[0], axes[0] + rank), *range(axes[0]), *range(axes[0] + rank, total)]
        update = b.op("Transpose", b.cast(values_, dtype), perm=front)
    else:
        update = b.cast(values, dtype)
    update = b.op("Expand", update, shape)
    y = b.op("ScatterND", data, places, update, reduction="add" if accumulate else "none")
    return y if data is x else b.op("Transpose", y, perm=[order.index(axis) for axis in range(len(order))])


def _put_masked(b: Builder, x: Value, mask: Value, values: Value, accumulate: bool) -> Value:
    rank, count = b.rank(x), b.rank(mask)
    if any(size != 1 for size in b.shape(values)[: max(0, b.rank(values) - (rank - count))]) or b.rank(values) > rank:
        raise UnsupportedError(f"node {b.name!r}: several values at places that a mask tells")
    wide = b.reshape(mask, [*b.sizes(mask), *[1] * (rank - count)]) if rank > count else mask
    value = b.cast(values, b.dtype)
    if accumulate:
        value = b.op("Add", x, value)
    return b.op("Where", wide, value, x, dtype=b.dtype)


@aten("slice_scatter.default")
def slice_scatter(
    b: Builder, x: Value, src: Value, dim: int = 0, start: Size | None = None, end: Size | None = None, step: int = 1
) -> Value:
    """x with a part along an axis replaced."""
    axis = b.axis(dim, b.rank(x))
    size = b.sizes(x)[axis]
    every = b.op("Range", b.constant(0, DType.I64), b.cast(size, DType.I64), b.constant(1, DType.I64))
    b.known[every] = Known((b.shape(x)[axis],))
    places = slice_(b, every, 0, start, end, step)
    data = x if axis == 0 else _swapped(b, x, axis)
    part = b.cast(src, b.dtype) if axis == 0 else _swapped(b, b.cast(src, b.dtype), axis, b.rank(src))
    y = b.op("ScatterND", data, b.op("Unsqueeze", places, b.constant([1], DType.I64)), part)
    return y if axis == 0 else _swapped(b, y, axis, b.rank(x))


class Known:
    """Sizes of a tensor that is no node of PyTorch's graph."""

    def __init__(self, shape: Sequence[Any]) -> None:
        self.shape = tuple(shape)


def _swapped(b: Builder, x: Value, axis: int, rank: int | None = None) -> Value:
    """An axis and the first one exchanged."""
    order = list(range(b.rank(x) if rank is None else rank))
    order[0], order[axis] = axis, 0
    return b.op("Transpose", x, perm=order)


@aten("select_scatter.default")
def select_scatter(b: Builder, x: Value, src: Value, dim: int, index: Size) -> Value:
    """x with one index of an axis replaced."""
    axis = b.axis(dim, b.rank(x))
    data = x if axis == 0 else _swapped(b, x, axis)
    part = b.op("Unsqueeze", b.cast(src, b.dtype), b.constant([axis], DType.I64))
    part = part if axis == 0 else _swapped(b, part, axis, b.rank(x))
    place = b.reshape(b.cast(index, DType.I64), [1, 1])
    y = b.op("ScatterND", data, place, part)
    return y if axis == 0 else _swapped(b, y, axis, b.rank(x))


@aten("index_reduce.default")
def index_reduce(
    b: Builder, x: Value, dim: int, index: Value, source: Value, reduce: str, *, include_self: bool = True
) -> Value:
    """x with slices along an axis combined with those of another tensor."""
    axis = b.axis(dim, max(b.rank(x), 1))
    shape: list[int | Value] = [1] * b.rank(source)
    if shape:
        shape[axis] = -1
    places = b.expanded(b.reshape(index, shape), b.sizes(source))
    b.known[places] = b.known[source]
    return scatter_reduce(b, x, dim, places, source, reduce, include_self=include_self)


@aten("put.default")
def put(b: Builder, x: Value, index: Value, source: Value, accumulate: bool = False) -> Value:
    """x with elements, counted through the whole tensor, replaced or added to."""
    flat = _scatter_flat(b, x, index, b.cast(source, b.dtype), "add" if accumulate else "none")
    return b.reshape(flat, b.sizes(x))


@aten("masked_scatter.default")
def masked_scatter(b: Builder, x: Value, mask: Value, source: Value) -> Value:
    """x with the elements of a mask replaced by those of another tensor, one after the other."""
    hold = b.cast(mask, DType.BOOL)
    wide = b.op("Expand", hold, b.op("Shape", x, dtype=DType.I64))
    count = b.op("CumSum", b.cast(b.reshape(wide, [-1]), DType.I64), b.constant(0, DType.I64))
    place = b.op("Max", b.op("Sub", count, b.constant(1, DType.I64)), b.constant(0, DType.I64))
    found = b.op("Gather", b.reshape(b.cast(source, b.dtype), [-1]), place, axis=0)
    return b.op("Where", wide, b.op("Reshape", found, b.op("Shape", wide, dtype=DType.I64)), x, dtype=b.dtype)


@aten("nonzero_static.default")
def nonzero_static(b: Builder, x: Value, *, size: int, fill_value: int = -1) -> Value:
    """The first places of what is not zero, a row each; as many rows as are told."""
    every = b.op("NonZero", x, dtype=DType.I64)
    filled = b.op("Concat", every, b.constant(np.full((b.rank(x), size), fill_value, np.int64)), axis=1)
    first = b.op("Slice", filled, *(b.constant([n], DType.I64) for n in (0, size, 1)))
    return b.op("Transpose", first, perm=[1, 0])


@aten("diagonal_scatter.default")
def diagonal_scatter(b: Builder, x: Value, src: Value, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Value:
    """x with the diagonal of two axes replaced."""
    rank = b.rank(x)
    first, second = b.axis(dim1, rank), b.axis(dim2, rank)
    count = b.static(b.shape(src)[-1], "the size of a diagonal")
    order = [first, second, *(axis for axis in range(rank) if axis not in (first, second))]
    places = np.arange(count)[:, None] + np.array([max(0, -offset), max(0, offset)])
    part = b.op("Transpose", b.cast(src, b.dtype), perm=[rank - 2, *range(rank - 2)])
    y = b.op("ScatterND", b.op("Transpose", x, perm=order), b.constant(places.astype(np.int64)), part)
    return b.op("Transpose", y, perm=[order.index(axis) for axis in range(rank)])

"""How many elements lie in each part of a range."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from opweld.frontend.torch.builder import Builder, Value
from opweld.frontend.torch.reductions import over
from opweld.frontend.torch.rows import aten
from opweld.tensor.dtype import DType


@aten("histc.default")
def histc(b: Builder, x: Value, bins: int = 100, min: float = 0, max: float = 0) -> Value:
    """How many elements lie in each of equal parts of a range; the last one has its end."""
    wide = DType.F64 if b.dtype_of(x) is DType.F64 or b.dtype_of(x).is_integer else DType.F32
    y = b.reshape(b.cast(x, wide), [-1])
    if min != max:
        low, high = b.cast(float(min), wide), b.cast(float(max), wide)
    elif any(size == 0 for size in b.shape(x)):
        low, high = b.cast(0.0, wide), b.cast(1.0, wide)
    else:  # that of the data, widened where there is one number only
        low, high = (over(b, op_type, y, [0], keepdim=False) for op_type in ("ReduceMin", "ReduceMax"))
        widened = b.cast(b.op("Equal", low, high, dtype=DType.BOOL), wide)
        low, high = b.op("Sub", low, widened), b.op("Add", high, widened)
    part = b.op("Div", b.op("Mul", b.op("Sub", y, low), b.cast(float(bins), wide)), b.op("Sub", high, low))
    part = b.op("Min", b.op("Floor", part), b.cast(float(bins - 1), wide))
    inside = b.op(
        "And", b.op("GreaterOrEqual", y, low, dtype=DType.BOOL), b.op("LessOrEqual", y, high, dtype=DType.BOOL)
    )
    part = b.op("Where", inside, part, b.cast(-1, wide), dtype=wide)
    numbers = b.constant(np.arange(bins, dtype=wide.numpy)[:, None])
    found = b.cast(b.op("Equal", numbers, part, dtype=DType.BOOL), b.dtype)
    return over(b, "ReduceSum", found, [1], keepdim=False)


@aten("histogram.bin_ct")
def histogram_of_parts(
    b: Builder,
    x: Value,
    bins: int = 100,
    *,
    range: Sequence[float] | None = None,
    weight: Value | None = None,
    density: bool = False,
) -> tuple[Value, Value]:
    """The same of equal parts, by their edges."""
    return _histogram(b, x, _edges(b, x, bins, range), weight, density)


@aten("histogram.bins_tensor")
def histogram(
    b: Builder, x: Value, bins: Value, *, weight: Value | None = None, density: bool = False
) -> tuple[Value, Value]:
    """The elements, or their weights, in each part between edges, of which the last one lies in the last part; and
    the edges."""
    return _histogram(b, x, bins, weight, density)


def _edges(b: Builder, x: Value, bins: int, told: Sequence[float] | None) -> Value:
    """The edges of equal parts, from both ends as `torch.linspace` has them: of a range, or of the data."""
    dtype = b.dtype
    if told is None and all(size != 0 for size in b.shape(x)):
        flat = b.reshape(x, [-1])
        low, high = (over(b, op_type, flat, [0], keepdim=False) for op_type in ("ReduceMin", "ReduceMax"))
    else:
        low, high = (b.cast(float(end), dtype) for end in told or (0.0, 1.0))
    half = b.op("Mul", b.cast(b.op("Equal", low, high, dtype=DType.BOOL), dtype), b.cast(0.5, dtype))
    low, high = b.op("Sub", low, half), b.op("Add", high, half)
    step = b.op("Div", b.op("Sub", high, low), b.cast(bins, dtype))
    places = np.arange(bins + 1)
    up, down = (b.constant(n.astype(dtype.numpy)) for n in (places, bins - places))
    rising = b.op("Add", low, b.op("Mul", step, up))
    falling = b.op("Sub", high, b.op("Mul", step, down))
    return b.op("Where", b.constant(places < (bins + 1) // 2), rising, falling, dtype=dtype)


def _histogram(b: Builder, x: Value, edges: Value, weight: Value | None, density: bool) -> tuple[Value, Value]:
    dtype, flat, one = b.dtype, b.reshape(x, [-1]), b.constant(1, DType.I64)
    first, last = (b.op("Gather", edges, b.constant(place, DType.I64), axis=0) for place in (0, -1))
    below = b.op("LessOrEqual", edges, b.op("Unsqueeze", flat, b.constant([1], DType.I64)), dtype=DType.BOOL)
    part = b.op("ReduceSum", b.cast(below, DType.I64), b.constant([1], DType.I64), keepdims=0)
    count = b.op("Sub", b.op("Squeeze", b.op("Shape", edges, dtype=DType.I64), b.constant([0], DType.I64)), one)
    part = b.op("Sub", b.op("Min", part, count), one)
    inside = b.op(
        "And",
        b.op("GreaterOrEqual", flat, first, dtype=DType.BOOL),
        b.op("LessOrEqual", flat, last, dtype=DType.BOOL),
    )
    shape = b.op("Shape", flat, dtype=DType.I64)
    given = b.op("Expand", b.cast(1, dtype), shape) if weight is None else b.reshape(weight, [-1])
    given = b.op("Where", inside, given, b.cast(0, dtype), dtype=dtype)
    part = b.op("Where", inside, part, b.constant(0, DType.I64), dtype=DType.I64)
    empty = b.expanded(b.cast(0, dtype), [count])
    found = b.op("ScatterElements", empty, part, given, axis=0, reduction="add")
    if not density:
        return found, edges
    start, end = b.constant([0], DType.I64), b.constant([-1], DType.I64)
    upper = b.op("Slice", edges, b.constant([1], DType.I64), b.constant([2**63 - 1], DType.I64))
    widths = b.op("Sub", upper, b.op("Slice", edges, start, end))
    total = over(b, "ReduceSum", found, [0], keepdim=False)
    return b.op("Div", b.op("Div", found, total), widths), edges


@aten("bincount.default")
def bincount(b: Builder, x: Value, weights: Value | None = None, minlength: int = 0) -> Value:
    """How often each whole number is there, or the sum of its weights: as many as the largest one tells."""
    dtype, none = b.dtype, b.constant([-1], DType.I64)
    places = b.cast(x, DType.I64)
    most = b.op("ReduceMax", b.op("Concat", places, none, axis=0), b.constant([0], DType.I64), keepdims=1)
    size = b.op("Max", b.op("Add", most, b.constant([1], DType.I64)), b.constant([minlength], DType.I64))
    ones = b.op("Expand", b.cast(1, dtype), b.op("Shape", places, dtype=DType.I64)) if weights is None else weights
    zeros = b.op("Expand", b.cast(0, dtype), size)
    return b.op("ScatterElements", zeros, places, b.cast(ones, dtype), axis=0, reduction="add")

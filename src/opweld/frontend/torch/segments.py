"""Rows combined in segments that lengths or offsets tell."""

from __future__ import annotations

import math
from collections.abc import Sequence

from opweld.errors import UnsupportedError
from opweld.frontend.torch.builder import Builder, Number, Value
from opweld.frontend.torch.rows import aten
from opweld.tensor.dtype import DType


@aten("_embedding_bag_forward_only.default", "_embedding_bag.default")
def embedding_bag(
    b: Builder,
    weight: Value,
    indices: Value,
    offsets: Value,
    scale_grad_by_freq: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample_weights: Value | None = None,
    include_last_offset: bool = False,
    padding_idx: int = -1,
) -> tuple[Value | None, ...]:
    """Rows of a table, combined in bags that begin at offsets; bags without rows are zero. What PyTorch returns beside
    them, for gradients, is not made."""
    dtype, bags = b.dtype, b.sizes(offsets)
    one = b.constant(1, DType.I64)
    if include_last_offset:
        offsets = b.op("Slice", offsets, b.constant([0], DType.I64), b.constant([-1], DType.I64))
        bags = [b.op("Sub", b.cast(bags[0], DType.I64), one)]
    count, wide = b.sizes(indices)[0], [b.sizes(indices)[0], b.sizes(weight)[1]]
    bag = b.op("Sub", _reached(b, b.cast(offsets, DType.I64), [count], 0), one)
    rows = b.op("Gather", weight, indices, axis=0)
    column = b.constant([1], DType.I64)
    if per_sample_weights is not None:
        rows = b.op("Mul", rows, b.op("Unsqueeze", per_sample_weights, column))
    least = b.cast(-math.inf, dtype)
    counted = b.expanded(b.cast(1, dtype), [count])
    if padding_idx >= 0:
        kept = b.op("Not", b.op("Equal", indices, b.cast(padding_idx, b.dtype_of(indices)), dtype=DType.BOOL))
        counted = b.cast(kept, dtype)
        neutral = least if mode == _MAXIMUM else b.cast(0, dtype)
        rows = b.op("Where", b.op("Unsqueeze", kept, column), rows, neutral, dtype=dtype)
    everywhere = b.expanded(b.op("Unsqueeze", bag, column), wide)
    start = b.expanded(least if mode == _MAXIMUM else b.cast(0, dtype), [*bags, wide[1]])
    reduction = "max" if mode == _MAXIMUM else "add"
    found = b.op("ScatterElements", start, everywhere, rows, axis=0, reduction=reduction)
    if mode == _SUM:
        return found, None, None, None
    numbers = b.op("ScatterElements", b.expanded(b.cast(0, dtype), bags), bag, counted, axis=0, reduction="add")
    numbers = b.op("Unsqueeze", numbers, column)
    if mode == _MAXIMUM:
        some = b.op("Greater", numbers, b.cast(0, dtype), dtype=DType.BOOL)
        return b.op("Where", some, found, b.cast(0, dtype), dtype=dtype), None, None, None
    return b.op("Div", found, b.op("Max", numbers, b.cast(1, dtype))), None, None, None


def _reached(b: Builder, marks: Value, sizes: Sequence[int | Value], axis: int) -> Value:
    """int64 of these sizes: how many marks along the last axis, which is `axis`, are at an element or before it; one
    behind the last element counts for none."""
    one = b.constant(1, DType.I64)
    nothing = b.expanded(b.constant(0, DType.I64), [*sizes[:-1], b.op("Add", b.cast(sizes[-1], DType.I64), one)])
    ones = b.op("Expand", one, b.op("Shape", marks, dtype=DType.I64))
    marked = b.op("ScatterElements", nothing, marks, ones, axis=axis, reduction="add")
    counts = b.op("CumSum", marked, b.constant(axis, DType.I64))
    return b.op("Slice", counts, *(b.constant([number], DType.I64) for number in (0, -1, axis)))


_SUM, _MAXIMUM = 0, 2
"""Modes of a bag; 1 is the mean."""


@aten("segment_reduce.default")
def segment_reduce(
    b: Builder,
    data: Value,
    reduce: str,
    *,
    lengths: Value | None = None,
    indices: Value | None = None,
    offsets: Value | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Number | None = None,
) -> Value:
    """The elements along an axis combined in segments, one after the other; axes before it have their own ones."""
    told = offsets if lengths is None else lengths
    if told is None:
        raise UnsupportedError(f"node {b.name!r}: segments without lengths or offsets")
    axis, dtype, one = b.axis(axis, b.rank(data)), b.dtype, b.constant(1, DType.I64)
    along, axes = b.constant(axis, DType.I64), b.constant([axis], DType.I64)
    sizes = b.sizes(data)
    count = b.sizes(told)[axis]
    if lengths is None:
        ends = b.op("Slice", told, b.constant([1], DType.I64), b.constant([2**63 - 1], DType.I64), axes)
        count = count - 1 if isinstance(count, int) else b.op("Sub", count, one)
        ends = b.cast(ends, DType.I64)
    else:
        ends = b.op("CumSum", b.cast(told, DType.I64), along)
    own = _reached(b, ends, sizes[: axis + 1], axis)  # how many segments end before an element
    rest = list(range(axis + 1, b.rank(data)))
    wide = b.op("Unsqueeze", own, b.constant(rest, DType.I64)) if rest else own
    everywhere = b.expanded(wide, sizes)
    mode, neutral = _COMBINED[reduce]
    start = b.expanded(
        b.cast(neutral if initial is None else initial, dtype), [*sizes[:axis], count, *sizes[axis + 1 :]]
    )
    found = b.op("ScatterElements", start, everywhere, data, axis=axis, reduction=mode)
    if reduce != "mean":
        return found
    numbers = b.op(
        "ScatterElements",
        b.expanded(b.cast(0, dtype), [*sizes[:axis], count]),
        own,
        b.expanded(b.cast(1, dtype), sizes[: axis + 1]),
        axis=axis,
        reduction="add",
    )
    if initial is not None:  # a segment of nothing is this
        numbers = b.op("Max", numbers, b.cast(1, dtype))
    return b.op("Div", found, b.op("Unsqueeze", numbers, b.constant(rest, DType.I64)) if rest else numbers)


_COMBINED: dict[str, tuple[str, Number]] = {
    "sum": ("add", 0),
    "mean": ("add", 0),
    "prod": ("mul", 1),
    "max": ("max", -math.inf),
    "min": ("min", math.inf),
}
"""How elements of a segment are combined, and what nothing is."""

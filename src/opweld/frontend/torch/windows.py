"""Sliding windows along axes, and their sums."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from opweld.frontend.torch.builder import Builder, Value
from opweld.frontend.torch.rows import aten
from opweld.tensor.dtype import DType

Size = int | Value


@aten("col2im.default")
def col2im(
    b: Builder,
    x: Value,
    output_size: Sequence[Size],
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> Value:
    """Columns of sliding blocks summed into an image."""
    alone = b.rank(x) == 2
    first = b.constant([0], DType.I64)
    columns = b.op("Unsqueeze", x, first) if alone else x
    sizes = b.ints(output_size), b.ints(kernel_size)
    pads = [*padding, *padding]
    y = b.op("Col2Im", columns, *sizes, dilations=list(dilation), pads=pads, strides=list(stride))
    return b.op("Squeeze", y, first) if alone else y


@aten("unfold.default", "unfold_copy.default")
def unfold(b: Builder, x: Value, dimension: int, size: int, step: int) -> Value:
    """Windows along an axis, as a new last axis."""
    rank = b.rank(x)
    if not rank:
        return b.reshape(x, [1])
    axis = b.axis(dimension, rank)
    count = b.made.shape[axis]
    within = np.arange(size, dtype=np.int64)[None, :]
    if isinstance(count, int):
        places = b.constant(step * np.arange(count, dtype=np.int64)[:, None] + within)
    else:
        limit = b.op("Sub", b.size(x, axis), b.constant(size - 1, DType.I64))
        starts = b.op("Range", b.constant(0, DType.I64), limit, b.constant(step, DType.I64))
        places = b.op("Add", b.op("Unsqueeze", starts, b.constant([1], DType.I64)), b.constant(within))
    found = b.op("Gather", x, places, axis=axis)
    return b.op("Transpose", found, perm=[*range(axis + 1), *range(axis + 2, rank + 1), axis + 1])

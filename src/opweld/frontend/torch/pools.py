"""Pooling."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from opweld.errors import UnsupportedError
from opweld.frontend.torch.builder import Builder, Value
from opweld.frontend.torch.rows import aten
from opweld.tensor.dtype import DType


def _batched(b: Builder, x: Value, spatial: int, pool: Callable[[Value], Value]) -> Value:
    """A pool of an input that may have no batch."""
    if b.rank(x) == spatial + 2:
        return pool(x)
    front = b.constant([0], DType.I64)
    return b.op("Squeeze", pool(b.op("Unsqueeze", x, front)), front)


def _each(b: Builder, given: Sequence[int], spatial: int) -> list[int]:
    return b.each(given, spatial, "a size of a window")


def _windows(
    b: Builder,
    spatial: int,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    ceil_mode: bool,
    dilation: Sequence[int] = (),
) -> dict[str, Any]:
    """The attributes of a pool; its windows lie side by side where no stride is given."""
    window, pads = _each(b, kernel_size, spatial), _each(b, padding, spatial)
    return {
        "kernel_shape": window,
        "strides": _each(b, stride, spatial) if stride else window,
        "pads": pads + pads,
        "dilations": _each(b, dilation, spatial) if dilation else None,
        "ceil_mode": int(ceil_mode),
    }


def _average(
    spatial: int,
    b: Builder,
    x: Value,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Value:
    attributes = _windows(b, spatial, kernel_size, stride, padding, ceil_mode)
    if divisor_override is None:
        attributes["count_include_pad"] = int(count_include_pad)
        return _batched(b, x, spatial, lambda data: b.op("AveragePool", data, **attributes))
    # Sums: averages over windows that lie within a picture with zeros around it.
    window, steps, pads = attributes["kernel_shape"], attributes["strides"], attributes["pads"][:spatial]
    sizes, made = (b.each(shape[-spatial:], spatial, "the size of a picture") for shape in (b.shape(x), b.made.shape))
    ends = [
        (count - 1) * step + width - size - pad
        for count, step, width, size, pad in zip(made, steps, window, sizes, pads, strict=True)
    ]

    def averaged(data: Value) -> Value:
        padded = b.op("Pad", data, b.ints([0, 0, *pads, 0, 0, *ends]), b.cast(0, b.dtype), mode="constant")
        return b.op("AveragePool", padded, kernel_shape=window, strides=steps)

    return b.op("Mul", _batched(b, x, spatial, averaged), b.cast(math.prod(window) / divisor_override, b.dtype))


for _spatial in (1, 2, 3):
    aten(f"avg_pool{_spatial}d.default")(partial(_average, _spatial))


def _maximum(
    spatial: int,
    b: Builder,
    x: Value,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> Value:
    attributes = _windows(b, spatial, kernel_size, stride, padding, ceil_mode, dilation)
    return _batched(b, x, spatial, lambda data: b.op("MaxPool", data, **attributes))


for _spatial in (1, 2, 3):
    aten(f"max_pool{_spatial}d.default")(partial(_maximum, _spatial))


def _maximum_and_place(
    spatial: int,
    b: Builder,
    x: Value,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,
) -> tuple[Value, Value]:
    """The maximum, and its place in the picture of its channel: ONNX counts through the whole tensor."""
    attributes = _windows(b, spatial, kernel_size, stride, padding, ceil_mode, dilation)
    front = b.constant([0], DType.I64)
    batched = b.rank(x) == spatial + 2
    data = x if batched else b.op("Unsqueeze", x, front)
    value, place = b.ops("MaxPool", data, dtypes=[None, DType.I64], **attributes)
    picture = b.constant(1, DType.I64)
    for size in b.sizes(x)[-spatial:]:
        picture = b.op("Mul", picture, b.cast(size, DType.I64))
    place = b.op("Mod", place, picture)
    return (value, place) if batched else (b.op("Squeeze", value, front), b.op("Squeeze", place, front))


for _spatial in (2, 3):
    aten(f"max_pool{_spatial}d_with_indices.default")(partial(_maximum_and_place, _spatial))


def _require_floats(b: Builder) -> None:
    """Adaptive pools of integers stay in eager mode, which has none either and says so."""
    if not b.dtype.is_float:
        raise UnsupportedError(f"node {b.name!r}: an adaptive pool of {b.dtype!r}")


def _adaptive_maximum(spatial: int, b: Builder, x: Value, output_size: Sequence[int]) -> tuple[Value, Value]:
    """Maxima of windows that cover the picture, and their places in it."""
    _require_floats(b)
    wanted = _each(b, output_size, spatial)
    sizes = [b.static(size, "the size of a picture") for size in b.shape(x)[-spatial:]]
    if 0 not in wanted and not any(size % count for size, count in zip(sizes, wanted, strict=True)):
        return _maximum_and_place(spatial, b, x, [size // count for size, count in zip(sizes, wanted, strict=True)])
    # Windows of unequal sizes: looked up, where a short one repeats its last element.
    front = b.rank(x) - spatial
    places = np.zeros((1,) * 2 * spatial, np.int64)
    found = x
    for number, (size, count) in enumerate(zip(sizes, wanted, strict=True)):
        first = np.arange(count) * size // max(count, 1)
        last = -(-(np.arange(count) + 1) * size // max(count, 1)) - 1
        width = int((last - first).max(initial=0)) + 1
        own = np.minimum(first[:, None] + np.arange(width), last[:, None])
        found = b.op("Gather", found, b.constant(own), axis=front + 2 * number)
        places = places * size + own.reshape(
            [own.shape[a - 2 * number] if a // 2 == number else 1 for a in range(2 * spatial)]
        )
    order = [*range(0, 2 * spatial, 2), *range(1, 2 * spatial, 2)]
    found = b.op("Transpose", found, perm=[*range(front), *(front + a for a in order)])
    windows = places.transpose(order).reshape(*wanted, -1)
    found = b.reshape(found, [*b.sizes(x)[:front], *windows.shape])
    last_axis = b.constant([-1], DType.I64)
    value = b.op("ReduceMax", found, last_axis, keepdims=0)
    which = b.op("ArgMax", found, dtype=DType.I64, axis=-1, keepdims=1)
    table = b.expanded(b.constant(windows), [*b.sizes(x)[:front], *windows.shape])
    return value, b.op("Squeeze", b.op("GatherElements", table, which, axis=-1), last_axis)


for _spatial in (2, 3):
    aten(f"adaptive_max_pool{_spatial}d.default")(partial(_adaptive_maximum, _spatial))


def _adaptive(spatial: int, b: Builder, x: Value, output_size: Sequence[int]) -> Value:
    """Averages of windows that cover the picture."""
    _require_floats(b)
    wanted = _each(b, output_size, spatial)
    if all(size == 1 for size in wanted):
        axes = b.constant(list(range(b.rank(x) - spatial, b.rank(x))), DType.I64)
        return b.op("ReduceMean", x, axes, keepdims=1)
    sizes = [b.static(size, "the size of a picture") for size in b.shape(x)[-spatial:]]
    if any(count == 0 or size % count for size, count in zip(sizes, wanted, strict=True)):
        return _unequal(b, x, sizes, wanted)
    window = [size // count for size, count in zip(sizes, wanted, strict=True)]
    return _average(spatial, b, x, window)


def _unequal(b: Builder, x: Value, sizes: Sequence[int], wanted: Sequence[int]) -> Value:
    """Along each axis a product with a matrix of averages: windows overlap where sizes do not divide."""
    rank = b.rank(x)
    for number, (size, count) in enumerate(zip(sizes, wanted, strict=True)):
        averages = np.zeros((size, count), np.float64)
        for place in range(count):
            first, last = place * size // count, -(-(place + 1) * size // count)
            averages[first:last, place] = 1 / (last - first)
        matrix = b.constant(averages.astype(b.dtype.numpy))
        axis = rank - len(sizes) + number
        order = [*(a for a in range(rank) if a != axis), axis]
        moved = x if axis == rank - 1 else b.op("Transpose", x, perm=order)
        product = b.op("MatMul", moved, matrix)
        back = [order.index(a) for a in range(rank)]
        x = product if axis == rank - 1 else b.op("Transpose", product, perm=back)
    return x


aten("adaptive_avg_pool1d.default")(partial(_adaptive, 1))
aten("_adaptive_avg_pool2d.default", "adaptive_avg_pool2d.default")(partial(_adaptive, 2))
aten("_adaptive_avg_pool3d.default", "adaptive_avg_pool3d.default")(partial(_adaptive, 3))

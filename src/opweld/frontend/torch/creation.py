"""Tensors made of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opweld.frontend.torch.builder import Builder, Scalar, Value, number
from opweld.frontend.torch.rows import aten, operator
from opweld.tensor.dtype import DType

Size = int | Value


@aten("full.default")
def full(b: Builder, size: Sequence[Size], fill_value: Scalar, **_: Any) -> Value:
    """One number everywhere."""
    if not isinstance(fill_value, Value) and any(isinstance(own, Value) for own in size):
        return b.op("ConstantOfShape", b.ints(size), dtype=b.dtype, value=number(fill_value, b.dtype))
    found = b.cast(fill_value, b.dtype)
    return b.expanded(found, size) if size else found


@aten("full_like.default")
def full_like(b: Builder, x: Value, fill_value: Scalar, **_: Any) -> Value:
    """One number everywhere, with the sizes of a tensor."""
    return full(b, b.sizes(x), fill_value)


@aten("fill.Scalar", "fill.Tensor")
def fill(b: Builder, x: Value, value: Scalar) -> Value:
    """The same."""
    return full(b, b.sizes(x), value)


@aten("zeros.default", "empty.memory_format", "new_zeros.default", "new_empty.default")
def zeros(b: Builder, *arguments: Any, **_: Any) -> Value:
    """Zeros; elements that nobody has written are zero too."""
    return full(b, arguments[-1], 0)


@aten("ones.default", "new_ones.default")
def ones(b: Builder, *arguments: Any, **_: Any) -> Value:
    """Ones."""
    return full(b, arguments[-1], 1)


@aten("zeros_like.default", "empty_like.default")
def zeros_like(b: Builder, x: Value, **_: Any) -> Value:
    """Zeros with the sizes of a tensor."""
    return full(b, b.sizes(x), 0)


@aten("ones_like.default")
def ones_like(b: Builder, x: Value, **_: Any) -> Value:
    """Ones with the sizes of a tensor."""
    return full(b, b.sizes(x), 1)


@aten("new_full.default")
def new_full(b: Builder, x: Value, size: Sequence[Size], fill_value: Scalar, **_: Any) -> Value:
    """One number everywhere."""
    return full(b, size, fill_value)


@aten("scalar_tensor.default")
def scalar_tensor(b: Builder, s: Scalar, **_: Any) -> Value:
    """A number as a tensor."""
    return b.cast(s, b.dtype)


@aten("arange.default")
def arange(b: Builder, end: Scalar, **_: Any) -> Value:
    """0, 1, ... below an end."""
    return arange_step(b, 0, end, 1)


@aten("arange.start")
def arange_start(b: Builder, start: Scalar, end: Scalar, **_: Any) -> Value:
    """The same from a start."""
    return arange_step(b, start, end, 1)


@aten("arange.start_step")
def arange_step(b: Builder, start: Scalar, end: Scalar, step: Scalar = 1, **_: Any) -> Value:
    """The same by steps: as many as PyTorch says, each a multiple, so that roundings do not add up. What whole numbers
    tell is counted in integers, of which floats are rounded once."""
    dtype = b.dtype
    if all(map(_is_whole, (start, end, step))):
        given = (start, end, step)
        found = b.op("Range", *(b.cast(own, DType.I64) for own in given), dtype=DType.I64)
        return b.cast(found, dtype)
    count = b.static(b.made.shape[0], "the number of steps")
    places = b.op("Range", b.constant(0, DType.I64), b.constant(count, DType.I64), b.constant(1, DType.I64))
    wide = DType.I64 if dtype.is_integer else DType.F64
    steps = b.op("Mul", b.cast(places, wide), b.cast(step, wide))
    return b.cast(b.op("Add", b.cast(start, wide), steps), dtype)


def _is_whole(number: Scalar) -> bool:
    """Whether a number is surely an integer that float64 has exactly, as sizes are."""
    if isinstance(number, Value):
        return number.dtype is DType.I64
    return abs(number) <= 2**53 and number == int(number)


@aten("linspace.default", "linspace.Tensor_Tensor", "linspace.Tensor_Scalar", "linspace.Scalar_Tensor")
def linspace(b: Builder, start: Scalar, end: Scalar, steps: Size, **_: Any) -> Value:
    """So many numbers from a start to an end, counted from the nearer one; integers are cut off."""
    wide = DType.F64 if b.dtype.is_integer or b.dtype is DType.F64 else DType.F32
    first, last, count = b.cast(start, wide), b.cast(end, wide), b.cast(steps, DType.I64)
    one = b.constant(1, DType.I64)
    places = b.op("Range", b.constant(0, DType.I64), count, one)
    final = b.op("Sub", count, one)
    remaining = b.op("Sub", final, places)
    gaps = b.op("Max", final, one)
    step = b.op("Div", b.op("Sub", last, first), b.cast(gaps, wide))
    ahead = b.op("Add", first, b.op("Mul", b.cast(places, wide), step))
    back = b.op("Sub", last, b.op("Mul", b.cast(remaining, wide), step))
    near = b.op("Less", places, b.op("Div", count, b.constant(2, DType.I64)), dtype=DType.BOOL)
    alone = b.op("Equal", count, one, dtype=DType.BOOL)
    return b.cast(b.op("Where", b.op("Or", near, alone), ahead, back, dtype=wide), b.dtype)


@operator("prims", "iota.default")
def iota(b: Builder, length: Size, *, start: Size, step: Size, **_: Any) -> Value:
    """So many integers from a start by steps."""
    zero, one = b.constant(0, DType.I64), b.constant(1, DType.I64)
    places = b.op("Range", zero, b.cast(length, DType.I64), one)
    moved = b.op("Add", b.cast(start, DType.I64), b.op("Mul", places, b.cast(step, DType.I64)))
    return b.cast(moved, b.dtype)


@aten("empty_strided.default", "new_empty_strided.default")
def empty_strided(b: Builder, *arguments: Any, **_: Any) -> Value:
    """Elements that nobody has written: zeros. Strides are those of a value when it leaves the graph."""
    return full(b, arguments[-2], 0)


@aten("eye.default", "eye.m")
def eye(b: Builder, n: Size, m: Size | None = None, **_: Any) -> Value:
    """Ones on the diagonal."""
    zeros_ = full(b, [n, n if m is None else m], 0)
    return b.op("EyeLike", zeros_, dtype=b.dtype, k=0)

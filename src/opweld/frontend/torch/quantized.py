"""Quantised values: what PT2E writes (`quantized_decomposed`), and products of integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from opweld.errors import UnsupportedError
from opweld.frontend.torch.builder import Builder, Number, Value
from opweld.frontend.torch.rows import aten, operator
from opweld.tensor.dtype import DType

Scale = Value | float
Zero = Value | int | None

BYTES = (DType.I8, DType.U8)


@operator("quantized_decomposed", *(f"quantize_per_tensor.{kind}" for kind in ("default", "tensor", "tensor2")))
def quantize_per_tensor(
    b: Builder, x: Value, scale: Scale, zero_point: Zero, quant_min: Number | Value, quant_max: Number | Value, _: Any
) -> Value:
    """round(x / scale) + zero point, clamped: by one scale"""
    scale = _scalar(b, scale)
    wide = b.cast(scale, DType.F64) if isinstance(scale, Value) else scale  # PyTorch takes it for a number
    return _quantized(b, x, wide, _scalar(b, zero_point), quant_min, quant_max, DType.F32)


@operator("quantized_decomposed", "quantize_per_channel.default")
def quantize_per_channel(
    b: Builder, x: Value, scales: Value, zero_points: Value, axis: int, quant_min: int, quant_max: int, _: Any
) -> Value:
    """The same by a scale for each element of an axis."""
    scale, zero = (_along(b, value, x, axis) for value in (scales, zero_points))
    dtype = DType.F64 if b.dtype_of(scales) is DType.F64 else DType.F32
    return _quantized(b, x, scale, zero, quant_min, quant_max, dtype)


@operator("quantized_decomposed", "quantize_per_channel_group.default")
def quantize_per_channel_group(
    b: Builder,
    x: Value,
    scales: Value,
    zero_points: Value,
    quant_min: int,
    quant_max: int,
    _: Any,
    group_size: int = 128,
) -> Value:
    """The same by a scale for each group of a row; it is rounded with its zero point."""
    scale, zero = (_of_groups(b, value, x, group_size) for value in (scales, zero_points))
    return _rounded_with_zero(b, x, scale, zero, quant_min, quant_max)


@operator("quantized_decomposed", *(f"dequantize_per_tensor.{kind}" for kind in ("default", "tensor", "tensor2")))
def dequantize_per_tensor(b: Builder, x: Value, scale: Scale, zero_point: Zero, *_: Any, **__: Any) -> Value:
    """(x - zero point) * scale, in the type that is asked for: of one scale"""
    scale, zero = _scalar(b, scale), _scalar(b, zero_point)
    wide = DType.I32 if b.dtype_of(x) in BYTES else b.dtype  # where the difference is exact either way
    found = b.cast(x, wide)
    if zero is not None and zero != 0:
        found = b.op("Sub", found, b.cast(zero, wide))
    return b.op("Mul", b.cast(found, b.dtype), b.cast(scale, b.dtype))


@operator("quantized_decomposed", "dequantize_per_channel.default")
def dequantize_per_channel(
    b: Builder, x: Value, scales: Value, zero_points: Value | None, axis: int, *_: Any, **__: Any
) -> Value:
    """The same of a scale for each element of an axis, in the type of the scales."""
    zero = None if zero_points is None else _along(b, zero_points, x, axis)
    return _dequantized(b, x, _along(b, scales, x, axis), zero)


@operator("quantized_decomposed", "dequantize_per_channel_group.default")
def dequantize_per_channel_group(
    b: Builder,
    x: Value,
    scales: Value,
    zero_points: Value | None,
    quant_min: int,
    quant_max: int,
    dtype: Any,
    group_size: int = 128,
    *_: Any,
    **__: Any,
) -> Value:
    """The same of a scale for each group of a row."""
    zero = None if zero_points is None else _of_groups(b, zero_points, x, group_size)
    return _dequantized(b, x, _of_groups(b, scales, x, group_size), zero)


@operator("quantized_decomposed", "choose_qparams.tensor")
def choose_parameters(b: Builder, x: Value, quant_min: int, quant_max: int, eps: float, _: Any) -> tuple[Value, Value]:
    """The scale and the zero point by which the extremes of x, and 0, are inside."""
    least, greatest = _extremes(b, x)
    bottom, top = (b.constant(bound, DType.F32) for bound in (quant_min, quant_max))
    own = b.dtype_of(x)
    scale = b.op("Div", b.op("Sub", greatest, least), b.constant(quant_max - quant_min, own))
    scale = b.op("Max", b.cast(scale, DType.F32), b.constant(eps, DType.F32))
    point = b.op("Sub", bottom, b.op("Round", b.op("Div", b.cast(least, DType.F32), scale)))
    return _parameters(b, scale, b.op("Clip", point, bottom, top))


@operator("quantized_decomposed", "choose_qparams_symmetric.tensor")
def choose_symmetric_parameters(
    b: Builder, x: Value, quant_min: int, quant_max: int, eps: float, dtype: torch.dtype
) -> tuple[Value, Value]:
    """The same around a zero point in the middle."""
    least, greatest = _extremes(b, x)
    own = b.dtype_of(x)
    scale = b.op("Div", b.op("Max", b.op("Neg", least), greatest), b.constant((quant_max - quant_min) / 2, own))
    scale = b.op("Max", b.cast(scale, DType.F32), b.constant(eps, DType.F32))
    return _parameters(b, scale, b.constant(128.0 if dtype == torch.uint8 else 0.0, DType.F32))


@operator("quantized_decomposed", "choose_qparams_per_token_asymmetric.default")
def choose_parameters_of_rows(b: Builder, x: Value, _: Any) -> tuple[Value, Value]:
    """A scale and a zero point for each row, for int8: the one that misses the nearer end by less."""
    own = b.dtype_of(x)
    least, greatest = _extremes(b, x, b.constant([-1], DType.I64))
    bottom, top = b.constant(-128, own), b.constant(127, own)
    scale = b.op("Div", b.op("Sub", greatest, least), b.constant(255, own))
    scale = b.op("Max", scale, b.constant(float(np.finfo(np.float32).eps), own))
    low, high = b.op("Div", least, scale), b.op("Div", greatest, scale)
    missed = b.op("Add", b.op("Add", bottom, low), b.op("Add", top, high))
    from_below = b.op("Greater", missed, b.constant(0, own), dtype=DType.BOOL)
    point = b.op("Where", from_below, b.op("Sub", bottom, low), b.op("Sub", top, high), dtype=own)
    point = b.op("Round", b.op("Clip", point, bottom, top))
    return b.cast(scale, DType.F64), b.cast(point, DType.I64)


@operator("quantized_decomposed", "choose_qparams_per_token.default")
def choose_symmetric_parameters_of_rows(b: Builder, x: Value, _: Any) -> tuple[Value, Value]:
    """A scale for each row, for int8, and zeros"""
    own, made = b.dtype_of(x), b.dtype_of_made(0)
    greatest = b.op("ReduceMax", b.op("Abs", x), b.constant([-1], DType.I64), keepdims=1)
    own = DType.F32 if own is DType.F16 else own  # of which PyTorch fears overflow
    scale = b.op("Div", b.op("Max", b.cast(greatest, own), b.constant(1e-5, own)), b.constant(127, own))
    scale = b.cast(scale, made)
    return scale, b.op("Mul", scale, b.constant(0, made))


@operator("quantized_decomposed", "quantize_per_token.default")
def quantize_rows(
    b: Builder, x: Value, scales: Value, zero_points: Value, quant_min: int, quant_max: int, _: Any
) -> Value:
    """round(x / scale + zero point), clamped, in the wider type of all"""
    return _rounded_with_zero(b, x, scales, zero_points, quant_min, quant_max)


@operator("quantized_decomposed", "dequantize_per_token.default")
def dequantize_rows(b: Builder, x: Value, scales: Value, zero_points: Value, *_: Any) -> Value:
    """(x - zero point) * scale, of a scale for each row."""
    return _dequantized(b, x, scales, zero_points)


@aten("_int_mm.default")
def integer_product(b: Builder, x: Value, y: Value) -> Value:
    """A product of int8 matrices, int32"""
    return b.op("MatMulInteger", x, y, dtype=DType.I32)


@aten("_weight_int8pack_mm.default")
def product_of_quantized_weights(b: Builder, x: Value, weight: Value, scales: Value) -> Value:
    """x [m, k] times weights [n, k] of int8, each row with a scale"""
    wide = b.op("Transpose", b.cast(weight, b.dtype), perm=[1, 0])
    return b.op("Mul", b.op("MatMul", x, wide), b.cast(scales, b.dtype))


def _scalar(b: Builder, given: Scale | Zero) -> Any:
    """A scale or zero point as a value of rank 0, or a number."""
    return b.reshape(given, []) if isinstance(given, Value) else given


def _along(b: Builder, value: Value, x: Value, axis: int) -> Value:
    """A vector along an axis of x."""
    rank = b.rank(x)
    made = b.reshape(value, [-1 if each == axis % rank else 1 for each in range(rank)])
    b.known[made] = b.known[value]  # of the type that is asked for
    return made


def _of_groups(b: Builder, value: Value, x: Value, size: int) -> Value:
    """What each group of a row of x has, [rows, groups], for each element."""
    columns = b.static(b.shape(x)[-1], "the length of a row")
    groups = b.static(b.shape(value)[-1], "the number of groups")
    own = columns if groups == 1 else size
    if groups * own != columns:
        raise UnsupportedError(f"node {b.name!r}: {groups} groups of {own} are not {columns} elements")
    rows = b.sizes(x)[0]
    wide = b.op("Unsqueeze", value, b.constant([-1], DType.I64))
    made = b.reshape(b.expanded(wide, [rows, groups, own]), [rows, columns])
    b.known[made] = b.known[value]  # of the type that is asked for
    return made


def _quotient(b: Builder, x: Value, scale: Scale, dtype: DType) -> Value:
    """x * (1 / scale), as PyTorch divides; the latter in the scale's own precision."""
    reciprocal = b.op("Div", b.constant(1.0, b.dtype_of(scale)), scale) if isinstance(scale, Value) else 1.0 / scale
    return b.op("Mul", b.cast(x, dtype), b.cast(reciprocal, dtype))


def _quantized(
    b: Builder,
    x: Value,
    scale: Scale,
    zero: Any,
    quant_min: Number | Value,
    quant_max: Number | Value,
    dtype: DType,
) -> Value:
    rounded = b.op("Round", _quotient(b, x, scale, dtype))
    return _clamped(b, b.op("Add", rounded, b.cast(zero, dtype)), quant_min, quant_max)


def _rounded_with_zero(b: Builder, x: Value, scale: Value, zero: Value, quant_min: int, quant_max: int) -> Value:
    dtype = b.promoted(x, scale, zero)
    found = b.op("Add", _quotient(b, x, scale, dtype), b.cast(zero, dtype))
    return _clamped(b, b.op("Round", found), quant_min, quant_max)


def _clamped(b: Builder, x: Value, quant_min: Number | Value, quant_max: Number | Value) -> Value:
    bounds = (b.cast(_scalar(b, bound), b.dtype_of(x)) for bound in (quant_min, quant_max))
    return b.cast(b.op("Clip", x, *bounds), b.dtype)


def _dequantized(b: Builder, x: Value, scale: Value, zero: Value | None) -> Value:
    """The difference of 8-bit integers is exact in 32 bits, as it is in 64."""
    found, wide = x, b.promoted(x, scale)
    if zero is not None:
        wide = b.promoted(zero, scale)
        integers = b.dtype_of(x) in BYTES and b.dtype_of(zero).is_integer
        own = DType.I32 if integers else b.promoted(x, zero)
        found = b.op("Sub", b.cast(x, own), b.cast(zero, own))
    return b.cast(b.op("Mul", b.cast(found, wide), b.cast(scale, wide)), b.dtype)


def _extremes(b: Builder, x: Value, axes: Value | None = None) -> tuple[Value, Value]:
    """The least and the greatest element, and 0: of all, or along axes, which stay."""
    zero, given = b.constant(0, b.dtype_of(x)), () if axes is None else (axes,)
    least, greatest = (b.op(f"Reduce{end}", x, *given, keepdims=len(given)) for end in ("Min", "Max"))
    return b.op("Min", least, zero), b.op("Max", greatest, zero)


def _parameters(b: Builder, scale: Value, point: Value) -> tuple[Value, Value]:
    """Both as PyTorch has them: of one axis, float64 and int64."""
    one = b.constant([1], DType.I64)
    return b.cast(b.op("Reshape", scale, one), DType.F64), b.cast(b.op("Reshape", point, one), DType.I64)

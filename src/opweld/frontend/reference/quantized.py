"""8-bit quantised operators: computed on dequantised values, and quantised once.

Sums of products are sums of integers, which int64 holds exactly."""

from __future__ import annotations

from typing import Any

import numpy as np

from opweld.frontend.reference.attention import attention
from opweld.frontend.reference.fused import channels_first, channels_last
from opweld.frontend.reference.normalization import embed
from opweld.frontend.reference.standard import MICROSOFT, Array, sigmoid, softmax, standard
from opweld.ops.registry import computes


def along(numbers: Array | None, rank: int, axis: int) -> Array | int:
    """Scales or zero points, for all or along an axis, broadcastable to a value of a rank; 0 where absent."""
    if numbers is None:
        return 0
    shape = [1] * rank
    if numbers.size > 1:
        shape[axis] = -1
    return numbers.reshape(shape) if numbers.size > 1 else numbers.reshape(())


def centred(x: Array, zero: Array | None, axis: int = 0) -> Array:
    """x minus its zero point, int64."""
    point = along(zero, x.ndim, axis)
    return x.astype(np.int64) - (point if isinstance(point, int) else point.astype(np.int64))


def real(x: Array, scale: Array, zero: Array | None, axis: int = 0) -> Array:
    """Dequantised values."""
    return in_units(centred(x, zero, axis), along(scale, x.ndim, axis))


def in_units(whole: Array, unit: Array | int) -> Array:
    """Integers times a scale, in the precision of the scale."""
    return whole.astype(np.asarray(unit).dtype) * unit


def quantised(value: Array, scale: Array, zero: Array | None, dtype: np.dtype[Any], axis: int = 0) -> Array:
    """Rounded half to even in units of the scale, plus the zero point, saturated."""
    limits = np.iinfo(dtype)
    point = along(zero, value.ndim, axis)
    return np.clip(np.rint(value / along(scale, value.ndim, axis)) + point, limits.min, limits.max).astype(dtype)


# ------------------------------------------------------------------------------------------------------- element-wise


@computes("QuantizeLinear", domain=MICROSOFT)
def quantize(x: Array, scale: Array, zero: Array | None = None, axis: int = 1) -> Array:
    """round(x / scale) + zero point"""
    return quantised(x, scale, zero, np.dtype(np.uint8) if zero is None else zero.dtype, axis)


@computes("DequantizeLinear", domain=MICROSOFT)
def dequantize(x: Array, scale: Array, zero: Array | None = None, axis: int = 1) -> Array:
    """(x - zero point) * scale"""
    return real(x, scale, zero, axis)


@computes("QLinearAdd", domain=MICROSOFT)
def add(
    a: Array, a1: Array, a0: Array | None, b: Array, b1: Array, b0: Array | None, c1: Array, c0: Any = None
) -> Array:
    """a + b"""
    return quantised(real(a, a1, a0) + real(b, b1, b0), c1, c0, a.dtype)


@computes("QLinearMul", domain=MICROSOFT)
def mul(
    a: Array, a1: Array, a0: Array | None, b: Array, b1: Array, b0: Array | None, c1: Array, c0: Any = None
) -> Array:
    """a * b"""
    return quantised(real(a, a1, a0) * real(b, b1, b0), c1, c0, a.dtype)


@computes("QLinearSigmoid", domain=MICROSOFT)
def sigmoid_of(x: Array, x1: Array, x0: Array | None, y1: Array, y0: Array | None = None) -> Array:
    """sigmoid(x)"""
    return quantised(sigmoid(real(x, x1, x0)), y1, y0, x.dtype)


@computes("QLinearLeakyRelu", domain=MICROSOFT)
def leaky_relu(x: Array, x1: Array, x0: Array | None, y1: Array, y0: Any = None, alpha: float = 0.01) -> Array:
    """x, or alpha * x below zero"""
    value = real(x, x1, x0)
    return quantised(np.where(value < 0, alpha * value, value), y1, y0, x.dtype)


@computes("QLinearSoftmax", domain=MICROSOFT)
def softmax_of(
    x: Array, x1: Array, x0: Array | None, y1: Array, y0: Array | None = None, axis: int = -1, opset: int = 13
) -> Array:
    """Softmax along an axis, before opset 13 over all axes from it on."""
    first = axis % x.ndim
    axes = tuple(range(first, x.ndim)) if opset < 13 else (first,)
    return quantised(softmax(real(x, x1, x0), axes), y1, y0, x.dtype)


@computes("QLinearWhere", domain=MICROSOFT)
def where(chosen: Array, x: Array, x1: Array, x0: Array, y: Array, y1: Array, y0: Array, z1: Array, z0: Array) -> Array:
    """x where chosen, else y"""
    return quantised(np.where(chosen, real(x, x1, x0), real(y, y1, y0)), z1, z0, x.dtype)


@computes("QLinearConcat", domain=MICROSOFT)
def concat(scale: Array, zero: Array, *parts: Array, axis: int) -> Array:
    """Triples of a value, its scale and its zero point, one after the other."""
    values = [real(parts[i], parts[i + 1], parts[i + 2]) for i in range(0, len(parts), 3)]
    return quantised(np.concatenate(values, axis), scale, zero, parts[0].dtype)


# ------------------------------------------------------------------------------------------------------------- windows


@computes("QLinearGlobalAveragePool", domain=MICROSOFT)
def global_average(x: Array, x1: Array, x0: Array, y1: Array, y0: Array, channels_last: int = 0) -> Array:
    """The mean over the spatial axes."""
    axes = tuple(range(1, x.ndim - 1) if channels_last else range(2, x.ndim))
    return quantised(real(x, x1, x0).mean(axis=axes, keepdims=True), y1, y0, x.dtype)


@computes("QLinearAveragePool", domain=MICROSOFT)
def average(x: Array, x1: Array, x0: Array | None, y1: Array, y0: Any = None, **attributes: Any) -> Array:
    """AveragePool"""
    last = attributes.pop("channels_last", 0)
    value = real(x, x1, x0)
    found = standard("AveragePool", channels_first(value) if last else value, **attributes)
    return quantised(channels_last(found) if last else found, y1, y0, x.dtype)


@computes("QLinearConv", domain=MICROSOFT)
def conv(
    x: Array,
    x1: Array,
    x0: Array,
    w: Array,
    w1: Array,
    w0: Array,
    y1: Array,
    y0: Array,
    bias: Any = None,
    **options: Any,
) -> Array:
    """Conv; padding is zero, the bias is in units of both scales. Channels of x and y may be last."""
    last = options.pop("channels_last", 0)
    data = centred(channels_first(x) if last else x, x0).astype(np.float64)
    # float64 holds every sum of products of 8-bit integers that fits into memory.
    total = standard("Conv", data, centred(w, w0).astype(np.float64), **options)
    total = total if bias is None else total + along(bias, total.ndim, 1)
    value = in_units(total, x1.reshape(()) * along(w1, total.ndim, 1))
    found = quantised(value, y1, y0, x.dtype)
    return channels_last(found) if last else found


# ------------------------------------------------------------------------------------------------------------ products


@computes("QGemm", domain=MICROSOFT)
def gemm(
    a: Array,
    a1: Array,
    a0: Array,
    b: Array,
    b1: Array,
    b0: Array,
    c: Array | None = None,
    y1: Array | None = None,
    y0: Array | None = None,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Array:
    """alpha * (a b + c) in units of both scales; c is int32."""
    total = centred(a.T if transA else a, a0) @ centred(b.T if transB else b, b0, 1)
    value = in_units(total if c is None else total + c, a1.dtype.type(alpha) * a1.reshape(()) * along(b1, 2, 1))
    return value if y1 is None else quantised(value, y1, y0, a.dtype)


def rounded(x: Array) -> tuple[Array, Array]:
    """Elements quantised to 256 levels between their extremes, including zero: their distance from the zero point as
    int64, and the scale, 1 if all are zero."""
    least, most = min(x.min(initial=0), 0), max(x.max(initial=0), 0)
    step = np.asarray((most - least) / 255 if most > least else 1, x.dtype)
    zero = np.clip(np.rint(-least / step), 0, 255)
    return (np.clip(np.rint(x / step) + zero, 0, 255) - zero).astype(np.int64), step


@computes("DynamicQuantizeMatMul", domain=MICROSOFT)
def dynamic_matmul(x: Array, b: Array, b1: Array, b0: Array | None = None, bias: Array | None = None) -> Array:
    """The product of rounded data and the weights."""
    whole, step = rounded(x)
    value = in_units(whole @ centred(b, b0, 1), step * along(b1, x.ndim, x.ndim - 1))
    return value if bias is None else value + bias


@computes("MatMulIntegerToFloat", domain=MICROSOFT)
def matmul_to_float(
    a: Array, b: Array, a1: Array, b1: Array, a0: Any = None, b0: Array | None = None, bias: Array | None = None
) -> Array:
    """The product of the dequantised values, plus a bias."""
    value = in_units(centred(a, a0) @ centred(b, b0, 1), a1.reshape(()) * along(b1, a.ndim, a.ndim - 1))
    return value if bias is None else value + bias


# ---------------------------------------------------------------------------------------------- expansions --------


@computes("QAttention", domain=MICROSOFT)
def quantised_attention(
    x: Array,
    w: Array,
    bias: Array,
    x1: Array,
    w1: Array,
    mask: Array | None = None,
    x0: Array | None = None,
    w0: Array | None = None,
    past: Array | None = None,
    **attributes: Any,
) -> tuple[Array, ...]:
    """Attention of the dequantised input and weights."""
    return attention(real(x, x1, x0), real(w, w1, w0, 1), bias, mask, past, **attributes)


@computes("QEmbedLayerNormalization", domain=MICROSOFT)
def quantised_embed(ids: Array, segments: Array | None, *rest: Array | None, **attributes: Any) -> tuple[Array, ...]:
    """EmbedLayerNormalization of the dequantised tables, scale and shift."""
    values, mask, scales, zeros = rest[:5], rest[5], rest[6:11], rest[11:16]
    tables = [
        None if value is None or scale is None else real(value, scale, zero)
        for value, scale, zero in zip(values, scales, zeros, strict=True)
    ]
    words, places, parts, gamma, beta = tables
    assert words is not None and places is not None and gamma is not None and beta is not None
    return embed(ids, segments, words, places, parts, gamma, beta, mask, **attributes)[:2]

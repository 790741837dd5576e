"""Normalisations and softmax."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from opweld.frontend.torch.builder import Builder, Value
from opweld.frontend.torch.products import safe_softmax
from opweld.frontend.torch.rows import aten
from opweld.ops.aten.elementwise import DOMAIN
from opweld.tensor.dtype import DType


def _softmax(op_type: str, b: Builder, x: Value, dim: int, *_: Any, **__: Any) -> Value:
    y = b.cast(x, b.dtype)
    if not b.rank(x):
        return b.reshape(b.op(op_type, b.reshape(y, [1]), axis=0), [])
    return b.op(op_type, y, axis=b.axis(dim, b.rank(x)))


aten("_softmax.default", "softmax.int")(partial(_softmax, "Softmax"))
aten("_log_softmax.default", "log_softmax.int")(partial(_softmax, "LogSoftmax"))


@aten("_safe_softmax.default")
def safe(b: Builder, x: Value, dim: int, *_: Any, **__: Any) -> Value:
    """A softmax of which rows of -inf alone are 0."""
    if not b.rank(x):
        return _softmax("Softmax", b, x, dim)
    return safe_softmax(b, b.cast(x, b.dtype), b.dtype, b.axis(dim, b.rank(x)))


def _affine(b: Builder, weight: Value | None, shape: Sequence[int | Value], number: float) -> Value:
    return weight if weight is not None else b.expanded(b.cast(number, b.dtype), shape)


@aten("layer_norm.default")
def layer_norm(
    b: Builder,
    x: Value,
    normalized_shape: Sequence[int | Value],
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Value:
    """The last axes with mean 0 and variance 1, then scaled and shifted."""
    scale = _affine(b, weight, normalized_shape, 1)
    return b.op("LayerNormalization", x, scale, bias, axis=-len(normalized_shape), epsilon=eps)


@aten("native_layer_norm.default")
def native_layer_norm(
    b: Builder,
    x: Value,
    normalized_shape: Sequence[int | Value],
    weight: Value | None,
    bias: Value | None,
    eps: float,
) -> list[Value]:
    """The same, with means and reciprocal deviations."""
    scale = _affine(b, weight, normalized_shape, 1)
    dtypes = [None, DType.F32, DType.F32]
    found = b.ops("LayerNormalization", x, scale, bias, dtypes=dtypes, axis=-len(normalized_shape), epsilon=eps)
    return [found[0], *(b.cast(value, b.dtype_of_made(1)) for value in found[1:])]


@aten("rms_norm.default")
def rms_norm(
    b: Builder, x: Value, normalized_shape: Sequence[int | Value], weight: Value | None = None, eps: float | None = None
) -> Value:
    """The last axes divided by the root of the mean of their squares, then scaled."""
    scale = _affine(b, weight, normalized_shape, 1)
    epsilon = float(np.finfo(b.dtype.numpy).eps) if eps is None else eps
    return b.op("RMSNormalization", x, scale, axis=-len(normalized_shape), epsilon=epsilon)


@aten("_native_batch_norm_legit_no_training.default")
def batch_norm(
    b: Builder,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    momentum: float,
    eps: float,
) -> tuple[Value, Value, Value]:
    """Channels shifted and scaled by what was gathered in training."""
    shape = b.sizes(x)[1:2]
    scale, shift = _affine(b, weight, shape, 1), _affine(b, bias, shape, 0)
    y = b.op("BatchNormalization", x, scale, shift, running_mean, running_var, epsilon=eps)
    none = b.constant(np.zeros(0, b.dtype.numpy))
    return y, none, none


def _by_batch(
    b: Builder, x: Value, weight: Value | None, bias: Value | None, eps: float
) -> tuple[Value, Value, Value, Value]:
    """(result, mean, reciprocal deviation, variance) of channels, as this batch has them."""
    dtype = b.dtype_of(x)
    axes = b.constant([axis for axis in range(b.rank(x)) if axis != 1], DType.I64)
    mean = b.op("ReduceMean", x, axes, keepdims=1)
    deviation = b.op("Sub", x, mean)
    variance = b.op("ReduceMean", b.op("Mul", deviation, deviation), axes, keepdims=1)
    root = b.op("Rsqrt", b.op("Add", variance, b.cast(eps, dtype)), domain=DOMAIN)
    y = b.op("Mul", deviation, root)
    last = b.constant(list(range(1, b.rank(x) - 1)), DType.I64)
    for op_type, own in (("Mul", weight), ("Add", bias)):
        y = y if own is None else b.op(op_type, y, b.op("Unsqueeze", own, last))
    mean, root, variance = (b.reshape(value, [-1]) for value in (mean, root, variance))
    return y, mean, root, variance


@aten("_native_batch_norm_legit.no_stats")
def batch_norm_without_statistics(
    b: Builder, x: Value, weight: Value | None, bias: Value | None, training: bool, momentum: float, eps: float
) -> tuple[Value, Value, Value]:
    """Channels with mean 0 and variance 1 over the batch, as an instance norm is."""
    return _by_batch(b, x, weight, bias, eps)[:3]


@aten("_native_batch_norm_legit_functional.default")
def batch_norm_functional(
    b: Builder,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    running_mean: Value,
    running_var: Value,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Value, ...]:
    """The same, or by what was gathered; and what is gathered next, with the variance corrected for the sample."""
    if not training:
        return (*batch_norm(b, x, weight, bias, running_mean, running_var, momentum, eps), running_mean, running_var)
    y, mean, root, variance = _by_batch(b, x, weight, bias, eps)
    dtype = b.dtype_of(mean)
    count = b.constant(1, DType.I64)
    for axis, size in enumerate(b.sizes(x)):
        count = count if axis == 1 else b.op("Mul", count, b.cast(size, DType.I64))
    correction = b.op("Div", b.cast(count, dtype), b.cast(b.op("Sub", count, b.cast(1, DType.I64)), dtype))
    gathered: list[Value] = []
    for before, now in ((running_mean, mean), (running_var, b.op("Mul", variance, correction))):
        part = b.op("Mul", now, b.cast(momentum, dtype))
        gathered.append(b.op("Add", b.op("Mul", before, b.cast(1 - momentum, dtype)), part))
    return (y, mean, root, *gathered)


@aten("_batch_norm_with_update_functional.default")
def batch_norm_with_update(b: Builder, x: Value, *arguments: Any) -> tuple[Any, ...]:
    """The same in training; nothing is kept for a backward pass."""
    y, mean, root, *gathered = batch_norm_functional(b, x, *arguments[:4], True, *arguments[4:])
    return (y, mean, root, b.constant(np.zeros(0, np.uint8)), *gathered)


@aten("native_group_norm.default")
def native_group_norm(
    b: Builder,
    x: Value,
    weight: Value | None,
    bias: Value | None,
    n: int,
    c: int,
    hxw: int,
    group: int,
    eps: float,
) -> tuple[Value, Any, Any]:
    """Groups of channels with mean 0 and variance 1, then scaled and shifted by channel."""
    shape = b.sizes(x)[1:2]
    scale, shift = _affine(b, weight, shape, 1), _affine(b, bias, shape, 0)
    y = b.op("GroupNormalization", x, scale, shift, num_groups=group, epsilon=eps)
    if len(getattr(b.made, "shape", ())) or not isinstance(b.made, list | tuple):
        return y, None, None
    sizes = b.sizes(x)
    rows = b.reshape(b.cast(x, DType.F32 if b.dtype.bytes < 4 else b.dtype), [sizes[0], group, -1])
    last = b.constant([-1], DType.I64)
    mean = b.op("ReduceMean", rows, last, keepdims=1)
    deviation = b.op("Sub", rows, mean)
    variance = b.op("ReduceMean", b.op("Mul", deviation, deviation), last, keepdims=0)
    root = b.op("Rsqrt", b.op("Add", variance, b.cast(eps, b.dtype_of(variance))), domain=DOMAIN)
    mean = b.op("Squeeze", mean, last)
    return y, b.cast(mean, b.dtype_of_made(1)), b.cast(root, b.dtype_of_made(2))


@aten("group_norm.default")
def group_norm(
    b: Builder,
    x: Value,
    num_groups: int,
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Value:
    """The same, alone."""
    return native_group_norm(b, x, weight, bias, 0, 0, 0, num_groups, eps)[0]

"""Sums, extremes and their places, variances, running sums."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from opweld.errors import UnsupportedError
from opweld.frontend.torch.builder import Builder, Value
from opweld.frontend.torch.rows import aten
from opweld.tensor.dtype import DType

_Dims = Sequence[int] | int | None


def _axes(b: Builder, x: Value, dim: _Dims) -> list[int]:
    rank = b.rank(x)
    if dim is None or (not isinstance(dim, int) and not dim):
        return list(range(rank))
    return [b.axis(d, rank) for d in ([dim] if isinstance(dim, int) else dim)] if rank else []


def over(b: Builder, op_type: str, x: Value, axes: Sequence[int], keepdim: bool) -> Value:
    """A reduction of ONNX; that over no axes is the tensor itself."""
    if not axes:
        return x
    return b.op(op_type, x, b.constant(np.array(axes, np.int64)), keepdims=int(keepdim), noop_with_empty_axes=0)


def reduced(op_type: str, b: Builder, x: Value, dim: _Dims = None, keepdim: bool = False, **_: Any) -> Value:
    """In the type of the result."""
    return over(b, op_type, b.cast(x, b.dtype), _axes(b, x, dim), keepdim)


aten("sum.default", "sum.dim_IntList")(partial(reduced, "ReduceSum"))
aten("mean.default", "mean.dim")(partial(reduced, "ReduceMean"))
aten("prod.default", "prod.dim_int")(partial(reduced, "ReduceProd"))


def _extreme(op_type: str, b: Builder, x: Value, dim: _Dims = (), keepdim: bool = False) -> Value:
    if b.dtype is DType.BOOL:
        return b.cast(over(b, op_type, b.cast(x, DType.U8), _axes(b, x, dim), keepdim), DType.BOOL)
    return reduced(op_type, b, x, dim, keepdim)


aten("amax.default", "max.default")(partial(_extreme, "ReduceMax"))
aten("amin.default", "min.default")(partial(_extreme, "ReduceMin"))


def _extreme_and_place(op_type: str, b: Builder, x: Value, dim: int, keepdim: bool = False) -> tuple[Value, Value]:
    """The extreme along an axis, and where it is first."""
    axis = b.axis(dim, b.rank(x))
    if not b.rank(x):
        return x, b.constant(0, DType.I64)
    data = b.cast(x, DType.U8) if b.dtype_of(x) is DType.BOOL else x
    value = over(b, f"Reduce{op_type}", data, [axis], keepdim)
    place = b.op(f"Arg{op_type}", data, dtype=DType.I64, axis=axis, keepdims=int(keepdim))
    return b.cast(value, b.dtype_of(x)), place


aten("max.dim")(partial(_extreme_and_place, "Max"))
aten("min.dim")(partial(_extreme_and_place, "Min"))


def _place(op_type: str, b: Builder, x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    if not b.rank(x):
        return b.constant(0, DType.I64)
    if b.dtype_of(x) is DType.BOOL:
        raise UnsupportedError(f"node {b.name!r}: the place of an extreme truth value")
    if dim is not None:
        return b.op(op_type, x, dtype=DType.I64, axis=b.axis(dim, b.rank(x)), keepdims=int(keepdim))
    place = b.op(op_type, b.reshape(x, [-1]), dtype=DType.I64, axis=0, keepdims=0)
    return b.reshape(place, [1] * b.rank(x)) if keepdim else place


aten("argmax.default")(partial(_place, "ArgMax"))
aten("argmin.default")(partial(_place, "ArgMin"))


def _truths(op_type: str, b: Builder, x: Value, dim: _Dims = None, keepdim: bool = False) -> Value:
    truths = b.cast(b.cast(x, DType.BOOL), DType.U8)
    return b.cast(over(b, op_type, truths, _axes(b, x, dim), keepdim), b.dtype)


aten("any.default", "any.dim", "any.dims")(partial(_truths, "ReduceMax"))
aten("all.default", "all.dim", "all.dims")(partial(_truths, "ReduceMin"))


def _variance(b: Builder, x: Value, axes: Sequence[int], correction: float, keepdim: bool) -> tuple[Value, Value]:
    """(variance, mean) along axes: from deviations, as rounding wants it; in float32 at least, for a float16 cannot say
    how many elements there are."""
    own = b.dtype_of(x)
    dtype = DType.F32 if own.bits < 32 else own
    wide = b.cast(x, dtype)
    mean = over(b, "ReduceMean", wide, axes, keepdim=True)
    deviation = b.op("Sub", wide, mean)
    total = over(b, "ReduceSum", b.op("Mul", deviation, deviation), axes, keepdim)
    count = b.constant(1, DType.I64)
    for axis in axes:
        size = b.shape(x)[axis]
        count = b.op("Mul", count, b.cast(size, DType.I64) if isinstance(size, int) else b.size(x, axis))
    count = b.op("Sub", b.cast(count, dtype), b.cast(float(correction), dtype))
    count = b.op("Max", count, b.cast(0, dtype))
    mean = mean if keepdim or not axes else b.op("Squeeze", mean, b.constant(np.array(axes, np.int64)))
    return b.cast(b.op("Div", total, count), own), b.cast(mean, own)


@aten("var.correction")
def variance(
    b: Builder, x: Value, dim: _Dims = None, *, correction: float | None = None, keepdim: bool = False
) -> Value:
    """The mean of squared deviations, corrected for how many there are."""
    return _variance(b, x, _axes(b, x, dim), 1 if correction is None else correction, keepdim)[0]


@aten("var.dim")
def variance_dim(b: Builder, x: Value, dim: _Dims, unbiased: bool = True, keepdim: bool = False) -> Value:
    """The same, corrected by one or not."""
    return _variance(b, x, _axes(b, x, dim), int(unbiased), keepdim)[0]


@aten("var_mean.correction")
def variance_mean(
    b: Builder, x: Value, dim: _Dims = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[Value, Value]:
    """The variance and the mean."""
    return _variance(b, x, _axes(b, x, dim), 1 if correction is None else correction, keepdim)


@aten("std.correction")
def deviation(
    b: Builder, x: Value, dim: _Dims = None, *, correction: float | None = None, keepdim: bool = False
) -> Value:
    """The square root of the variance."""
    return b.op("Sqrt", variance(b, x, dim, correction=correction, keepdim=keepdim))


@aten("logsumexp.default")
def logsumexp(b: Builder, x: Value, dim: _Dims, keepdim: bool = False) -> Value:
    """The logarithm of the sum of exponentials."""
    return reduced("ReduceLogSumExp", b, x, dim, keepdim)


@aten("linalg_vector_norm.default")
def vector_norm(
    b: Builder,
    x: Value,
    ord: float = 2,
    dim: _Dims = None,
    keepdim: bool = False,
    **_: Any,
) -> Value:
    """The root of the sum of powers of magnitudes."""
    return _norm(b, b.cast(x, b.dtype), ord, _axes(b, x, dim), keepdim)


def _norm(b: Builder, x: Value, power: float, axes: Sequence[int], keepdim: bool = False) -> Value:
    dtype, y = b.dtype, b.op("Abs", x)
    if math.isinf(power):
        return over(b, "ReduceMax" if power > 0 else "ReduceMin", y, axes, keepdim)
    if power == 0:
        some = b.op("Not", b.op("Equal", y, b.cast(0, dtype), dtype=DType.BOOL))
        return over(b, "ReduceSum", b.cast(some, dtype), axes, keepdim)
    if power == 1:
        return over(b, "ReduceSum", y, axes, keepdim)
    if power == 2:
        return b.op("Sqrt", over(b, "ReduceSum", b.op("Mul", y, y), axes, keepdim))
    total = over(b, "ReduceSum", b.op("Pow", y, b.cast(float(power), dtype)), axes, keepdim)
    return b.op("Pow", total, b.cast(1 / float(power), dtype))


@aten("dist.default")
def dist(b: Builder, x: Value, y: Value, p: float = 2) -> Value:
    """The norm of a difference."""
    return _norm(b, b.reshape(b.op("Sub", b.cast(x, b.dtype), b.cast(y, b.dtype)), [-1]), p, [0])


@aten("_cdist_forward.default")
def cdist(b: Builder, x: Value, y: Value, p: float, compute_mode: int | None) -> Value:
    """The norms of the differences of all pairs of rows."""
    rows, columns = b.op("Unsqueeze", x, b.constant([-2], DType.I64)), b.op("Unsqueeze", y, b.constant([-3], DType.I64))
    return _norm(b, b.op("Sub", rows, columns), p, [-1])


def _running(op_type: str, b: Builder, x: Value, dim: int, **_: Any) -> Value:
    y = b.cast(x, b.dtype)
    return b.op(op_type, y, b.constant(b.axis(dim, b.rank(x)), DType.I64)) if b.rank(x) else y


aten("cumsum.default")(partial(_running, "CumSum"))
aten("cumprod.default")(partial(_running, "CumProd"))


def _preceding(b: Builder, x: Value, axis: int, neutral: Value) -> Value:
    """Behind an axis a new one with all elements up to each of it; beyond them, `neutral`."""
    before = _up_to_each(b, x, axis)
    return b.op("Where", before, b.op("Unsqueeze", x, b.constant([axis], DType.I64)), neutral, dtype=b.dtype_of(x))


def _up_to_each(b: Builder, x: Value, axis: int) -> Value:
    """Of an axis and a new one behind it: whether a place along the new one is no further than that along the other."""
    size = b.cast(b.sizes(x)[axis], DType.I64)
    every = b.op("Range", b.constant(0, DType.I64), size, b.constant(1, DType.I64))
    before = b.op("LessOrEqual", every, b.op("Unsqueeze", every, b.constant([-1], DType.I64)), dtype=DType.BOOL)
    if after := range(2, b.rank(x) + 1 - axis):
        before = b.op("Unsqueeze", before, b.constant(list(after), DType.I64))
    return before


def _running_extreme(op_type: str, b: Builder, x: Value, dim: int) -> tuple[Value, Value]:
    """The extreme of the elements up to each one, and where it is last."""
    if not b.rank(x):
        return x, b.constant(0, DType.I64)
    axis, data = b.axis(dim, b.rank(x)), x
    if b.dtype_of(x) is DType.BOOL:
        data = b.cast(x, DType.U8)
        b.known[data] = b.known[x]
    dtype = b.dtype_of(data)
    least, most = (-math.inf, math.inf) if dtype.is_float else dtype.limits
    rows = _preceding(b, data, axis, b.cast(least if op_type == "Max" else most, dtype))
    value = over(b, f"Reduce{op_type}", rows, [axis + 1], keepdim=False)
    extreme = b.op("Unsqueeze", value, b.constant([axis + 1], DType.I64))
    equal = b.op("Equal", rows, extreme, dtype=DType.BOOL)
    if dtype.is_float:
        unknown = [b.op("IsNaN", own, dtype=DType.BOOL) for own in (rows, extreme)]
        equal = b.op("Or", equal, b.op("And", *unknown))
    equal = b.cast(b.op("And", equal, _up_to_each(b, data, axis)), DType.U8)
    place = b.op("ArgMax", equal, dtype=DType.I64, axis=axis + 1, keepdims=0, select_last_index=1)
    return b.cast(value, b.dtype_of(x)), place


aten("cummax.default")(partial(_running_extreme, "Max"))
aten("cummin.default")(partial(_running_extreme, "Min"))


@aten("logcumsumexp.default")
def logcumsumexp(b: Builder, x: Value, dim: int) -> Value:
    """The logarithm of the sum of the exponentials of the elements up to each one."""
    if not b.rank(x):
        return x
    axis = b.axis(dim, b.rank(x))
    rows = _preceding(b, x, axis, b.cast(-math.inf, b.dtype))
    return over(b, "ReduceLogSumExp", rows, [axis + 1], keepdim=False)


@aten("_pdist_forward.default")
def pdist(b: Builder, x: Value, p: float = 2) -> Value:
    """The norms of the differences of all pairs of rows, each pair once."""
    first, second = np.triu_indices(b.static(b.shape(x)[0], "the number of rows"), 1)
    rows = [b.op("Gather", x, b.constant(which.astype(np.int64)), axis=0) for which in (first, second)]
    return _norm(b, b.op("Sub", *rows), p, [1])


@aten("_trilinear.default")
def trilinear(
    b: Builder,
    x: Value,
    y: Value,
    z: Value,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Value:
    """The product of three tensors with axes of size 1 put in, summed over axes."""
    wide = [
        b.op("Unsqueeze", own, b.constant(list(axes), DType.I64)) if axes else own
        for own, axes in ((x, expand1), (y, expand2), (z, expand3))
    ]
    return over(b, "ReduceSum", b.op("Mul", b.op("Mul", wide[0], wide[1]), wide[2]), list(sumdim), keepdim=False)

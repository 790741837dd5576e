"""Codes of 4, 8 and 16 bits: how values become codes, which scales stored weights have, which codes there are."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from onnx import helper

from tests.random.graph import F32, Graph, Rejected, Scaling, Value

Array = NDArray[Any]
DType = np.dtype[Any]

U8, I8, U16, I16, U4, I4 = (
    np.dtype(t) for t in (np.uint8, np.int8, np.uint16, np.int16, ml_dtypes.uint4, ml_dtypes.int4)
)
BYTES = (U8, I8)
ANY = (U8, U8, I8, I8, U16, I16, U4, I4)
"""Types of codes, as often as they are drawn."""


def limits(dtype: DType) -> tuple[int, int]:
    """The least and the greatest code."""
    info = ml_dtypes.iinfo(dtype)
    return int(info.min), int(info.max)


def span(arrays: Sequence[Array]) -> float:
    """The largest magnitude of these arrays, at least 1e-3."""
    return max([1e-3, *(float(np.abs(array).max(initial=0)) for array in arrays)])


def anything(value: Value) -> bool:
    """Whatever there is."""
    return True


def finite(value: Value) -> bool:
    """A float32 value without NaN and infinity, of which nobody says which code they are."""
    return value.dtype == F32 and all(bool(np.isfinite(array).all()) for array in value.data)


def stored(graph: Graph, array: Array) -> Value:
    """Known when compiling; now and then fed instead."""
    return graph.fed(array) if graph.chance(0.06) else graph.constant(array)


def steps(graph: Graph, low: Array, high: Array, dtype: DType) -> tuple[Array, Array]:
    """(scales, zero points) for values from low to high, which hold 0: as wide as these or so, so that some saturate.

    Now and then scales are powers of two: then values lie on ties, exactly."""
    least, most = limits(dtype)
    width = np.maximum(high - low, 1e-3) * graph.numbers.uniform(0.4, 1.3, low.shape)
    scales = width / (most - least)
    if graph.chance(0.3):
        scales = 2.0 ** np.round(np.log2(scales))
    zeros = np.zeros(low.shape) if graph.chance(0.25) else np.clip(np.round(least - low / scales), least, most)
    return scales.astype(np.float32), zeros.astype(np.int32).astype(dtype)


def step_for(graph: Graph, reach: float, dtype: DType) -> tuple[Value, Value]:
    """(scale, zero point) of a result whose magnitudes go up to `reach`."""
    scale, zero = steps(graph, np.array(-reach), np.array(reach), dtype)
    return stored(graph, scale), stored(graph, zero)


def quantize(graph: Graph, x: Value, dtype: DType, axis: int | None = None, block: int = 0) -> tuple[Value, Scaling]:
    """QuantizeLinear with scales that fit what the value is: one, of each index of an axis, or of each block of it."""
    if not finite(x):
        raise Rejected
    shape = _scale_shape(x, axis, block)
    parts = [_parts(array, axis, block) for array in x.data]
    low = np.min([np.minimum(part.min(axis=-1, initial=0), 0) for part in parts], axis=0).reshape(shape)
    high = np.max([np.maximum(part.max(axis=-1, initial=0), 0) for part in parts], axis=0).reshape(shape)
    scales, zeros = steps(graph, low, high, dtype)
    if axis is None and graph.chance(0.1):
        scales, zeros = scales.reshape(1), zeros.reshape(1)
    bare = not zeros.astype(np.int32).any() and graph.chance(0.5)
    named = helper.np_dtype_to_tensor_dtype(dtype) if bare and dtype != U8 else None
    scale, zero = stored(graph, scales), None if bare else stored(graph, zeros)
    made = graph.node("QuantizeLinear", x, scale, zero, axis=axis, block_size=block or None, output_dtype=named)
    return registered(graph, made, Scaling(scale, zero, axis, block))


def _scale_shape(x: Value, axis: int | None, block: int) -> tuple[int, ...]:
    if axis is None:
        return ()
    if not block:
        return (x.size(axis),)
    return tuple(-(-x.size(i) // block) if i == axis else x.size(i) for i in range(x.rank))


def _parts(array: Array, axis: int | None, block: int) -> Array:
    """The elements of each scale along the last axis; of a last block that is not whole the others are 0."""
    if axis is None:
        return array.reshape(1, -1)
    moved = np.moveaxis(array, axis, 0)
    if not block:
        return moved.reshape(moved.shape[0], math.prod(moved.shape[1:]))
    whole = np.pad(moved, [(0, -moved.shape[0] % block), *[(0, 0)] * (moved.ndim - 1)])
    blocks = whole.reshape(len(whole) // block, block, *moved.shape[1:])
    return np.moveaxis(np.moveaxis(blocks, 1, -1), 0, axis)


def dequantize(graph: Graph, codes: Value, scaling: Scaling) -> Value:
    """DequantizeLinear."""
    operands, block = (codes, scaling.scale, scaling.zero), scaling.block or None
    return graph.node("DequantizeLinear", *operands, dtype=F32, axis=scaling.axis, block_size=block)


def registered(graph: Graph, codes: Value, scaling: Scaling) -> tuple[Value, Scaling]:
    """Remembers what codes stand for."""
    graph.scalings[codes.name] = scaling
    return codes, scaling


def codes_of(
    graph: Graph, dtypes: Sequence[DType] = BYTES, fits: Callable[[Value], bool] = anything
) -> tuple[Value, Scaling]:
    """Codes of one scale that are there; where there are none, and now and then, what a float becomes."""

    def known(value: Value) -> bool:
        scaling = graph.scalings.get(value.name)
        return scaling is not None and scaling.axis is None and value.dtype in dtypes and fits(value)

    if graph.chance(0.7) and any(known(value) for value in graph.values):
        value = graph.pick(known)
        return value, graph.scalings[value.name]
    return quantize(graph, graph.pick(lambda v: finite(v) and fits(v)), graph.choose(dtypes))


def real(codes: Value, scaling: Scaling) -> list[Array]:
    """What codes of one scale stand for, at every choice of sizes."""
    zeros = [np.zeros((), np.int32)] * len(codes.data) if scaling.zero is None else scaling.zero.data
    return [
        (array.astype(np.int32) - zero.astype(np.int32).reshape(())) * scale.reshape(())
        for array, zero, scale in zip(codes.data, zeros, scaling.scale.data, strict=True)
    ]


def weights(
    graph: Graph, shape: Sequence[int], axis: int, dtypes: Sequence[DType] = BYTES, summed: int | None = None
) -> tuple[Value, Scaling]:
    """Stored codes: of one scale, of one for each index of the axis, or for each block of what is summed over.

    Scales are such that sums of products with numbers around 1 are around 1."""
    dtype = graph.choose(dtypes)
    least, most = limits(dtype)
    codes = graph.numbers.integers(least, most, tuple(shape), endpoint=True).astype(np.int32).astype(dtype)
    count, along, block = (), None, 0
    if summed is not None and shape[summed] > 1 and graph.chance(0.35):
        block = graph.choose([2, 3, 4, 8, 16, 32])
        count, along = tuple(-(-n // block) if i == summed else n for i, n in enumerate(shape)), summed
    elif graph.chance(0.65):
        count, along = (shape[axis],), axis
    depth = max(1, int(np.prod(shape)) // max(1, shape[axis]))
    scales = (graph.numbers.uniform(0.3, 1.5, count) / (most * depth**0.5)).astype(np.float32)
    zeros = None
    if graph.chance(0.5 if least else 0.9):
        middle = (least + most + 1) // 2
        reach = graph.choose([0, 3, (most - least) // 2])
        drawn = np.clip(middle + graph.numbers.integers(-reach, reach, count, endpoint=True), least, most)
        zeros = stored(graph, np.asarray(drawn).astype(np.int32).astype(dtype))
    return stored(graph, codes), Scaling(stored(graph, scales), zeros, along, block)


def reach_of(data: Sequence[Array], codes: Value, scaling: Scaling, axis: int) -> float:
    """About how large sums of products of data and weights are; `axis` is that of the weights' results."""
    zero = 0 if scaling.zero is None else float(np.mean(scaling.zero.data[0].astype(np.float64)))
    centred = (codes.data[0].astype(np.float64) - zero) * float(scaling.scale.data[0].mean())
    squares = np.square(np.moveaxis(centred, axis, 0).reshape(max(1, codes.data[0].shape[axis]), -1)).sum(axis=1)
    return max(1e-3, span(data) * float(np.sqrt(squares.max(initial=0))))

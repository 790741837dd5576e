"""Products of quantized values, as exporters and quantisers write them: between Q and DQ, and of integers."""

from __future__ import annotations

import numpy as np

from tests.random.families.products import image, width, windows
from tests.random.families.registry import proposal
from tests.random.graph import F32, Graph, Rejected, Value

I8, U8 = np.dtype(np.int8), np.dtype(np.uint8)


def _fed(graph: Graph, value: Value) -> bool:
    """A float32 input: what is quantized of it is the same in any precision, with a scale that is a power of two."""
    return value.dtype == F32 and any(value is given for given, _ in graph.inputs)


def _codes(graph: Graph, x: Value) -> tuple[Value, Value, Value]:
    """(codes, scale, zero point) of a value."""
    dtype = graph.choose([U8, U8, I8])
    scale = graph.constant(2.0 ** -graph.between(2, 6), F32)
    zero = graph.constant(graph.between(*((0, 255) if dtype == U8 else (-128, 127))), dtype)
    return graph.node("QuantizeLinear", x, scale, zero, dtype=dtype), scale, zero


def _weights(graph: Graph, shape: tuple[int, ...], axis: int) -> tuple[Value, Value, Value | None]:
    """(codes, scales, zero points or None) of weights, for each index of an axis or for all."""
    dtype = graph.choose([I8, I8, U8])
    limits = np.iinfo(dtype)
    codes = graph.constant(graph.numbers.integers(limits.min, limits.max, shape, endpoint=True).astype(dtype))
    count = (shape[axis],) if graph.chance(0.7) else ()
    scales = graph.constant(graph.numbers.uniform(1e-4, 1e-2, count).astype(np.float32))
    if dtype == I8 and graph.chance(0.7):
        return codes, scales, None
    zeros = graph.numbers.integers(limits.min, limits.max, count, endpoint=True).astype(dtype)
    return codes, scales, graph.constant(zeros)


def _depth(graph: Graph, x: Value, axis: int) -> int:
    if x.rank <= axis or not x.static(axis):
        raise Rejected
    return x.size(axis)


@proposal(2.5)
def quantized_matmul(graph: Graph) -> Value:
    """x w between Q and DQ; now and then as integers, scaled afterwards."""
    x = graph.pick(lambda v: _fed(graph, v) and v.rank > 1)
    k = _depth(graph, x, x.rank - 1)
    codes, scale, zero = _codes(graph, x)
    weights, scales, zeros = _weights(graph, (k, width(graph)), 1)
    if graph.chance(0.25):
        total = graph.node("MatMulInteger", codes, weights, zero, zeros)
        return graph.node("Mul", graph.node("Cast", total, to=1, dtype=F32), graph.node("Mul", scale, scales))
    left = graph.node("DequantizeLinear", codes, scale, zero, dtype=F32)
    right = graph.node("DequantizeLinear", weights, scales, zeros, axis=1, dtype=F32)
    y = graph.node("MatMul", left, right)
    return graph.node("Relu", y) if graph.chance(0.3) else y


@proposal(2.5)
def quantized_conv(graph: Graph) -> Value:
    """A convolution between Q and DQ: plain, grouped, depthwise; padded with what stands for zero."""
    x = graph.pick(lambda v: _fed(graph, v) and image(v))
    channels = _depth(graph, x, 1)
    group = graph.choose([1, 1, 1, channels, 2]) or 1
    if channels % group:
        raise Rejected
    outputs = group * graph.choose([1, 2]) if group > 1 else width(graph)
    attributes = windows(graph, x)
    codes, scale, zero = _codes(graph, x)
    weights, scales, zeros = _weights(graph, (outputs, channels // group, *attributes["kernel_shape"]), 0)
    left = graph.node("DequantizeLinear", codes, scale, zero, dtype=F32)
    right = graph.node("DequantizeLinear", weights, scales, zeros, axis=0, dtype=F32)
    bias = graph.weights(outputs) if graph.chance(0.5) else None
    y = graph.node("Conv", left, right, bias, group=group, **attributes)
    return graph.node("Relu", y) if graph.chance(0.3) else y

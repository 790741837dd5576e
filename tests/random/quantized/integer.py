"""Operators of integers: ONNX's own and those of ONNX Runtime."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from opweld.ops.microsoft.domain import MICROSOFT
from tests.random.families.products import width, windows
from tests.random.families.registry import QUANTIZED, proposal
from tests.random.graph import F32, I32, Graph, Rejected, Scaling, Value
from tests.random.quantized.pairs import grouped
from tests.random.quantized.scaling import (
    BYTES,
    I8,
    U8,
    codes_of,
    finite,
    reach_of,
    real,
    registered,
    span,
    step_for,
    stored,
    weights,
)

quantized = partial(proposal, families=QUANTIZED)


def rescaled(
    graph: Graph, name: str, operands: list[Value | None], reach: float, dtype: Any, **attributes: Any
) -> Value:
    """A node whose last operands are the scale and the zero point of its result."""
    scale, zero = step_for(graph, reach, dtype)
    made = graph.node(name, *operands, scale, zero, **attributes)
    return registered(graph, made, Scaling(scale, zero))[0]


def zero_of(graph: Graph, codes: Value, found: Scaling, count: tuple[int, ...] = ()) -> Value:
    """The zero point, which some operators demand."""
    return found.zero or graph.constant(np.zeros(count), codes.dtype)


def triple(graph: Graph, codes: Value, found: Scaling) -> list[Value | None]:
    """Codes, scale, zero point."""
    return [codes, found.scale, zero_of(graph, codes, found, found.scale.data[0].shape)]


def factor(graph: Graph) -> tuple[Value, Scaling, int]:
    """Codes whose last axis is summed over, and its extent."""
    codes, found = codes_of(graph, BYTES, lambda v: v.rank > 1 and v.static(v.rank - 1))
    return codes, found, codes.size(codes.rank - 1)


@quantized(2)
def qlinear_matmul(graph: Graph) -> Value:
    x, found, k = factor(graph)
    w, own = weights(graph, (k, width(graph)), 1)
    operands = [*triple(graph, x, found), *triple(graph, w, own)]
    return rescaled(graph, "QLinearMatMul", operands, reach_of(real(x, found), w, own, 1), graph.choose(BYTES))


@quantized(5)
def qlinear_conv(graph: Graph) -> Value:
    x, found = codes_of(graph, BYTES, lambda v: 3 <= v.rank <= 5 and v.static(1))
    group, outputs = grouped(graph, x.size(1))
    attributes = windows(graph, x)
    w, own = weights(graph, (outputs, x.size(1) // group, *attributes["kernel_shape"]), 0)
    scale, zero = step_for(graph, reach_of(real(x, found), w, own, 0), x.dtype)
    bias = graph.constant(graph.numbers.integers(-3000, 3000, outputs), I32) if graph.chance(0.5) else None
    operands = [*triple(graph, x, found), *triple(graph, w, own), scale, zero, bias]
    made = graph.node("QLinearConv", *operands, group=group, **attributes)
    return registered(graph, made, Scaling(scale, zero))[0]


def in_units(graph: Graph, total: Value, one: Value, other: Value) -> Value:
    """An int32 sum of products as a float: times both scales."""
    return graph.node("Mul", graph.node("Cast", total, to=1, dtype=F32), graph.node("Mul", one, other))


@quantized(2)
def matmul_integer(graph: Graph) -> Value:
    """Of codes that are there, or of those of a dynamic quantisation, as ONNX Runtime's quantiser writes it."""
    dynamic = graph.chance(0.5)
    x, found, k = dynamically(graph) if dynamic else factor(graph)
    w, own = weights(graph, (k, width(graph)), 1)
    total = graph.node("MatMulInteger", x, w, found.zero, own.zero)
    return in_units(graph, total, found.scale, own.scale) if dynamic or graph.chance(0.6) else total


@quantized(3)
def conv_integer(graph: Graph) -> Value:
    x, found = codes_of(graph, BYTES, lambda v: 3 <= v.rank <= 5 and v.static(1))
    group, outputs = grouped(graph, x.size(1))
    attributes = windows(graph, x)
    w, own = weights(graph, (outputs, x.size(1) // group, *attributes["kernel_shape"]), 0)
    if own.axis is not None:
        own = Scaling(stored(graph, own.scale.data[0][:1].astype(np.float32)), None)
    total = graph.node("ConvInteger", x, w, found.zero, own.zero, group=group, **attributes)
    return in_units(graph, total, found.scale, own.scale) if graph.chance(0.6) else total


def not_zero(value: Value) -> bool:
    """A finite value that is not 0 everywhere: of that, ONNX's evaluator has another scale than ONNX Runtime."""
    return finite(value) and all(bool(array.any()) for array in value.data)


def dynamically(graph: Graph) -> tuple[Value, Scaling, int]:
    """Codes of a dynamic quantisation whose last axis is summed over, and its extent."""
    x = graph.pick(lambda v: not_zero(v) and v.rank > 1 and v.static(v.rank - 1))
    codes, scale, zero = graph.several("DynamicQuantizeLinear", x, outputs=3)
    registered(graph, codes, Scaling(scale, zero))
    return codes, Scaling(scale, zero), x.size(x.rank - 1)


# ------------------------------------------------------------------------------------------- of ONNX Runtime's domain

microsoft: dict[str, Any] = {"domain": MICROSOFT}


@quantized(2)
def qlinear_pair(graph: Graph) -> Value:
    a, one = codes_of(graph)
    b, other = codes_of(graph, (a.dtype,), lambda v: v.extents == a.extents)
    reaches = span(real(a, one)), span(real(b, other))
    name = graph.choose(["QLinearAdd", "QLinearMul"])
    reach = sum(reaches) if name == "QLinearAdd" else reaches[0] * reaches[1]
    operands = [*triple(graph, a, one), *triple(graph, b, other)]
    return rescaled(graph, name, operands, max(reach, 1e-3), a.dtype, **microsoft)


@quantized(1.5)
def qlinear_activation(graph: Graph) -> Value:
    x, found = codes_of(graph, BYTES, lambda v: v.rank > 0 and all(a.size for a in v.data))
    name = graph.choose(["QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax"])
    reach = span(real(x, found)) if name == "QLinearLeakyRelu" else 1.0
    attributes: dict[str, Any] = {"alpha": 0.1} if name == "QLinearLeakyRelu" else {}
    if name == "QLinearSoftmax":
        attributes = {"axis": graph.between(-x.rank, x.rank - 1), "opset": 13}
    return rescaled(graph, name, triple(graph, x, found), reach, x.dtype, **attributes, **microsoft)


@quantized(1)
def qlinear_pool(graph: Graph) -> Value:
    x, found = codes_of(graph, BYTES, lambda v: 3 <= v.rank <= 5 and all(a.size for a in v.data))
    reach, operands = span(real(x, found)), triple(graph, x, found)
    if graph.chance(0.5):
        return rescaled(graph, "QLinearGlobalAveragePool", operands, reach, x.dtype, **microsoft)
    kernel = [graph.choose([1, 2, 3]) for _ in range(x.rank - 2)]
    return rescaled(graph, "QLinearAveragePool", operands, reach, x.dtype, kernel_shape=kernel, **microsoft)


@quantized(1)
def qlinear_concat(graph: Graph) -> Value:
    a, one = codes_of(graph, BYTES, lambda v: v.rank > 0)
    b, other = codes_of(graph, (a.dtype,), lambda v: v.extents == a.extents)
    scale, zero = step_for(graph, max(span(real(a, one)), span(real(b, other))), a.dtype)
    operands = [scale, zero, *triple(graph, a, one), *triple(graph, b, other)]
    made = graph.node("QLinearConcat", *operands, axis=graph.between(-a.rank, a.rank - 1), **microsoft)
    return registered(graph, made, Scaling(scale, zero))[0]


@quantized(1)
def qgemm(graph: Graph) -> Value:
    x, found = codes_of(graph, BYTES, lambda v: v.rank == 2 and v.static(1))
    n, turned = width(graph), graph.chance(0.5)
    shape, axis = ((n, x.size(1)), 0) if turned else ((x.size(1), n), 1)
    w, own = weights(graph, shape, axis)
    bias = graph.constant(graph.numbers.integers(-3000, 3000, n), I32) if graph.chance(0.5) else None
    operands = [*triple(graph, x, found), *triple(graph, w, own), bias]
    attributes: dict[str, Any] = {"transB": int(turned), **microsoft}
    if graph.chance(0.3):
        return graph.node("QGemm", *operands, dtype=F32, **attributes)
    return rescaled(graph, "QGemm", operands, reach_of(real(x, found), w, own, axis), x.dtype, **attributes)


@quantized(1)
def product_to_float(graph: Graph) -> Value:
    """DynamicQuantizeMatMul and MatMulIntegerToFloat, as ONNX Runtime fuses them."""
    if graph.chance(0.5):
        x = graph.pick(lambda v: not_zero(v) and v.rank > 1 and v.static(v.rank - 1))
        w, own = weights(graph, (x.size(x.rank - 1), width(graph)), 1)
        bias = graph.weights(w.size(1)) if graph.chance(0.5) else None
        return graph.node("DynamicQuantizeMatMul", x, w, own.scale, own.zero, bias, **microsoft)
    x, found, k = factor(graph)
    w, own = weights(graph, (k, width(graph)), 1)
    bias = graph.weights(w.size(1)) if graph.chance(0.5) else None
    operands = [x, w, found.scale, own.scale, found.zero, own.zero, bias]
    return graph.node("MatMulIntegerToFloat", *operands, dtype=F32, **microsoft)


@quantized(2)
def matmul_nbits(graph: Graph) -> Value:
    """Weights of 2, 4 or 8 bits in blocks, packed in bytes; zero points packed, floats, or none."""
    x = graph.pick(lambda v: v.dtype == F32 and v.rank > 0 and v.static(v.rank - 1))
    k, n, bits, block = x.size(x.rank - 1), width(graph), graph.choose([4, 4, 4, 8, 2]), graph.choose([16, 32])
    if not k:
        raise Rejected
    blocks = -(-k // block)
    codes = stored(graph, graph.numbers.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8))
    count = graph.choose([(n, blocks), (n * blocks,)])
    scales = graph.numbers.uniform(0.2, 1.0, count) / (k**0.5 * 2 ** (bits - 1))
    zeros, how = None, graph.between(0, 2)
    if how == 1:
        zeros = stored(graph, graph.numbers.integers(0, 256, n * -(-blocks * bits // 8)).astype(np.uint8))
    elif how == 2:
        zeros = stored(graph, graph.numbers.uniform(0, 2**bits - 1, (n, blocks)).astype(np.float32))
    bias = graph.weights(n) if graph.chance(0.4) else None
    operands = [x, codes, stored(graph, scales.astype(np.float32)), zeros, None, bias]
    while operands[-1] is None:
        del operands[-1]
    return graph.node("MatMulNBits", *operands, K=k, N=n, bits=bits, block_size=block, **microsoft)


@quantized(3)
def dynamic_lstm(graph: Graph) -> Value:
    """An LSTM whose inputs and states become codes at every step."""
    x = graph.pick(lambda v: not_zero(v) and v.rank == 3 and v.static(2))
    hidden, direction = graph.choose([1, 3, 8]), graph.choose(["forward", "reverse", "bidirectional"])
    count, dtype = 2 if direction == "bidirectional" else 1, graph.choose([I8, U8])
    scalings = graph.choose([(count,), (count, 4 * hidden)])
    middle = 0 if dtype == I8 else 128
    operands: list[Value | None] = [x]
    scales: list[Value | None] = []
    for rows in (x.size(2), hidden):
        low, high = (-128, 127) if dtype == I8 else (0, 255)
        operands.append(graph.constant(graph.numbers.integers(low, high, (count, rows, 4 * hidden)), dtype))
        scales.append(graph.constant(graph.numbers.uniform(2e-3, 8e-3, scalings), F32))
        scales.append(graph.constant(middle + graph.numbers.integers(0, 4, scalings), dtype))
    operands.append(graph.constant(0.3 * graph.draw((count, 8 * hidden), F32), F32) if graph.chance(0.7) else None)
    states: list[Value | None] = [None, None]
    if x.static(1) and graph.chance(0.4):
        states = [graph.constant(graph.draw((count, x.size(1), hidden), F32)) for _ in states]
    operands += [None, *states, None, *scales]
    attributes: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    return graph.several("DynamicQuantizeLSTM", *operands, outputs=3, **attributes, **microsoft)[graph.between(0, 1)]

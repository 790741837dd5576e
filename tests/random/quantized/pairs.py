"""Values between QuantizeLinear and DequantizeLinear, as quantisers for any runtime write them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from onnx import helper

from tests.random.families.products import image, width, windows
from tests.random.families.registry import QUANTIZED, proposal
from tests.random.graph import F32, I32, I64, Graph, Rejected, Scaling, Value
from tests.random.quantized import scaling
from tests.random.quantized.scaling import ANY, BYTES, I4, I8, U4, U8, codes_of, dequantize, finite, quantize, weights

quantized = partial(proposal, families=QUANTIZED)

WEIGHTS = (I8, I8, I8, U8, I4, I4, U4)


def behind(graph: Graph, y: Value) -> Value:
    """What a quantiser leaves behind a layer: an activation, and codes of the result."""
    if graph.chance(0.35):
        y = graph.node(graph.choose(["Relu", "Relu", "Sigmoid", "HardSwish"]), y)
    if graph.chance(0.6):
        return quantize(graph, y, graph.choose(BYTES))[0]
    return y


@quantized(3)
def pair(graph: Graph) -> Value:
    """Codes of any type, with one scale, one for each index of an axis, or one for each block."""
    x = graph.pick(finite)
    axis, block = None, 0
    if x.rank and graph.chance(0.35):
        axis = graph.between(0, x.rank - 1)
        block = graph.choose([2, 3, 4, 8, 16]) if graph.chance(0.4) else 0
    codes, found = quantize(graph, x, graph.choose(ANY), axis, block)
    return dequantize(graph, codes, found) if graph.chance(0.7) else codes


@quantized(2)
def back(graph: Graph) -> Value:
    """The floats of codes that are there."""
    codes = graph.pick(lambda v: v.name in graph.scalings)
    return dequantize(graph, codes, graph.scalings[codes.name])


@quantized(1)
def fed_codes(graph: Graph) -> Value:
    """An input of codes, as pictures are."""
    dtype, shape = graph.choose([U8, U8, I8, I4]), graph.choose([(1, 3, 8, 8), (2, 4, 5, 7), (4, 16), (3, 33), (7,)])
    codes = graph.fed(
        graph.numbers.integers(*scaling.limits(dtype), shape, endpoint=True).astype("int32").astype(dtype)
    )
    scale, zero = scaling.step_for(graph, 2.0, dtype)
    return scaling.registered(graph, codes, Scaling(scale, zero))[0]


def floats(graph: Graph, fits: Callable[[Value], bool]) -> Value:
    """A float operand: dequantised codes, or, of layers whose weights alone are codes, any float."""
    if graph.chance(0.75):
        return dequantize(graph, *codes_of(graph, ANY if graph.chance(0.2) else BYTES, fits))
    return graph.pick(lambda v: v.dtype == F32 and fits(v))


@quantized(4)
def matmul(graph: Graph) -> Value:
    """x w, of weights with scales by column, by block of rows, or one for all."""
    x = floats(graph, lambda v: v.rank > 1 and v.static(v.rank - 1))
    w = dequantize(graph, *weights(graph, (x.size(x.rank - 1), width(graph)), 1, WEIGHTS, 0))
    return behind(graph, graph.node("MatMul", x, w))


@quantized(2)
def gemm(graph: Graph) -> Value:
    """Gemm, with a bias in units of both scales, in floats, or none."""
    x = floats(graph, lambda v: v.rank == 2 and v.static(1))
    k, n, turned = x.size(1), width(graph), graph.chance(0.5)
    shape, axis = ((n, k), 0) if turned else ((k, n), 1)
    w = dequantize(graph, *weights(graph, shape, axis, WEIGHTS, 1 - axis))
    return behind(graph, graph.node("Gemm", x, w, bias_of(graph, n), transB=int(turned)))


def bias_of(graph: Graph, count: int) -> Value | None:
    """int32 codes with a scale, floats, or none."""
    how = graph.between(0, 2)
    if how == 0:
        return None
    if how == 1:
        return graph.weights(count)
    codes = graph.constant(graph.numbers.integers(-20000, 20000, count), I32)
    scales = graph.numbers.uniform(1e-5, 1e-4, graph.choose([(), (count,)])).astype(F32)
    axis = 0 if scales.ndim else None
    return dequantize(graph, codes, Scaling(scaling.stored(graph, scales), None, axis))


def grouped(graph: Graph, channels: int) -> tuple[int, int]:
    """(groups, outputs) of a convolution."""
    group = graph.choose([1, 1, 1, channels, 2]) or 1
    if channels % group:
        raise Rejected
    return group, group * graph.choose([1, 2]) if group > 1 else width(graph)


@quantized(6)
def conv(graph: Graph) -> Value:
    """A convolution: plain, grouped, depthwise."""
    x = floats(graph, lambda v: 3 <= v.rank <= 5 and v.static(1))
    group, outputs = grouped(graph, x.size(1))
    attributes = windows(graph, x)
    shape = (outputs, x.size(1) // group, *attributes["kernel_shape"])
    w = dequantize(graph, *weights(graph, shape, 0, (I8, I8, U8)))
    return behind(graph, graph.node("Conv", x, w, bias_of(graph, outputs), group=group, **attributes))


@quantized(1)
def conv_transpose(graph: Graph) -> Value:
    x = floats(graph, lambda v: 3 <= v.rank <= 4 and v.static(1))
    kernel = [graph.choose([1, 2, 3, 4]) for _ in range(x.rank - 2)]
    w = dequantize(graph, *weights(graph, (x.size(1), graph.between(1, 5), *kernel), 1))
    strides = [graph.choose([1, 2, 3]) for _ in kernel]
    return behind(graph, graph.node("ConvTranspose", x, w, strides=strides))


@quantized(1)
def rows(graph: Graph) -> Value:
    """Rows of a table of codes: an embedding."""
    n, size = graph.between(2, 20), graph.choose([3, 8, 16, 33])
    table = dequantize(graph, *weights(graph, (n, size), 0, WEIGHTS, 1))
    places = graph.numbers.integers(-n, n, graph.choose([(4,), (2, 3), ()]))
    return graph.node("Gather", table, graph.constant(places, I64) if graph.chance(0.5) else graph.fed(places))


@quantized(2)
def sum_of_two(graph: Graph) -> Value:
    """A residual: both operands are codes of their own scales."""
    a, one = codes_of(graph)
    b, other = codes_of(graph, BYTES, lambda v: v.extents == a.extents)
    y = graph.node(graph.choose(["Add", "Add", "Mul"]), dequantize(graph, a, one), dequantize(graph, b, other))
    return behind(graph, y)


@quantized(2)
def moved_pair(graph: Graph) -> Value:
    """Pooling or a movement between two pairs of the same scale."""
    codes, found = codes_of(graph, ANY)
    x = dequantize(graph, codes, found)
    if image(x) and all(array.size for array in x.data) and graph.chance(0.6):
        name = graph.choose(["MaxPool", "AveragePool", "GlobalAveragePool"])
        y = graph.node(name, x, kernel_shape=None if name.startswith("Global") else [2] * (x.rank - 2))
    else:
        y = movement(graph, x)
    made = graph.node("QuantizeLinear", y, found.scale, found.zero, output_dtype=named(found, codes))
    return scaling.registered(graph, made, found)[0]


def named(found: Scaling, codes: Value) -> int | None:
    """The attribute that names the type of codes without a zero point."""
    return None if found.zero is not None or codes.dtype == U8 else helper.np_dtype_to_tensor_dtype(codes.dtype)


def movement(graph: Graph, x: Value) -> Value:
    """Transpose, Flatten, a Slice of an axis, or Concat with itself; of 4 bits ONNX has the first two only."""
    if not x.rank:
        raise Rejected
    how = graph.between(0, 1 if x.dtype in (I4, U4) else 3)
    if how == 0:
        return graph.node("Transpose", x, perm=graph.random.sample(range(x.rank), x.rank))
    axis = graph.between(0, x.rank - 1)
    if how == 1:
        return graph.node("Flatten", x, axis=axis)
    if how == 2:
        return graph.node("Concat", x, x, axis=axis)
    starts, ends = graph.integers([graph.between(0, 1)]), graph.integers([graph.choose([-1, 4, 1000])])
    return graph.node("Slice", x, starts, ends, graph.integers([axis]))


@quantized(2)
def moved_codes(graph: Graph) -> Value:
    """Codes that are moved as they are, or of which windows keep the largest."""
    codes, found = codes_of(graph, ANY)
    if codes.dtype in BYTES and 3 <= codes.rank <= 5 and all(a.size for a in codes.data) and graph.chance(0.5):
        made = graph.node("MaxPool", codes, kernel_shape=[2] * (codes.rank - 2))
    else:
        made = movement(graph, codes)
    return scaling.registered(graph, made, found)[0]

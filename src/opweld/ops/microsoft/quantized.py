"""Operators of quantized values: each dequantizes its operands, computes in floats and quantizes the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from opweld import ir
from opweld.errors import ModelError, UnsupportedError
from opweld.ops.activation import leaky_relu
from opweld.ops.arithmetic import add, div, mul, sub
from opweld.ops.dynamic import steps_of
from opweld.ops.emitted import Body, Emitted, Indices, define, emit
from opweld.ops.fact import Fact
from opweld.ops.matmul import contraction
from opweld.ops.microsoft.domain import MICROSOFT
from opweld.ops.operands import describe, given, normalize_axis, require_rank, require_same_dtype, required
from opweld.ops.quantize import quantized
from opweld.ops.registry import Inference, Lowering, attribute, infers, lowers, required_attribute
from opweld.ops.rows import rows_of
from opweld.ops.scales import check_scale
from opweld.ops.softmax import softmax_of
from opweld.tensor.dim import ONE, ZERO, Axis, Dim, Value, as_dim, product
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, at_least_zero, binary, cast, const, index, reduce, select, unary


def _scalar(scope: Lowering, value: ir.Value, dtype: DType) -> Expr:
    """The element of a tensor of one element."""
    return cast(scope.load(value, (ZERO,) * scope.fact(value).rank), dtype)


def real(scope: Lowering, node: ir.Node, position: int, at: Indices) -> Expr:
    """A dequantized element of an input; the next two inputs are its scale and zero point."""
    check_scale(scope, node, position + 1)
    element = cast(scope.load(required(node, position), at), DType.F32)
    zero = given(node, position + 2)
    centred = element if zero is None else sub(element, _scalar(scope, zero, DType.F32))
    return mul(centred, _scalar(scope, required(node, position + 1), DType.F32))


def quantize(scope: Lowering, node: ir.Node, position: int, body: Body) -> None:
    """Defines the output by its dequantized elements; the inputs from a position on are its scale and zero point."""
    output, zero = scope.fact(node.outputs[0]), given(node, position + 1)
    check_scale(scope, node, position, divides=True)

    def element(at: Indices) -> Expr:
        value = div(body(at), _scalar(scope, required(node, position), DType.F32))
        return quantized(value, None if zero is None else _scalar(scope, zero, output.dtype), output.dtype)

    define(scope, node.outputs[0], element)


def _require_byte(fact: Fact, node: ir.Node) -> Fact:
    if fact.dtype not in (DType.U8, DType.I8):
        raise ModelError(f"{describe(node)}: expected values of 8 bits, got {fact.dtype!r}")
    return fact


# ------------------------------------------------------------------------------------------------------- element-wise


@infers("QLinearAdd", "QLinearMul", domain=MICROSOFT)
def infer_pair(scope: Inference, node: ir.Node) -> list[Fact]:
    """The broadcast shape of two quantized values."""
    facts = [_require_byte(scope.fact(required(node, position)), node) for position in (0, 3)]
    return [Fact(require_same_dtype(facts, node), scope.broadcast([fact.shape for fact in facts], node))]


@lowers("QLinearAdd", "QLinearMul", domain=MICROSOFT)
def lower_pair(scope: Lowering, node: ir.Node) -> None:
    """a + b or a * b"""
    combine = add if node.op_type == "QLinearAdd" else mul
    quantize(scope, node, 6, lambda at: combine(real(scope, node, 0, at), real(scope, node, 3, at)))


@infers("QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax", domain=MICROSOFT)
def infer_same(scope: Inference, node: ir.Node) -> list[Fact]:
    """The fact of the input."""
    x = _require_byte(scope.fact(required(node, 0)), node)
    if node.op_type == "QLinearSoftmax":
        normalize_axis(int(attribute(node, "axis", -1)), x.rank, node)
    return [Fact(x.dtype, x.shape)]


@lowers("QLinearSigmoid", "QLinearLeakyRelu", domain=MICROSOFT)
def lower_activation(scope: Lowering, node: ir.Node) -> None:
    """The activation of the dequantized values."""
    alpha = float(attribute(node, "alpha", 0.01))
    formulas: Mapping[str, Callable[[Expr], Expr]] = {
        "QLinearSigmoid": lambda x: unary("sigmoid", x),
        "QLinearLeakyRelu": lambda x: leaky_relu(x, alpha),
    }
    formula = formulas[node.op_type]
    quantize(scope, node, 3, lambda at: formula(real(scope, node, 0, at)))


@lowers("QLinearSoftmax", domain=MICROSOFT)
def lower_softmax(scope: Lowering, node: ir.Node) -> None:
    """Softmax along an axis, before opset 13 over all axes from it on."""
    shape = scope.fact(required(node, 0)).shape
    axis = normalize_axis(int(attribute(node, "axis", -1)), len(shape), node)
    axes = range(axis, len(shape)) if int(required_attribute(node, "opset")) < 13 else (axis,)
    rows = rows_of(scope, shape, lambda at: real(scope, node, 0, at), axes)
    quantize(scope, node, 3, softmax_of(rows))


@infers("QLinearConcat", domain=MICROSOFT)
def infer_concat(scope: Inference, node: ir.Node) -> list[Fact]:
    """The sum of the sizes along the axis; inputs are triples of a value, its scale and its zero point."""
    if len(node.inputs) < 5 or len(node.inputs) % 3 != 2:
        raise ModelError(f"{describe(node)}: each value needs a scale and a zero point")
    facts = [_require_byte(scope.fact(required(node, i)), node) for i in range(2, len(node.inputs), 3)]
    dtype, shape = require_same_dtype(facts, node), list(facts[0].shape)
    axis = normalize_axis(int(required_attribute(node, "axis")), len(shape), node)
    for fact in facts[1:]:
        require_rank(fact, len(shape), node, len(shape))
        for place, dim in enumerate(fact.shape):
            same = f"concatenated values agree in axis {place}"
            shape[place] = shape[place] + dim if place == axis else scope.same(shape[place], dim, node, same)
    return [Fact(dtype, tuple(shape))]


@lowers("QLinearConcat", domain=MICROSOFT)
def lower_concat(scope: Lowering, node: ir.Node) -> None:
    """The dequantized element of the input that contains the index."""
    positions = range(2, len(node.inputs), 3)
    axis = normalize_axis(int(required_attribute(node, "axis")), scope.fact(node.outputs[0]).rank, node)

    def body(at: Indices) -> Expr:
        start, parts = ZERO, list[tuple[Dim, Expr]]()
        for position in positions:
            moved = (*at[:axis], at[axis] - start, *at[axis + 1 :])
            start = start + scope.fact(required(node, position)).shape[axis]
            parts.append((start, real(scope, node, position, moved)))
        result = parts[-1][1]
        for end, part in reversed(parts[:-1]):
            result = select(at_least_zero(end - 1 - at[axis]), part, result)
        return result

    quantize(scope, node, 0, body)


# -------------------------------------------------------------------------------------------------------------- pooling


@infers("QLinearGlobalAveragePool", domain=MICROSOFT)
def infer_global_pool(scope: Inference, node: ir.Node) -> list[Fact]:
    """The shape with size 1 for spatial axes."""
    x = _require_byte(require_rank(scope.fact(required(node, 0)), 3, node), node)
    spatial = _spatial(node, x.rank)
    return [Fact(x.dtype, tuple(ONE if axis in spatial else dim for axis, dim in enumerate(x.shape)))]


def _spatial(node: ir.Node, rank: int) -> range:
    return range(1, rank - 1) if attribute(node, "channels_last", 0) else range(2, rank)


@lowers("QLinearGlobalAveragePool", domain=MICROSOFT)
def lower_global_pool(scope: Lowering, node: ir.Node) -> None:
    """The mean over the spatial axes."""
    shape = scope.fact(required(node, 0)).shape
    rows = rows_of(scope, shape, lambda at: real(scope, node, 0, at), _spatial(node, len(shape)))
    mean = rows.mean(rows.element, "mean")
    quantize(scope, node, 3, lambda at: mean.at(rows.row(at)))


# ------------------------------------------------------------------------------------------------------------- products


@infers("MatMulNBits", domain=MICROSOFT)
def infer_nbits(scope: Inference, node: ir.Node) -> list[Fact]:
    """[..., K] -> [..., N]; weights are bytes [N, blocks, block_size * bits / 8] with a scale for each block."""
    x = require_rank(scope.fact(required(node, 0)), 1, node)
    n, k, bits, block = _nbits(node)
    if attribute(node, "weight_prepacked", 0):
        raise UnsupportedError(f"{describe(node)}: prepacked weights are not supported yet.")
    if not x.dtype.is_float:
        raise ModelError(f"{describe(node)}: expected a floating-point input, got {x.dtype!r}")
    scope.same(x.shape[-1], as_dim(k), node, "the input has K columns")
    blocks = -(-k // block)
    bytes_of_zeros = -(-blocks * bits // 8)
    sizes = {1: n * blocks * (block * bits // 8), 2: n * blocks, 5: n}
    zeros = given(node, 3)
    if zeros is not None:
        sizes[3] = n * (bytes_of_zeros if scope.fact(zeros).dtype is DType.U8 else blocks)
    for position, size in sizes.items():
        if (value := given(node, position)) is not None:
            scope.same(product(scope.fact(value).shape), as_dim(size), node, f"input {position} has {size} elements")
    if scope.fact(required(node, 1)).dtype is not DType.U8:
        raise ModelError(f"{describe(node)}: the weights must be uint8")
    check_scale(scope, node, 2)
    if (groups := given(node, 4)) is not None:
        length = require_rank(scope.fact(groups), 1, node, 1).shape[0]
        if length.constant != blocks * block:
            scope.same(length, as_dim(k), node, "there is a group of each row")
        if zeros is not None and scope.fact(zeros).dtype is DType.U8:
            # ONNX Runtime takes them all for the middle of the range.
            raise UnsupportedError(f"{describe(node)}: packed zero points beside g_idx are not supported.")
    return [Fact(x.dtype, (*x.shape[:-1], as_dim(n)))]


def _nbits(node: ir.Node) -> tuple[int, int, int, int]:
    n, k, block = (int(required_attribute(node, name)) for name in ("N", "K", "block_size"))
    bits = int(attribute(node, "bits", 4))
    if bits not in (2, 4, 8):
        raise UnsupportedError(f"{describe(node)}: {bits} bits a weight are not supported yet; 2, 4 and 8 are.")
    if min(n, k) < 1 or block < 16 or block & (block - 1):
        raise ModelError(f"{describe(node)}: N, K and block_size {n}, {k}, {block} are none of a matrix in blocks")
    return n, k, bits, block


@lowers("MatMulNBits", domain=MICROSOFT)
def lower_nbits(scope: Lowering, node: ir.Node) -> None:
    """sum over k of x[..., k] * (q[n, k] - zero[n, group]) * scale[n, group]. The group of k is its block, or given by
    g_idx."""
    x, bias, groups = required(node, 0), given(node, 5), given(node, 4)
    n, k, bits, block = _nbits(node)
    dtype, blocks = scope.fact(x).dtype, -(-k // block)
    codes = _codes(scope, node, n, k, bits, blocks * block)
    zeros = _zeros(scope, node, n, bits, blocks)
    scales = emit(
        scope,
        (as_dim(n), as_dim(blocks)),
        lambda at: cast(_flat(scope, required(node, 2), at[0] * blocks + at[1]), DType.F32),
        "scales",
    )

    def weight(at: Indices) -> Expr:
        row, column = at
        group = column // block
        if groups is not None:
            group = Value(cast(scope.load(groups, (column,)), DType.I64), as_dim(blocks)).dim
        number = cast(codes.at(at), DType.F32)
        if zeros is not None:
            number = sub(number, cast(zeros.at((row, group)), DType.F32))
        return mul(number, scales.at((row, group)))

    weights = emit(scope, (as_dim(n), as_dim(k)), weight, "weights")
    shape = scope.fact(node.outputs[0]).shape

    def total(at: Indices) -> Expr:
        axis = Axis("k", as_dim(k))
        return contraction((axis,), scope.load(x, (*at[:-1], axis.dim)), cast(weights.at((at[-1], axis.dim)), dtype))

    made = emit(scope, shape, total, "product")
    define(
        scope, node.outputs[0], lambda at: made.at(at) if bias is None else add(made.at(at), scope.load(bias, at[-1:]))
    )


_CODES = {2: (DType.U2, DType.I2), 4: (DType.U4, DType.I4), 8: (DType.U8, DType.I8)}
"""The types of elements, by bits: with zero points, and without."""


def _codes(scope: Lowering, node: ir.Node, n: int, k: int, bits: int, row: int) -> Emitted:
    """[N, K] elements, of rows of so many; without zero points they are that much less, and signed."""
    plain, signed = _CODES[bits]

    def code(at: Indices) -> Expr:
        number = _field(scope, required(node, 1), at[0] * row + at[1], bits)
        if given(node, 3) is not None:
            return cast(number, plain)
        return cast(cast(sub(number, const(1 << (bits - 1), DType.I32)), DType.I8), signed)

    return emit(scope, (as_dim(n), as_dim(k)), code, "codes")


def _zeros(scope: Lowering, node: ir.Node, n: int, bits: int, blocks: int) -> Emitted | None:
    """[N, blocks] zero points: bytes of which each row has whole ones, or floats; None where there are none."""
    zeros = given(node, 3)
    if zeros is None:
        return None
    per_byte = 8 // bits
    packed = scope.fact(zeros).dtype is DType.U8

    def zero(at: Indices) -> Expr:
        row, group = at
        if not packed:
            return cast(_flat(scope, zeros, row * blocks + group), DType.F32)
        return cast(_field(scope, zeros, row * (-(-blocks // per_byte) * per_byte) + group, bits), DType.F32)

    return emit(scope, (as_dim(n), as_dim(blocks)), zero, "zeros")


def _flat(scope: Lowering, value: ir.Value, place: Dim) -> Expr:
    """An element by its linear index."""
    at = list[Dim]()
    for extent in reversed(scope.fact(value).shape[1:]):
        at.insert(0, place % extent)
        place = place // extent
    return scope.load(value, (place, *at))


def _field(scope: Lowering, value: ir.Value, place: Dim, bits: int) -> Expr:
    """A number of the given number of bits as int32, lowest bits of a byte first."""
    per_byte = 8 // bits
    byte = cast(_flat(scope, value, place // per_byte), DType.I32)
    if per_byte == 1:
        return byte
    moved = binary("shr", byte, cast(mul(index(place % per_byte), bits), DType.I32))
    return binary("bitand", moved, const((1 << bits) - 1, DType.I32))


@infers("DynamicQuantizeMatMul", "MatMulIntegerToFloat", domain=MICROSOFT)
def infer_to_float(scope: Inference, node: ir.Node) -> list[Fact]:
    """[..., M, K] x [K, N] -> float32 [..., M, N]"""
    a = require_rank(scope.fact(required(node, 0)), 2, node)
    b = _require_byte(require_rank(scope.fact(required(node, 1)), 2, node, 2), node)
    scope.same(a.shape[-1], b.shape[0], node, f"{describe(node)} sums over it")
    return [Fact(DType.F32, (*a.shape[:-1], b.shape[1]))]


@lowers("DynamicQuantizeMatMul", domain=MICROSOFT)
def lower_dynamic(scope: Lowering, node: ir.Node) -> None:
    """The product of the input, quantized dynamically to 8 bits, and the weights."""
    x = required(node, 0)
    shape = scope.fact(x).shape
    steps = steps_of(partial(emit, scope), shape, lambda at: scope.load(x, at))
    whole = emit(scope, shape, lambda at: steps.rounded(scope.load(x, at)), "quantized")
    centred = emit(scope, shape, lambda at: steps.from_zero(whole.at(at)), "rounded")
    _to_float(scope, node, centred, steps.size.at(()), 2, 3, 4)


@lowers("MatMulIntegerToFloat", domain=MICROSOFT)
def lower_to_float(scope: Lowering, node: ir.Node) -> None:
    """The product of the dequantized values, plus a bias."""
    x, zero = required(node, 0), given(node, 4)

    def centred(at: Indices) -> Expr:
        element = cast(scope.load(x, at), DType.F32)
        return element if zero is None else sub(element, _scalar(scope, zero, DType.F32))

    whole = emit(scope, scope.fact(x).shape, centred, "a")
    _to_float(scope, node, whole, _scalar(scope, required(node, 2), DType.F32), 3, 5, 6)


def _to_float(scope: Lowering, node: ir.Node, a: Emitted, a_scale: Expr, scale: int, zero: int, bias: int) -> None:
    """Defines the output as the product of a and the weights, minus their zero points, in units of both scales."""
    weights, zeros, added = required(node, 1), given(node, zero), given(node, bias)

    def weight(at: Indices) -> Expr:
        element = cast(scope.load(weights, at), DType.F32)
        return element if zeros is None else sub(element, cast(_column(scope, zeros, at[1]), DType.F32))

    centred = emit(scope, scope.fact(weights).shape, weight, "b")
    depth = scope.fact(weights).shape[0]

    def total(at: Indices) -> Expr:
        k = Axis("k", depth)
        return reduce("sum", (k,), mul(a.at((*at[:-1], k.dim)), centred.at((k.dim, at[-1]))))

    made = emit(scope, scope.fact(node.outputs[0]).shape, total, "product")

    def body(at: Indices) -> Expr:
        value = mul(made.at(at), mul(a_scale, cast(_column(scope, required(node, scale), at[-1]), DType.F32)))
        return value if added is None else add(value, scope.load(added, at[-1:]))

    define(scope, node.outputs[0], body)


def _column(scope: Lowering, value: ir.Value, column: Dim) -> Expr:
    """A number for all columns, or one for each."""
    shape = scope.fact(value).shape
    return scope.load(value, (ZERO if not shape or shape[0] is ONE else column,))

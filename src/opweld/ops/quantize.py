"""Quantized numbers: (q - zero point) * scale, with one scale for each tensor, channel or block.

q is an integer of 2 to 16 bits or a float of 4 or 8; only integers are rounded before the zero point is added.

Products of quantized values are sums of integers. They are computed in floats that hold each of those sums exactly: in
fp32 where the bound of the weights allows it, else in fp64 (`exact.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from opweld import ir
from opweld.errors import ModelError, UnsupportedError
from opweld.ops.arithmetic import add, div, larger, mul, smaller, sub
from opweld.ops.cast import converted
from opweld.ops.conv import convolution_shape, convolved
from opweld.ops.emitted import Indices, define, emit
from opweld.ops.exact import Operand, sum_dtype
from opweld.ops.fact import Fact
from opweld.ops.matmul import product_of, product_shape
from opweld.ops.operands import describe, given, normalize_axis, require_rank, required
from opweld.ops.registry import Inference, Lowering, attribute, infers, lowers
from opweld.ops.scales import check_scale
from opweld.tensor.dim import ONE, ZERO, Axis, Dim, ceildiv, floordiv
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, cast, const, load, unary

QUANTIZED = (
    *(DType.U8, DType.I8, DType.U16, DType.I16, DType.U4, DType.I4, DType.U2, DType.I2),
    *(DType.F8E4M3FN, DType.F8E4M3FNUZ, DType.F8E5M2, DType.F8E5M2FNUZ, DType.F4E2M1),
)


@dataclass(frozen=True)
class Scaling:
    """Scale and zero point of a value: which inputs of a node they are, and along which axis they are indexed."""

    scale: ir.Value
    zero: ir.Value | None
    axis: int
    block: int
    rank: int

    def _place(self, at: Indices) -> Indices:
        if self.rank == 0:
            return (ZERO,)  # unused by a scale without axes
        if self.block:
            return (*at[: self.axis], floordiv(at[self.axis], self.block), *at[self.axis + 1 :])
        return (at[self.axis],)

    def scale_at(self, scope: Lowering, at: Indices) -> Expr:
        """The scale of the element."""
        return scope.load(self.scale, self._place(at))

    def zero_at(self, scope: Lowering, at: Indices) -> Expr | None:
        """The zero point of the element; None where it is zero."""
        return None if self.zero is None else scope.load(self.zero, self._place(at))


def scaling_of(scope: Inference | Lowering, node: ir.Node, fact: Fact) -> Scaling:
    """The scaling of the first input, whose scale and zero point are the second and third."""
    value = required(node, 1)
    axis = int(attribute(node, "axis", 1 if fact.rank != 1 else 0))
    rank = scope.fact(value).rank
    block = int(attribute(node, "block_size", 0))
    if block < 0:
        raise ModelError(f"{describe(node)}: block_size must be positive, got {block}")
    if rank == 1 and scope.fact(value).shape[0] is ONE and not block:
        rank = 0
    if rank > 1 and not block:
        raise ModelError(f"{describe(node)}: a scale of rank {rank} needs a block_size")
    if block and rank != fact.rank:
        raise ModelError(f"{describe(node)}: blocks need a scale of rank {fact.rank}, not {rank}")
    return Scaling(value, given(node, 2), normalize_axis(axis, fact.rank, node) if rank else 0, block, rank)


def _check(scope: Inference, node: ir.Node, fact: Fact) -> Scaling:
    found = scaling_of(scope, node, fact)
    shape = scope.fact(found.scale).shape
    for axis, dim in enumerate(fact.shape) if found.block else ():
        whole = ceildiv(dim, found.block) if axis == found.axis else dim
        scope.same(shape[axis], whole, node, f"a scale for each block of {found.block} of axis {found.axis}")
    if found.rank == 1 and not found.block:
        scope.same(shape[0], fact.shape[found.axis], node, f"a scale for each element of axis {found.axis}")
    zero = None if found.zero is None else scope.fact(found.zero)
    if zero is not None and any(dim is not ONE for dim in zero.shape):
        if zero.rank != found.rank:
            raise ModelError(f"{describe(node)}: the zero point has rank {zero.rank}, the scale rank {found.rank}")
        for a, b in zip(zero.shape, shape, strict=True):
            scope.same(a, b, node, "a zero point for each scale")
    return found


def _named(node: ir.Node, name: str) -> DType | None:
    """The dtype that an attribute names; None where it is absent or 0."""
    code = int(attribute(node, name, 0))
    try:
        return DType.of_onnx(code) if code else None
    except ValueError as error:
        raise UnsupportedError(f"{describe(node)}: {error}") from error


def _dtype_of(node: ir.Node, zero: Fact | None) -> DType:
    named = _named(node, "output_dtype")
    if named is not None and zero is not None and named is not zero.dtype:
        raise ModelError(f"{describe(node)}: output_dtype is {named!r}, but the zero point is {zero.dtype!r}")
    dtype = named or (DType.U8 if zero is None else zero.dtype)
    if dtype not in QUANTIZED:
        raise UnsupportedError(f"{describe(node)}: quantizing to {dtype!r} is not supported yet")
    return dtype


def _precision(node: ir.Node, scale: DType) -> DType:
    """The dtype in which QuantizeLinear divides: the attribute `precision`, or the scale's, if it is a computing
    type."""
    named = _named(node, "precision")
    if named is not None and (not named.is_float or named.is_storage_only):
        raise ModelError(f"{describe(node)}: precision must be a float type to compute with, not {named!r}")
    if scale.is_integer:
        scale = DType.F64  # which holds the integer part of every quotient
    return named or (scale.computed if scale.is_storage_only else scale)


@infers("QuantizeLinear")
def infer_quantize(scope: Inference, node: ir.Node) -> list[Fact]:
    """The shape of the input; the dtype of the zero point, or `output_dtype`, or uint8."""
    fact = scope.fact(required(node, 0))
    _check(scope, node, fact)
    check_scale(scope, node, 1, divides=True)
    zero = given(node, 2)
    _precision(node, scope.fact(required(node, 1)).dtype)
    return [Fact(_dtype_of(node, None if zero is None else scope.fact(zero)), fact.shape)]


@lowers("QuantizeLinear")
def lower_quantize(scope: Lowering, node: ir.Node) -> None:
    """round(x / scale) + zero point, saturated; for float types rounded at the end only."""
    x = required(node, 0)
    fact = scope.fact(x)
    scaling = scaling_of(scope, node, fact)
    dtype, saturate = scope.fact(node.outputs[0]).dtype, bool(attribute(node, "saturate", 1))
    precision = _precision(node, scope.fact(scaling.scale).dtype)

    def body(at: Indices) -> Expr:
        quotient = div(cast(scope.load(x, at), precision), cast(scaling.scale_at(scope, at), precision))
        return quantized(quotient, scaling.zero_at(scope, at), dtype, saturate)

    define(scope, node.outputs[0], body)


def quantized(value: Expr, zero: Expr | None, dtype: DType, saturate: bool = True) -> Expr:
    """A float, rounded to the nearest even integer for integer types, plus the zero point, saturated."""
    if dtype.is_float:
        return converted(value if zero is None else add(value, cast(zero, value.dtype)), dtype, saturate)
    wide = DType.F64 if value.dtype is DType.F64 else DType.F32
    rounded = unary("round", cast(value, wide))
    if zero is not None:
        rounded = add(rounded, cast(zero, wide))
    least, greatest = dtype.limits
    return cast(smaller(larger(rounded, float(least)), float(greatest)), dtype)


@infers("DequantizeLinear")
def infer_dequantize(scope: Inference, node: ir.Node) -> list[Fact]:
    """The shape of the input; the dtype of the scale, or `output_dtype`."""
    fact = scope.fact(required(node, 0))
    scaling = _check(scope, node, fact)
    check_scale(scope, node, 1)
    dtype = _named(node, "output_dtype") or scope.fact(scaling.scale).dtype
    if dtype not in (DType.F32, DType.F16, DType.BF16):
        raise ModelError(f"{describe(node)}: output_dtype must be float, float16 or bfloat16, not {dtype!r}")
    return [Fact(dtype, fact.shape)]


@lowers("DequantizeLinear")
def lower_dequantize(scope: Lowering, node: ir.Node) -> None:
    """(x - zero point) * scale, in the dtype of the result"""
    x = required(node, 0)
    fact, dtype = scope.fact(x), scope.fact(node.outputs[0]).dtype
    scaling = scaling_of(scope, node, fact)
    # 32-bit integers are converted to float after the subtraction, since the conversion may round.
    wide = DType.F32 if fact.dtype.is_float else DType.I32

    def body(at: Indices) -> Expr:
        element, zero = cast(scope.load(x, at), wide), scaling.zero_at(scope, at)
        difference = element if zero is None else sub(element, cast(zero, wide))
        return mul(cast(difference, dtype), cast(scaling.scale_at(scope, at), dtype))

    define(scope, node.outputs[0], body)


# ----------------------------------------------------------------------------------------------- sums of products


def _centred(scope: Lowering, value: ir.Value, zero: ir.Value | None, axis: int, dtype: DType, hint: str) -> str:
    """The value minus its zero point, as floats; `axis` is the axis that indexes zero points of rank 1."""
    shape = scope.fact(value).shape

    def body(at: Indices) -> Expr:
        element = cast(scope.load(value, at), dtype)
        if zero is None:
            return element
        return sub(element, cast(scope.load(zero, (at[axis],)), dtype))

    return emit(scope, shape, body, hint).name


def _product(scope: Lowering, node: ir.Node, b_position: int, zeros: tuple[int, int]) -> tuple[tuple[Axis, ...], Expr]:
    """The matrix product of two inputs minus their zero points."""
    a, b = required(node, 0), required(node, b_position)
    x, w = scope.fact(a), scope.fact(b)
    one = Operand.of(scope, a, given(node, zeros[0]), max(0, x.rank - 2))
    other = Operand.of(scope, b, given(node, zeros[1]), w.rank - 1)
    dtype = sum_dtype(one, other, (max(0, w.rank - 2),))
    left = _centred(scope, a, given(node, zeros[0]), one.axis, dtype, "a")
    right = _centred(scope, b, given(node, zeros[1]), other.axis, dtype, "b")

    def element(name: str, shape: Sequence[Dim], at: Sequence[Dim]) -> Expr:
        own = zip(shape, at[len(at) - len(shape) :], strict=True)
        return load(name, dtype, tuple(ZERO if dim is ONE else i for dim, i in own))

    out = scope.fact(node.outputs[0]).shape
    return product_of(out, x, w, lambda at: element(left, x.shape, at), lambda at: element(right, w.shape, at))


def _product_fact(scope: Inference, node: ir.Node, b_position: int, dtype: DType) -> list[Fact]:
    a, b = (require_rank(scope.fact(required(node, position)), 1, node) for position in (0, b_position))
    return [Fact(dtype, product_shape(scope, node, a, b))]


@infers("MatMulInteger")
def infer_matmul_integer(scope: Inference, node: ir.Node) -> list[Fact]:
    """As MatMul, of 8-bit integers to int32."""
    return _product_fact(scope, node, 1, DType.I32)


@lowers("MatMulInteger")
def lower_matmul_integer(scope: Lowering, node: ir.Node) -> None:
    """sum over k of (a[..., m, k] - zero[m]) * (b[..., k, n] - zero[n])"""
    axes, total = _product(scope, node, 1, (2, 3))
    scope.result(node.outputs[0], axes, cast(total, DType.I32))


@infers("QLinearMatMul")
def infer_qlinear_matmul(scope: Inference, node: ir.Node) -> list[Fact]:
    """As MatMul, of quantized values; inputs: a, its scale, its zero point, the same of b, those of the result."""
    _check_scales(scope, node)
    return _product_fact(scope, node, 3, scope.fact(required(node, 7)).dtype)


def _check_scales(scope: Inference, node: ir.Node) -> None:
    """Those of both operands and of the result."""
    check_scale(scope, node, 1)
    check_scale(scope, node, 4)
    check_scale(scope, node, 6, divides=True)


@lowers("QLinearMatMul")
def lower_qlinear_matmul(scope: Lowering, node: ir.Node) -> None:
    """The product of the dequantized values, quantized again."""
    out = scope.fact(node.outputs[0])
    axes, total = _product(scope, node, 3, (2, 5))
    product_ = scope.emit(axes, total, "product")
    rows, columns = max(0, len(out.shape) - 2), len(out.shape) - 1

    def scale(position: int, at: Indices, axis: int) -> Expr:
        return _scale(scope, required(node, position), at[axis] if at else ZERO)

    def body(at: Indices) -> Expr:
        factor = div(mul(scale(1, at, rows), scale(4, at, columns)), scale(6, at, columns))
        value = mul(cast(load(product_, total.dtype, at), factor.dtype), factor)
        return quantized(value, scope.load(required(node, 7), (ZERO,) * scope.fact(required(node, 7)).rank), out.dtype)

    define(scope, node.outputs[0], body)


def _scale(scope: Lowering, value: ir.Value, place: Dim) -> Expr:
    """The scale of the tensor, or of a position along an axis."""
    return cast(scope.load(value, (place,)), DType.F32)


def _infer_conv(scope: Inference, node: ir.Node, weights: int, dtype: DType) -> list[Fact]:
    x = require_rank(scope.fact(required(node, 0)), 3, node)
    w = require_rank(scope.fact(required(node, weights)), x.rank, node, x.rank)
    return [Fact(dtype, convolution_shape(scope, node, x, w))]


@infers("ConvInteger")
def infer_conv_integer(scope: Inference, node: ir.Node) -> list[Fact]:
    """As Conv, of 8-bit integers to int32."""
    return _infer_conv(scope, node, 1, DType.I32)


@infers("QLinearConv")
def infer_qlinear_conv(scope: Inference, node: ir.Node) -> list[Fact]:
    """As Conv, of quantized values; inputs: x, its scale, its zero point, the same of w, those of the result, bias."""
    _check_scales(scope, node)
    return _infer_conv(scope, node, 3, scope.fact(required(node, 7)).dtype)


def _convolved(
    scope: Lowering, node: ir.Node, out: tuple[Dim, ...], weights: int, zeros: tuple[int, int]
) -> tuple[tuple[Axis, ...], Expr]:
    """The sum of products of a convolution; padding is the zero point."""
    x_value, w_value = required(node, 0), required(node, weights)
    x, w = scope.fact(x_value), scope.fact(w_value)
    one, other = (
        Operand.of(scope, value, given(node, zero), 0) for value, zero in zip((x_value, w_value), zeros, strict=True)
    )
    dtype = sum_dtype(one, other, range(1, w.rank))
    left = _centred(scope, x_value, given(node, zeros[0]), 0, dtype, "x")
    right = _centred(scope, w_value, given(node, zeros[1]), 0, dtype, "w")

    def data(at: Sequence[Dim], guards: Sequence[Dim]) -> Expr:
        return load(left, dtype, tuple(at), tuple(guards), const(0, dtype) if guards else None)

    return convolved(node, out, x, w, data, lambda at: load(right, dtype, tuple(at)))


@lowers("ConvInteger")
def lower_conv_integer(scope: Lowering, node: ir.Node) -> None:
    """Conv of the values minus their zero points."""
    out = scope.fact(node.outputs[0]).shape
    axes, total = _convolved(scope, node, out, 1, (2, 3))
    scope.result(node.outputs[0], axes, cast(total, DType.I32))


@lowers("QLinearConv")
def lower_qlinear_conv(scope: Lowering, node: ir.Node) -> None:
    """Conv of the dequantized values, quantized again; the bias is int32, in units of the product of both scales."""
    out = scope.fact(node.outputs[0])
    axes, total = _convolved(scope, node, out.shape, 3, (2, 5))
    dtype = total.dtype
    product_, bias = scope.emit(axes, total, "product"), given(node, 8)

    def body(at: Indices) -> Expr:
        value = load(product_, dtype, at)
        if bias is not None:
            value = add(value, cast(scope.load(bias, (at[1],)), dtype))
        factor = div(
            mul(_scale(scope, required(node, 1), ZERO), _scale(scope, required(node, 4), at[1])),
            _scale(scope, required(node, 6), ZERO),
        )
        zero = required(node, 7)
        shifted = scope.load(zero, (ZERO,) * scope.fact(zero).rank)
        return quantized(mul(cast(value, factor.dtype), factor), shifted, out.dtype)

    define(scope, node.outputs[0], body)

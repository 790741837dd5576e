"""Normalisations. Each intermediate is a tensor of its own, which fusion can place.

The variance is the mean square of the elements minus their rounded mean, never E[x^2] - E[x]^2, which cancels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from opweld import ir
from opweld.errors import ModelError
from opweld.ops.arithmetic import add, apply, div, mul, root, square, sub, where, widen
from opweld.ops.emitted import Body, Emitted, Indices, define, emit
from opweld.ops.fact import Fact
from opweld.ops.operands import (
    describe,
    given,
    known_numbers,
    normalize_axes,
    normalize_axis,
    require_float,
    require_rank,
    required,
    wanted,
)
from opweld.ops.pool import norm_parts
from opweld.ops.registry import Inference, Lowering, attribute, infers, lowers, required_attribute
from opweld.ops.rows import Rows, rows_along, rows_of_groups
from opweld.tensor.dim import ONE, Axis, as_dim, floordiv, mod
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, cast, reduce, unary


def _epsilon(node: ir.Node) -> float:
    return float(attribute(node, "epsilon", 1e-5))


@infers("BatchNormalization")
def infer_batch_normalization(scope: Inference, node: ir.Node) -> list[Fact]:
    """The fact of the input, in training also new statistics; all statistics have one element for each channel."""
    x = require_float(require_rank(scope.fact(required(node, 0)), 2, node), node)
    for position in range(1, 5):
        fact = require_rank(scope.fact(required(node, position)), 1, node, 1)
        scope.same(fact.shape[0], x.shape[1], node, f"{describe(node)} has a statistic for each channel")
    training = bool(attribute(node, "training_mode", 0))
    if not training and any(wanted(node, i) is not None for i in range(1, len(node.outputs))):
        raise ModelError(f"{describe(node)}: it has more than one output in training mode only")
    statistics = [scope.fact(required(node, position)) for position in (3, 4)] if training else []
    return [Fact(x.dtype, x.shape), *(Fact(fact.dtype, fact.shape) for fact in statistics)]


@lowers("BatchNormalization")
def lower_batch_normalization(scope: Lowering, node: ir.Node) -> None:
    """x * factor + shift with factor = scale / sqrt(variance + epsilon) and shift = bias - mean * factor."""
    if attribute(node, "training_mode", 0):
        return _lower_training(scope, node)
    x = required(node, 0)
    factor, shift = _affine_constants(scope, node) or _affine_tensors(scope, node)

    def body(i: Indices) -> Expr:
        return add(mul(widen(scope.load(x, i)), factor.at(i[1:2])), shift.at(i[1:2]))

    return define(scope, node.outputs[0], body)


def _lower_training(scope: Lowering, node: ir.Node) -> None:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias with the statistics of the batch; running statistics are
    updated by momentum."""
    x, scale, bias = (required(node, position) for position in range(3))
    rows = rows_along(scope, x, [axis for axis in range(scope.fact(x).rank) if axis != 1])
    centred = rows.centred()
    deviation, inverse = centred.deviation, rows.inverse_root(centred.variance, _epsilon(node))

    def body(i: Indices) -> Expr:
        scaled = mul(mul(deviation.at(i), inverse.at(i[1:2])), cast(scope.load(scale, i[1:2]), deviation.dtype))
        return add(scaled, cast(scope.load(bias, i[1:2]), deviation.dtype))

    define(scope, node.outputs[0], body)
    momentum = float(attribute(node, "momentum", 0.9))
    for position, found in ((1, centred.mean), (2, centred.variance)):
        running, output = required(node, position + 2), wanted(node, position)
        if output is not None:
            _define_running(scope, output, running, found, momentum)


def _define_running(scope: Lowering, output: ir.Value, running: ir.Value, found: Emitted, momentum: float) -> None:
    def body(i: Indices) -> Expr:
        return add(mul(cast(scope.load(running, i), found.dtype), momentum), mul(found.at(i), 1 - momentum))

    define(scope, output, body)


def _affine_constants(scope: Lowering, node: ir.Node) -> tuple[Emitted, Emitted] | None:
    """Factor and shift computed in float64 and rounded once, if all statistics are known."""
    arrays = [known_numbers(scope, required(node, position)) for position in range(1, 5)]
    known = [np.asarray(array, np.float64) for array in arrays if array is not None]
    if len(known) < 4:
        return None
    scale, bias, mean, variance = known
    factor = scale / np.sqrt(variance + _epsilon(node))
    dtype = DType.F64 if scope.fact(node.inputs[0]).dtype is DType.F64 else DType.F32
    return (
        Emitted(scope.constant(factor.astype(dtype.numpy), "factor"), dtype),
        Emitted(scope.constant((bias - mean * factor).astype(dtype.numpy), "shift"), dtype),
    )


def _affine_tensors(scope: Lowering, node: ir.Node) -> tuple[Emitted, Emitted]:
    """Factor and shift as tensors."""
    scale, bias, mean, variance = (required(node, position) for position in range(1, 5))
    channels = scope.fact(node.inputs[0]).shape[1:2]

    def factor_of(i: Indices) -> Expr:
        return mul(widen(scope.load(scale, i)), unary("rsqrt", add(widen(scope.load(variance, i)), _epsilon(node))))

    factor = emit(scope, channels, factor_of, "factor")

    def shift_of(i: Indices) -> Expr:
        return sub(widen(scope.load(bias, i)), mul(widen(scope.load(mean, i)), factor.at(i)))

    return factor, emit(scope, channels, shift_of, "shift")


@infers("InstanceNormalization", "GroupNormalization")
def infer_channel_normalization(scope: Inference, node: ir.Node) -> list[Fact]:
    """The fact of the input; scale and bias have one element for each channel."""
    x = require_float(require_rank(scope.fact(required(node, 0)), 2, node), node)
    for position in (1, 2):
        fact = require_rank(scope.fact(required(node, position)), 1, node, 1)
        scope.same(fact.shape[0], x.shape[1], node, f"{describe(node)} has a scale and a bias a channel")
    if node.op_type == "GroupNormalization":
        groups = int(required_attribute(node, "num_groups"))
        if groups < 1 or x.shape[1].constant is None or x.shape[1].constant % groups:
            raise ModelError(f"{describe(node)}: {x.shape[1]} channels do not split into {groups} groups")
    return [Fact(x.dtype, x.shape)]


@lowers("InstanceNormalization", "GroupNormalization")
def lower_channel_normalization(scope: Lowering, node: ir.Node) -> None:
    """(x - mean) / sqrt(variance + epsilon) over the elements of a group of channels, then scale and bias for each
    channel. InstanceNormalization has groups of one channel."""
    x, scale, bias = (required(node, position) for position in range(3))
    channels = scope.fact(x).shape[1]
    instance = node.op_type == "InstanceNormalization"
    groups = channels if instance else as_dim(required_attribute(node, "num_groups"))
    size = ONE if instance else floordiv(channels, groups)
    rows = rows_of_groups(scope, x, groups, size)
    found = rows.centred()
    inverse = rows.inverse_root(found.variance, _epsilon(node))

    def body(i: Indices) -> Expr:
        channel = (i[1] * size + i[2],)
        normal = mul(found.deviation.at(i), inverse.at(rows.row(i)))
        return add(mul(normal, widen(scope.load(scale, channel))), widen(scope.load(bias, channel)))

    whole = rows.per_element(body, "grouped")
    define(scope, node.outputs[0], lambda i: whole.at((i[0], i[1] // size, mod(i[1], size), *i[2:])))


@infers("LayerNormalization", "RMSNormalization")
def infer_layer_normalization(scope: Inference, node: ir.Node) -> list[Fact]:
    """The fact of the input; the statistics have size 1 from the axis on."""
    x = require_float(require_rank(scope.fact(required(node, 0)), 1, node), node)
    axis = normalize_axis(int(attribute(node, "axis", -1)), x.rank, node)
    for value in (required(node, 1), given(node, 2)):
        if value is not None:
            shape = scope.broadcast([x.shape, scope.fact(value).shape], node)
            if len(shape) != x.rank:
                raise ModelError(f"{describe(node)}: {value.name!r} must broadcast to the input {list(x.shape)}")
            for extent, size in zip(shape, x.shape, strict=True):
                scope.same(extent, size, node, f"{describe(node)}: scale and bias broadcast to the input")
    statistic = Fact(DType.F32, (*x.shape[:axis], *(ONE for _ in x.shape[axis:])))
    return [Fact(x.dtype, x.shape), *(statistic for _ in node.outputs[1:])]


@lowers("LayerNormalization", "RMSNormalization")
def lower_layer_normalization(scope: Lowering, node: ir.Node) -> None:
    """(x - mean) / sqrt(variance + epsilon) * scale + bias over the last axes; RMSNormalization has no mean."""
    x, scale, bias = required(node, 0), required(node, 1), given(node, 2)
    rank = scope.fact(x).rank
    axis = normalize_axis(int(attribute(node, "axis", -1)), rank, node)
    rows = rows_along(scope, x, range(axis, rank))
    normal = normalized(rows, _epsilon(node), centred=node.op_type == "LayerNormalization")
    define(scope, node.outputs[0], scaled(scope, normal.element, scale, bias))
    for statistic, output in ((normal.mean, wanted(node, 1)), (normal.inverse, wanted(node, 2))):
        if statistic is not None and output is not None:
            define(scope, output, lambda i, statistic=statistic: statistic.at(i[:axis]))


@dataclass(frozen=True)
class Normal:
    """Rows with variance one: an element of them, and the statistics of each row; `mean` is None where it is not
    subtracted."""

    element: Body
    mean: Emitted | None
    inverse: Emitted


def normalized(rows: Rows, epsilon: float, centred: bool) -> Normal:
    """(x - mean) / sqrt(variance + epsilon) of each row if centred, else x / sqrt(mean square + epsilon)."""
    if not centred:
        inverse = rows.inverse_root(rows.mean_square(rows.element), epsilon)
        return Normal(lambda i: mul(rows.element(i), inverse.at(rows.row(i))), None, inverse)
    found = rows.centred()
    inverse = rows.inverse_root(found.variance, epsilon)
    return Normal(lambda i: mul(found.deviation.at(i), inverse.at(rows.row(i))), found.mean, inverse)


def scaled(scope: Lowering, element: Body, scale: ir.Value, bias: ir.Value | None) -> Body:
    """The element times the scale, plus the bias, which broadcast to it."""

    def body(i: Indices) -> Expr:
        product = mul(element(i), widen(scope.load(scale, i)))
        return product if bias is None else add(product, widen(scope.load(bias, i)))

    return body


@infers("LpNormalization", "MeanVarianceNormalization", "LRN")
def infer_scaled(scope: Inference, node: ir.Node) -> list[Fact]:
    """The fact of the input."""
    x = require_float(require_rank(scope.fact(required(node, 0)), 1, node), node)
    return [Fact(x.dtype, x.shape)]


@lowers("LpNormalization")
def lower_lp_normalization(scope: Lowering, node: ir.Node) -> None:
    """x divided by the p-norm along an axis; zero where the norm is zero."""
    x = required(node, 0)
    axis = normalize_axis(int(attribute(node, "axis", -1)), scope.fact(x).rank, node)
    inner, outer = norm_parts(node, int(attribute(node, "p", 2)))
    rows = rows_along(scope, x, (axis,))
    total = rows.total("sum", lambda i: inner(rows.element(i)), "total")
    norm = rows.per_row(lambda row: outer(total.at(row)), "norm")

    def body(i: Indices) -> Expr:
        length = norm.at(rows.row(i))
        return where(apply("eq", length, 0), 0, div(rows.element(i), length))

    define(scope, node.outputs[0], body)


@lowers("MeanVarianceNormalization")
def lower_mean_variance(scope: Lowering, node: ir.Node) -> None:
    """(x - mean) / (sqrt(variance) + 1e-9) over the axes"""
    x = required(node, 0)
    axes = normalize_axes(attribute(node, "axes", None) or (0, 2, 3), scope.fact(x).rank, node)
    rows = rows_along(scope, x, axes)
    found = rows.centred()
    divisor = rows.per_row(lambda row: add(root(found.variance.at(row)), 1e-9), "divisor")
    define(scope, node.outputs[0], lambda i: div(found.deviation.at(i), divisor.at(rows.row(i))))


@lowers("LRN")
def lower_lrn(scope: Lowering, node: ir.Node) -> None:
    """x / (bias + alpha / size * sum of x^2 over `size` neighbouring channels) ** beta"""
    x = required(node, 0)
    fact = require_rank(scope.fact(x), 2, node)
    size = int(required_attribute(node, "size"))
    if size < 1:
        raise ModelError(f"{describe(node)}: size must be at least 1, got {size}")
    alpha, beta = float(attribute(node, "alpha", 1e-4)), float(attribute(node, "beta", 0.75))

    def squares(i: Indices) -> Expr:
        k = Axis("k", as_dim(size))
        channel = i[1] + k.dim - (size - 1) // 2
        guards = (channel, fact.shape[1] - 1 - channel)
        return reduce("sum", (k,), square(widen(scope.load(x, (i[0], channel, *i[2:]), guards))))

    total = emit(scope, fact.shape, squares, "total")

    def body(i: Indices) -> Expr:
        base = add(mul(total.at(i), alpha / size), float(attribute(node, "bias", 1.0)))
        return div(widen(scope.load(x, i)), apply("pow", base, beta))

    define(scope, node.outputs[0], body)

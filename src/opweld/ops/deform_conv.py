"""DeformConv: a convolution whose taps are moved, to positions between pixels, by a tensor of offsets."""

from __future__ import annotations

from opweld import ir
from opweld.errors import ModelError
from opweld.ops.arithmetic import accumulator, add, count, mul
from opweld.ops.conv import check_bias, convolution_axes, convolution_shape, group_of, grouped_channel, with_bias
from opweld.ops.emitted import Indices, emit
from opweld.ops.fact import Fact
from opweld.ops.grid_sample import sampled
from opweld.ops.matmul import contraction
from opweld.ops.operands import describe, given, require_float, require_rank, require_same_dtype, required
from opweld.ops.registry import Inference, Lowering, attribute, fresh_axes, infers, lowers
from opweld.ops.window import windows_of
from opweld.tensor.dim import Axis, Dim, as_dim, floordiv, product, row_major
from opweld.tensor.expr import Expr, cast


@infers("DeformConv")
def infer_deform_conv(scope: Inference, node: ir.Node) -> list[Fact]:
    """[N, C, spatial...] with weights [O, C / group, kernel...] -> [N, O, places...]"""
    x = require_float(require_rank(scope.fact(required(node, 0)), 3, node), node)
    w = require_rank(scope.fact(required(node, 1)), x.rank, node, x.rank)
    out = convolution_shape(scope, node, x, w)
    bias = given(node, 3)
    facts = [x, w, scope.fact(required(node, 2)), *([] if bias is None else [scope.fact(bias)])]
    if bias is not None:
        check_bias(scope, node, w.shape[0], 3)
    taps, offset_groups = product(w.shape[2:]), _offset_groups(node, x)
    moved = [(required(node, 2), taps * offset_groups * (x.rank - 2), "offsets")]
    mask = given(node, 4)
    if mask is not None:
        moved.append((mask, taps * offset_groups, "masks"))
        facts.append(scope.fact(mask))
    for value, channels, what in moved:
        fact = require_rank(scope.fact(value), x.rank, node, x.rank)
        for extent, expected in zip(fact.shape, (x.shape[0], channels, *out[2:]), strict=True):
            scope.same(extent, expected, node, f"{what} of each tap at each place")
    return [Fact(require_same_dtype(facts, node), out)]


def _offset_groups(node: ir.Node, x: Fact) -> int:
    groups, channels = int(attribute(node, "offset_group", 1)), x.shape[1].constant
    if groups < 1 or (channels is not None and channels % groups):
        raise ModelError(f"{describe(node)}: {x.shape[1]} channels do not split into {groups} offset groups")
    return groups


@lowers("DeformConv")
def lower_deform_conv(scope: Lowering, node: ir.Node) -> None:
    """The position of each tap; the interpolated element there times the mask; then the sum over channels and taps."""
    x, w, offset, mask = required(node, 0), required(node, 1), required(node, 2), given(node, 4)
    fact, weights, out = scope.fact(x), scope.fact(w), scope.fact(node.outputs[0]).shape
    dtype, group, offset_groups = accumulator(fact.dtype), group_of(node), _offset_groups(node, fact)
    windows, kernel = windows_of(node, fact.shape[2:], weights.shape[2:]), weights.shape[2:]
    rank, per_group = len(kernel), floordiv(fact.shape[1], offset_groups)

    def flat_tap(i: Indices) -> Dim:
        """The linear index of group and tap, for indices [n, offset group, taps..., positions...]."""
        return row_major(i[1 : 2 + rank], (offset_groups, *kernel))

    def places(axis: int, i: Indices) -> Expr:
        at = scope.load(offset, (i[0], flat_tap(i) * rank + axis, *i[2 + rank :]))
        return add(count(windows[axis].tap(i[2 + rank + axis], i[2 + axis]), dtype), cast(at, dtype))

    shape = (fact.shape[0], as_dim(offset_groups), *kernel, *out[2:])
    positions = [emit(scope, shape, lambda i, axis=axis: places(axis, i), "position") for axis in range(rank)]

    def column(i: Indices) -> Expr:
        n, channel, *rest = i
        at = (n, floordiv(channel, per_group), *rest)
        element = sampled(scope, x, (n, channel), [position.at(at) for position in positions])
        if mask is not None:
            element = mul(element, cast(scope.load(mask, (n, flat_tap(at), *i[2 + rank :])), dtype))
        return element

    columns = emit(scope, (*fact.shape[:2], *kernel, *out[2:]), column, "columns")
    axes = n, o, *places_out = convolution_axes(out)
    channel, taps = Axis("c", weights.shape[1]), fresh_axes(kernel, "k")
    source = grouped_channel(o.dim, channel.dim, weights.shape[1], weights.shape[0], group)
    tap_indices = tuple(tap.dim for tap in taps)
    data = columns.at((n.dim, source, *tap_indices, *(place.dim for place in places_out)))
    total = contraction((channel, *taps), data, scope.load(w, (o.dim, channel.dim, *tap_indices)))
    with_bias(scope, node, axes, cast(total, fact.dtype), 3)

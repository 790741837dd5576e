"""Convolution: the sum, over input channels and kernel taps, of products with a weight."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from opweld import ir
from opweld.errors import ModelError
from opweld.ops.arithmetic import add
from opweld.ops.fact import Fact
from opweld.ops.matmul import contraction
from opweld.ops.operands import describe, given, require_rank, require_same_dtype, required
from opweld.ops.registry import Inference, Lowering, attribute, infers, lowers
from opweld.ops.window import require_room, windows_of
from opweld.tensor.dim import Axis, Dim, as_dim, floordiv
from opweld.tensor.expr import Expr, load


@infers("Conv")
def infer_conv(scope: Inference, node: ir.Node) -> list[Fact]:
    """[N, C, spatial...] with weights [O, C / group, kernel...] -> [N, O, places...]"""
    x, w = convolution_operands(scope, node)
    check_bias(scope, node, w.shape[0])
    return [Fact(x.dtype, convolution_shape(scope, node, x, w))]


def convolution_shape(scope: Inference, node: ir.Node, x: Fact, w: Fact) -> tuple[Dim, ...]:
    """The shape of the result of a convolution; ModelError when the operands do not match."""
    group = group_of(node)
    scope.same(x.shape[1], w.shape[1] * group, node, f"input channels of {describe(node)} in {group} group(s)")
    if w.shape[0].constant is not None and w.shape[0].constant % group:
        raise ModelError(f"{describe(node)}: {w.shape[0]} output channels do not split into {group} groups")
    declared = attribute(node, "kernel_shape", None)
    if declared is not None and [as_dim(k) for k in declared] != list(w.shape[2:]):
        raise ModelError(f"{describe(node)}: kernel_shape {list(declared)} contradicts weights {list(w.shape)}")
    places = require_room(scope, node, windows_of(node, x.shape[2:], w.shape[2:]))
    return (x.shape[0], w.shape[0], *places)


@lowers("Conv")
def lower_conv(scope: Lowering, node: ir.Node) -> None:
    """sum over (channel, taps) of x[n, channel, places * stride + taps * dilation - pads] * w[o, channel, taps]"""
    x_value, w_value = required(node, 0), required(node, 1)
    x, w = scope.fact(x_value), scope.fact(w_value)
    axes, total = convolved(
        node,
        scope.fact(node.outputs[0]).shape,
        x,
        w,
        lambda at, guards: scope.load(x_value, at, guards),
        lambda at: scope.load(w_value, at),
    )
    with_bias(scope, node, axes, total)


def convolved(
    node: ir.Node,
    out: Sequence[Dim],
    x: Fact,
    w: Fact,
    data: Callable[[Sequence[Dim], Sequence[Dim]], Expr],
    weight: Callable[[Sequence[Dim]], Expr],
) -> tuple[tuple[Axis, ...], Expr]:
    """The axes and the body of a convolution. `data` takes indices and guards, and is zero where one fails."""
    windows = windows_of(node, x.shape[2:], w.shape[2:])
    axes = n, o, *places = convolution_axes(out)
    channel = Axis("c", w.shape[1])
    taps = spatial_axes("k", [window.kernel for window in windows])
    steps = [(window, place.dim, tap.dim) for window, place, tap in zip(windows, places, taps, strict=True)]
    source = grouped_channel(o.dim, channel.dim, w.shape[1], w.shape[0], group_of(node))
    indices = [n.dim, source, *(window.tap(place, tap) for window, place, tap in steps)]
    guards = [guard for window, place, tap in steps for guard in window.guards(place, tap)]
    tap_weight = weight([o.dim, channel.dim, *(tap.dim for tap in taps)])
    return axes, contraction((channel, *taps), data(indices, guards), tap_weight)


def convolution_operands(scope: Inference, node: ir.Node) -> tuple[Fact, Fact]:
    """The facts of the data and the weights; ModelError when their ranks or dtypes do not match."""
    x = require_rank(scope.fact(required(node, 0)), 3, node)
    w = require_rank(scope.fact(required(node, 1)), x.rank, node, x.rank)
    require_same_dtype([x, w], node)
    return x, w


def group_of(node: ir.Node) -> int:
    """The attribute group, at least one."""
    group = int(attribute(node, "group", 1))
    if group < 1:
        raise ModelError(f"{describe(node)}: group must be at least 1, got {group}")
    return group


def check_bias(scope: Inference, node: ir.Node, channels: Dim, position: int = 2) -> None:
    """The bias, when there is one, has one element an output channel."""
    bias = given(node, position)
    if bias is not None:
        fact = require_rank(scope.fact(bias), 1, node, 1)
        scope.same(fact.shape[0], channels, node, f"the bias of {describe(node)} has an element a channel")


def grouped_channel(o: Dim, c: Dim, channels_of_group: Dim, outputs: Dim, group: int) -> Dim:
    """The input channel of channel c in the group of output channel o. For a depthwise convolution it is o."""
    if group == 1:
        return c
    return floordiv(o, floordiv(outputs, group)) * channels_of_group + c


def spatial_axes(prefix: str, extents: Sequence[Dim]) -> list[Axis]:
    """One axis for each spatial dim, named by the prefix and x, y, z from the last to the first."""
    letters = "zyx"[-len(extents) :] if len(extents) <= 3 else "abcdefghijklmnopqrstuvwxyz"
    return [Axis(prefix + letter, extent) for letter, extent in zip(letters, extents, strict=False)]


def convolution_axes(shape: Sequence[Dim]) -> tuple[Axis, ...]:
    """The axes of a channels-first tensor: image n, channel o, places."""
    return (Axis("n", shape[0]), Axis("o", shape[1]), *spatial_axes("", shape[2:]))


def with_bias(scope: Lowering, node: ir.Node, axes: tuple[Axis, ...], body: Expr, position: int = 2) -> None:
    """Defines the output: the sum, or a tensor of its own for the sum, plus the bias."""
    bias = given(node, position)
    if bias is None:
        return scope.result(node.outputs[0], axes, body)
    product = scope.emit(axes, body, "product")
    axes = convolution_axes([axis.extent for axis in axes])
    total = load(product, body.dtype, tuple(axis.dim for axis in axes))
    return scope.result(node.outputs[0], axes, add(total, scope.load(bias, [axes[1].dim])))

"""Transposed convolution as a gather: for each output element, which inputs reach it through which taps."""

from __future__ import annotations

from dataclasses import dataclass

from opweld import ir
from opweld.errors import ModelError
from opweld.ops.conv import (
    check_bias,
    convolution_axes,
    convolution_operands,
    group_of,
    grouped_channel,
    spatial_axes,
    with_bias,
)
from opweld.ops.fact import Fact
from opweld.ops.matmul import contraction
from opweld.ops.operands import describe, required
from opweld.ops.registry import Inference, Lowering, attribute, infers, lowers
from opweld.ops.window import spatial_numbers
from opweld.tensor.dim import ZERO, Axis, Dim, as_dim, ceildiv, floordiv, maximum, mod


@dataclass(frozen=True)
class Spread:
    """One spatial axis: input i reaches the outputs i * stride + k * dilation - before, for every tap k < kernel."""

    size: Dim
    kernel: Dim
    stride: int
    dilation: int
    before: Dim
    out: Dim

    @property
    def steps(self) -> Dim:
        """How many taps are candidates for one output: without dilation only every stride-th can reach an input."""
        return ceildiv(self.kernel, self.stride) if self.dilation == 1 else self.kernel

    def reach(self, place: Dim, step: Dim) -> tuple[Dim, Dim, tuple[Dim, ...], tuple[Dim, ...]]:
        """(input, tap, guards of both, guards of the tap alone) of one step of the sum for an output place."""
        at = place + self.before
        if self.dilation == 1:
            source = floordiv(at, self.stride) - step
            tap = mod(at, self.stride) + step * self.stride
            of_tap = (self.kernel - 1 - tap,)
            return source, tap, (source, self.size - 1 - source, *of_tap), of_tap
        at = at - step * self.dilation
        source = floordiv(at, self.stride)
        return source, step, (source, self.size - 1 - source, -mod(at, self.stride)), ()


def spreads_of(node: ir.Node, sizes: tuple[Dim, ...], kernel: tuple[Dim, ...]) -> list[Spread]:
    """The geometry of each spatial axis, from pads or from the output shape attribute."""
    rank = len(sizes)
    strides = spatial_numbers(node, "strides", rank, 1)
    dilations = spatial_numbers(node, "dilations", rank, 1)
    extra = spatial_numbers(node, "output_padding", rank, 0)
    pads = spatial_numbers(node, "pads", 2 * rank, 0)
    auto = attribute(node, "auto_pad", "NOTSET")
    wanted = attribute(node, "output_shape", None)
    if auto not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise ModelError(f"{describe(node)}: auto_pad {auto!r} is none of NOTSET, VALID, SAME_UPPER, SAME_LOWER")
    if wanted is not None and len(wanted) not in (rank, rank + 2):
        raise ModelError(f"{describe(node)}: output_shape {list(wanted)} must have {rank} numbers")
    spreads: list[Spread] = []
    for axis, (size, taps, stride, dilation) in enumerate(zip(sizes, kernel, strides, dilations, strict=True)):
        full = (size - 1) * stride + (taps - 1) * dilation + 1 + extra[axis]
        before, after = as_dim(pads[axis]), as_dim(pads[rank + axis])
        if wanted is not None or auto.startswith("SAME"):
            out = size * stride if wanted is None else as_dim(wanted[axis - rank])
            before = _split(full - out, upper=auto == "SAME_UPPER")
        else:
            out = full if auto == "VALID" else full - before - after
            before = ZERO if auto == "VALID" else before
        spreads.append(Spread(size, taps, stride, dilation, before, out))
    return spreads


def _split(total: Dim, upper: bool) -> Dim:
    """The padding before the data when `total` elements are cropped in all: the smaller half with SAME_UPPER. A
    negative total means that the output is longer than what the inputs reach, and nothing is cropped."""
    total = maximum(total, 0)
    return floordiv(total, 2) if upper else total - floordiv(total, 2)


@infers("ConvTranspose")
def infer_conv_transpose(scope: Inference, node: ir.Node) -> list[Fact]:
    """[N, C, spatial...] with weights [C, O / group, kernel...] -> [N, O, places...]"""
    x, w = convolution_operands(scope, node)
    scope.same(x.shape[1], w.shape[0], node, f"input channels of {describe(node)}")
    outputs = w.shape[1] * group_of(node)
    check_bias(scope, node, outputs)
    places = [spread.out for spread in spreads_of(node, x.shape[2:], w.shape[2:])]
    for place in places:
        scope.at_least(place, 1, node, f"{describe(node)} must have an output")
    return [Fact(x.dtype, (x.shape[0], outputs, *places))]


@lowers("ConvTranspose")
def lower_conv_transpose(scope: Lowering, node: ir.Node) -> None:
    """sum over (channel, taps that reach an input) of x[n, channel, sources] * w[channel, o, taps]. With kernel ==
    stride and no padding each output has exactly one tap, and the sum is over channels alone."""
    x_value, w_value = required(node, 0), required(node, 1)
    x, w = scope.fact(x_value), scope.fact(w_value)
    group = group_of(node)
    spreads = spreads_of(node, x.shape[2:], w.shape[2:])
    axes = n, o, *places = convolution_axes(scope.fact(node.outputs[0]).shape)
    channels = floordiv(w.shape[0], group)
    channel = Axis("c", channels)
    steps = spatial_axes("k", [spread.steps for spread in spreads])
    zero = {axis: ZERO for axis in steps if axis.extent.constant == 1}
    reached = [
        spread.reach(place.dim, zero.get(step, step.dim))
        for spread, place, step in zip(spreads, places, steps, strict=True)
    ]
    source = grouped_channel(o.dim, channel.dim, channels, axes[1].extent, group)
    data = scope.load(x_value, [n.dim, source, *(at for at, _, _, _ in reached)], [g for r in reached for g in r[2]])
    output = o.dim if group == 1 else mod(o.dim, w.shape[1])
    weight = scope.load(
        w_value, [source, output, *(tap for _, tap, _, _ in reached)], [g for r in reached for g in r[3]]
    )
    with_bias(scope, node, axes, contraction((channel, *steps), data, weight))

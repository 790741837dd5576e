"""Col2Im: sums the columns of sliding blocks into an image, as a gather from each element of the image."""

from __future__ import annotations

from opweld import ir
from opweld.errors import ModelError
from opweld.ops.arithmetic import widen
from opweld.ops.conv import convolution_axes, spatial_axes
from opweld.ops.conv_transpose import Spread
from opweld.ops.fact import Fact
from opweld.ops.known import required_dims
from opweld.ops.operands import describe, require_rank, required
from opweld.ops.registry import Inference, Lowering, infers, lowers
from opweld.ops.window import spatial_numbers
from opweld.tensor.dim import ONE, ZERO, floordiv, product, row_major
from opweld.tensor.expr import cast, reduce


def _spreads(scope: Inference | Lowering, node: ir.Node) -> list[Spread]:
    """For each axis of the image, which blocks cover an element."""
    image, block = (required_dims(scope, node, position, "a shape") for position in (1, 2))
    rank = len(image)
    if not rank or len(block) != rank:
        raise ModelError(f"{describe(node)}: an image of {rank} axes does not match blocks of {len(block)}")
    strides, dilations = spatial_numbers(node, "strides", rank, 1), spatial_numbers(node, "dilations", rank, 1)
    pads = spatial_numbers(node, "pads", 2 * rank, 0)
    return [
        Spread(
            floordiv(size + pads[axis] + pads[rank + axis] - (taps - 1) * dilations[axis] - 1, strides[axis]) + 1,
            taps,
            strides[axis],
            dilations[axis],
            ZERO + pads[axis],
            size,
        )
        for axis, (size, taps) in enumerate(zip(image, block, strict=True))
    ]


@infers("Col2Im")
def infer_col2im(scope: Inference, node: ir.Node) -> list[Fact]:
    """[N, C * taps, blocks] -> [N, C, image...]"""
    x = require_rank(scope.fact(required(node, 0)), 3, node, 3)
    spreads = _spreads(scope, node)
    for spread in spreads:
        scope.at_least(spread.kernel, 1, node, "a block is not empty")
        scope.at_least(spread.size, 1, node, "a block fits into the image")
    taps = product(spread.kernel for spread in spreads)
    channels = floordiv(x.shape[1], taps)
    scope.same(x.shape[1], channels * taps, node, "a column holds all taps of each channel")
    scope.same(x.shape[2], product(spread.size for spread in spreads), node, "there is a column for each block")
    return [Fact(x.dtype, (x.shape[0], channels, *(spread.out for spread in spreads)))]


@lowers("Col2Im")
def lower_col2im(scope: Lowering, node: ir.Node) -> None:
    """The sum, over the taps that reach an element, of the columns of their blocks."""
    x = required(node, 0)
    spreads = _spreads(scope, node)
    axes = n, c, *places = convolution_axes(scope.fact(node.outputs[0]).shape)
    steps = spatial_axes("k", [spread.steps for spread in spreads])
    zero = {axis: ZERO for axis in steps if axis.extent is ONE}
    reached = [
        spread.reach(place.dim, zero.get(step, step.dim))
        for spread, place, step in zip(spreads, places, steps, strict=True)
    ]
    block = row_major([source for source, _, _, _ in reached], [spread.size for spread in spreads])
    tap = row_major([tap for _, tap, _, _ in reached], [spread.kernel for spread in spreads])
    taps = product(spread.kernel for spread in spreads)
    guards = [guard for _, _, both, _ in reached for guard in both]
    element = scope.load(x, (n.dim, c.dim * taps + tap, block), guards)
    total = reduce("sum", tuple(steps), widen(element))
    scope.result(node.outputs[0], axes, cast(total, element.dtype))

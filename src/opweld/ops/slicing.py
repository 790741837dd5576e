"""Slice and Pad: parts of a value, and a value with more around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from opweld.errors import ModelError
from opweld.ops.emitted import Indices, define
from opweld.ops.fact import Fact
from opweld.ops.known import required_dims, settle_axes
from opweld.ops.operands import describe, given, known_integers, normalize_axis, require_same_dtype, required
from opweld.ops.registry import Inference, Lowering, attribute, infers, lowers
from opweld.tensor.dim import ZERO, Dim, as_dim, ceildiv, maximum, minimum, mod, nonnegative, product
from opweld.tensor.expr import Expr, const

END = (1 << 31) - 1
"""Bounds from here on mean "to the end", as exporters write it."""

LARGE = 1 << 20
"""A dynamic dim is assumed not to exceed a constant bound from here on, rather than clamped at run time."""


@dataclass(frozen=True)
class Span:
    """Elements start, start + step, ... of an axis, `length` of them, if the margins are all >= 0."""

    start: Dim
    length: Dim
    step: int
    margins: tuple[tuple[Dim, str], ...] = ()


def span_of(extent: Dim, start: Dim, end: Dim, step: int) -> Span:
    """What a slice with these bounds takes of an axis. Where clamping hangs on dynamic sizes, it is a margin."""
    size, first, last = extent.constant, start.constant, end.constant
    if size is not None and first is not None and last is not None:
        stop = None if step < 0 and last < -size else last
        taken = range(*slice(first, stop, step).indices(size))
        return Span(as_dim(taken.start), as_dim(len(taken)), step)
    margins: list[tuple[Dim, str]] = []
    lowest, highest = (0, extent) if step > 0 else (-1, extent - 1)
    begin = _bound(extent, start, as_dim(0), highest, margins, "start", exact=True)
    stop = _bound(extent, end, as_dim(lowest), extent if step > 0 else extent - 1, margins, "end", exact=step < 0)
    distance = stop - begin if step > 0 else begin - stop
    if not nonnegative(distance):
        margins.append((distance, "the slice is not empty"))
    return Span(begin, ceildiv(distance, abs(step)), step, tuple(margins))


def _bound(
    extent: Dim, bound: Dim, lowest: Dim, highest: Dim, margins: list[tuple[Dim, str]], what: str, exact: bool
) -> Dim:
    """A bound counted from the front and clamped to [lowest, highest]; `exact` assumes rather than clamps."""
    value = bound.constant
    if value is not None and value >= END:
        return highest
    if value is not None and value <= -END:
        return lowest
    if nonnegative(-bound - 1):
        bound = extent + bound
    if not nonnegative(bound - lowest):
        if lowest.constant == -1:
            # Backwards, an end before the axis is common: "the last nine", of fewer.
            bound = maximum(bound, lowest)
        else:
            margins.append((bound - lowest, f"its {what} is within the axis"))
    if nonnegative(highest - bound):
        return bound
    if value is not None and value >= LARGE:
        margins.append((bound - highest, f"its {what} is within the axis"))
        return highest
    if exact or extent.constant is not None:
        margins.append((highest - bound, f"its {what} is within the axis"))
        return bound
    return minimum(bound, highest)


def _spans(scope: Inference | Lowering, node: ir.Node, shape: Sequence[Dim]) -> dict[int, Span]:
    starts, ends = required_dims(scope, node, 1, "the starts"), required_dims(scope, node, 2, "the ends")
    axes = known_integers(scope, node, 3, "the axes") or tuple(range(len(starts)))
    steps = known_integers(scope, node, 4, "the steps") or (1,) * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise ModelError(f"{describe(node)}: starts, ends, axes and steps must have one length")
    if 0 in steps:
        raise ModelError(f"{describe(node)}: a step must not be 0")
    places = [normalize_axis(axis, len(shape), node) for axis in axes]
    if len(set(places)) < len(places):
        raise ModelError(f"{describe(node)}: axes {list(axes)} name one axis twice")
    return {
        axis: span_of(shape[axis], start, end, step)
        for axis, start, end, step in zip(places, starts, ends, steps, strict=True)
    }


@infers("Slice")
def infer_slice(scope: Inference, node: ir.Node) -> list[Fact]:
    """The lengths of the slices; bounds that hang on dynamic sizes are assumed to lie within the axis."""
    fact = scope.fact(required(node, 0))
    settle_axes(scope, node, 3, fact.rank)
    shape = list(fact.shape)
    for axis, span in _spans(scope, node, shape).items():
        for margin, why in span.margins:
            scope.at_least(margin, 0, node, why)
        shape[axis] = span.length
    return [Fact(fact.dtype, tuple(shape))]


@lowers("Slice")
def lower_slice(scope: Lowering, node: ir.Node) -> None:
    """The input at start + step * index along each sliced axis."""
    x = required(node, 0)
    shape = scope.fact(x).shape
    spans = _spans(scope, node, shape)
    if shape == scope.fact(node.outputs[0]).shape and all(span.step == 1 for span in spans.values()):
        scope.alias(node.outputs[0], scope.tensor(x))
        return

    def body(at: Indices) -> Expr:
        moved = [spans[a].start + i * spans[a].step if a in spans else i for a, i in enumerate(at)]
        return scope.load(x, moved)

    define(scope, node.outputs[0], body)


def _pads(scope: Inference | Lowering, node: ir.Node, rank: int) -> list[tuple[Dim, Dim]]:
    """Elements before and after, for each axis; negative ones crop."""
    pads = required_dims(scope, node, 1, "the pads")
    axes = known_integers(scope, node, 3, "the axes")
    places = range(rank) if axes is None else [normalize_axis(axis, rank, node) for axis in axes]
    if len(pads) != 2 * len(places):
        raise ModelError(f"{describe(node)}: expected {2 * len(places)} pads, got {len(pads)}")
    result = [(ZERO, ZERO)] * rank
    for position, axis in enumerate(places):
        result[axis] = (pads[position], pads[position + len(places)])
    return result


@infers("Pad")
def infer_pad(scope: Inference, node: ir.Node) -> list[Fact]:
    """Every dim with its pads added. A reflection must fit into the axis."""
    fact = scope.fact(required(node, 0))
    settle_axes(scope, node, 3, fact.rank)
    mode = attribute(node, "mode", "constant")
    if mode not in ("constant", "edge", "reflect", "wrap"):
        raise ModelError(f"{describe(node)}: pad mode {mode!r} is not defined")
    fill = given(node, 2)
    if fill is not None:
        value = scope.fact(fill)
        require_same_dtype([fact, value], node)
        if product(value.shape).constant != 1:
            raise ModelError(f"{describe(node)}: the padded value must be one number, got shape {list(value.shape)}")
    shape: list[Dim] = []
    for axis, (dim, (before, after)) in enumerate(zip(fact.shape, _pads(scope, node, fact.rank), strict=True)):
        for pad in (before, after):
            if mode == "reflect" and pad is not ZERO:
                scope.at_least(dim - 1 - pad, 0, node, f"axis {axis} is longer than its reflection")
            elif mode in ("edge", "wrap") and pad is not ZERO:
                scope.at_least(dim, 1, node, f"padded axis {axis} is not empty")
        total = dim + before + after
        if not nonnegative(total):
            scope.at_least(total, 0, node, f"axis {axis} after cropping")
        shape.append(total)
    return [Fact(fact.dtype, tuple(shape))]


@lowers("Pad")
def lower_pad(scope: Lowering, node: ir.Node) -> None:
    """The input where the index is inside of it; outside, a constant, or the element that the mode says."""
    x, mode = required(node, 0), attribute(node, "mode", "constant")
    fact = scope.fact(x)
    pads = _pads(scope, node, fact.rank)
    value = given(node, 2)
    fill = (
        const(0, fact.dtype)
        if value is None or mode != "constant"
        else scope.load(value, (0,) * scope.fact(value).rank)
    )

    def body(at: Indices) -> Expr:
        inside = [i - before for i, (before, _) in zip(at, pads, strict=True)]
        if mode == "constant":
            guards = [
                guard
                for i, dim, (before, after) in zip(inside, fact.shape, pads, strict=True)
                for guard, pad in ((i, before), (dim - 1 - i, after))
                if not nonnegative(-pad)
            ]
            return scope.load(x, inside, guards, fill)
        if mode == "wrap":
            around = zip(inside, fact.shape, pads, strict=True)
            return scope.load(x, [i if pad == (ZERO, ZERO) else mod(i, dim) for i, dim, pad in around])
        fold = _clamped if mode == "edge" else _reflected
        return scope.load(x, [fold(i, dim, *pad) for i, dim, pad in zip(inside, fact.shape, pads, strict=True)])

    define(scope, node.outputs[0], body)


def _clamped(i: Dim, dim: Dim, before: Dim, after: Dim) -> Dim:
    i = i if nonnegative(-before) else maximum(i, ZERO)
    return i if nonnegative(-after) else minimum(i, dim - 1)


def _reflected(i: Dim, dim: Dim, before: Dim, after: Dim) -> Dim:
    i = i if nonnegative(-before) else maximum(i, -i)
    return i if nonnegative(-after) else minimum(i, (dim - 1) * 2 - i)

"""Slice and Pad: parts of a value, and a value with padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce as fold

import numpy as np

from opweld import ir
from opweld.errors import ModelError
from opweld.ops.emitted import Indices, define, define_each
from opweld.ops.expansion import DOMAIN, Expansion
from opweld.ops.fact import Fact
from opweld.ops.indices import from_the_front
from opweld.ops.known import require_length, required_dims
from opweld.ops.operands import (
    describe,
    elements_of,
    given,
    known_integers,
    normalize_axis,
    require_same_dtype,
    required,
)
from opweld.ops.registry import Inference, Lowering, attribute, infers, lowers
from opweld.tensor.dim import (
    ZERO,
    Axis,
    Dim,
    Value,
    as_dim,
    ceildiv,
    floordiv,
    maximum,
    minimum,
    mod,
    nonnegative,
    product,
    symbols_of,
)
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, binary, cast, const, index, load, reduce, select, unary

END = (1 << 31) - 1
"""Bounds of at least this mean "to the end", as exporters write it."""

LARGE = 1 << 20
"""A dynamic dim is assumed not to exceed a constant bound of at least this, instead of being clamped at run time."""


@dataclass(frozen=True)
class Span:
    """Elements start, start + step, ... of an axis, `length` of them, if the margins are all >= 0."""

    start: Dim
    length: Dim
    step: int
    margins: tuple[tuple[Dim, str], ...] = ()


def span_of(extent: Dim, start: Dim, end: Dim, step: int) -> Span:
    """The span of a slice with these bounds. Where clamping depends on dynamic sizes, it is a margin."""
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
            # Backwards, an end before the axis is common: "the last nine" of fewer than nine.
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
    """The lengths of the slices. Bounds that depend on dynamic sizes are assumed to be within the axis; bounds that are
    inputs of the model are clamped at run time if they are not."""
    fact = scope.fact(required(node, 0))
    if not (_is_known(scope, node, 3) and _is_known(scope, node, 4)):
        return _clamped_slice(scope, node)
    shape = list(fact.shape)
    fed: list[Dim] = []
    for axis, span in _spans(scope, node, shape).items():
        for margin, why in span.margins:
            if any(symbol.least is None for symbol in symbols_of(margin)):
                fed.append(margin)
            else:
                scope.at_least(margin, 0, node, why)
        shape[axis] = span.length
    if fed and not scope.decide(fold(minimum, fed), "least", node, "the bounds are within the axes"):
        return _clamped_slice(scope, node)
    return [Fact(fact.dtype, tuple(shape))]


def _is_known(scope: Inference, node: ir.Node, position: int) -> bool:
    """Whether an input is absent, or known at compile time."""
    value = given(node, position)
    elements = None if value is None else elements_of(scope.fact(value))
    return value is None or (
        elements is not None and all(isinstance(e, Dim) and e.constant is not None for e in elements.flat)
    )


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


# ------------------------------------------------------------------------------------------ bounds known at run time -


def _clamped_slice(scope: Inference, node: ir.Node) -> list[Fact]:
    """A slice whose bounds, axes or steps are computed or inputs of the model."""
    made = Expansion(node)
    inputs = [given(node, position) for position in range(5)]
    first, step, count = made.own("SliceBounds", *inputs, outputs=3)
    return made.infer(scope, *made.own("Strided", inputs[0], first, step, count))


@infers("SliceBounds", domain=DOMAIN)
def infer_slice_bounds(scope: Inference, node: ir.Node) -> list[Fact]:
    """For each axis of the value, its first element, the step to the next one, and how many there are."""
    rank = scope.fact(required(node, 0)).rank
    count = product(scope.fact(required(node, 1)).shape)
    if count.constant is None or any(
        scope.fact(value).shape != scope.fact(required(node, 1)).shape
        for position in (2, 3, 4)
        if (value := given(node, position)) is not None
    ):
        raise ModelError(f"{describe(node)}: starts, ends, axes and steps must have one length, known when compiling")
    return [Fact(DType.I64, (as_dim(rank),))] * 3


@lowers("SliceBounds", domain=DOMAIN)
def lower_slice_bounds(scope: Lowering, node: ir.Node) -> None:
    """Clamped as NumPy clamps them. An axis without bounds is taken whole."""
    shape = scope.fact(required(node, 0)).shape
    bounds = scope.fact(required(node, 1)).shape
    length = int(bounds[0]) if bounds else 1
    zero, one = const(0, DType.I64), const(1, DType.I64)

    def number(position: int, entry: int, usual: Expr) -> Expr:
        value = given(node, position)
        if value is None:
            return usual
        return cast(scope.load(value, (entry,) if bounds else ()), DType.I64)

    def of_axis(axis: int) -> tuple[Expr, Expr, Expr]:
        extent = index(shape[axis])
        start, end, step = zero, extent, one
        for entry in range(length):
            named = from_the_front(number(3, entry, const(entry, DType.I64)), as_dim(len(shape)))
            here = binary("eq", named, const(axis, DType.I64))
            start = select(here, number(1, entry, zero), start)
            end = select(here, number(2, entry, zero), end)
            step = select(here, number(4, entry, one), step)
        forwards = binary("gt", step, zero)
        lowest = select(forwards, zero, const(-1, DType.I64))
        highest = select(forwards, extent, binary("sub", extent, one))

        def clamped(bound: Expr) -> Expr:
            return binary("min", binary("max", from_the_front(bound, shape[axis]), lowest), highest)

        first, last = clamped(start), clamped(end)
        distance = select(forwards, binary("sub", last, first), binary("sub", first, last))
        size = binary("max", select(forwards, step, unary("neg", step)), one)
        count = binary("div", binary("add", distance, binary("sub", size, one)), size)
        return first, step, binary("max", select(binary("le", distance, zero), zero, count), zero)

    tables = zip(*(of_axis(axis) for axis in range(len(shape))), strict=True)
    for value, table in zip(node.outputs, tables, strict=True):
        define_each(scope, value, table)


@infers("Strided", domain=DOMAIN)
def infer_strided(scope: Inference, node: ir.Node) -> list[Fact]:
    """The computed number of elements of each axis."""
    fact = scope.fact(required(node, 0))
    counts = required_dims(scope, node, 3, "the numbers of elements")
    for count in counts:
        scope.at_least(count, 0, node, "a number of elements")
    return [Fact(fact.dtype, counts)]


@lowers("Strided", domain=DOMAIN)
def lower_strided(scope: Lowering, node: ir.Node) -> None:
    """The input at first + step * index along each axis."""
    x, first, step = (required(node, position) for position in range(3))
    shape = scope.fact(x).shape

    def body(at: Indices) -> Expr:
        places: list[Dim] = []
        for axis, i in enumerate(at):
            place = binary("add", scope.load(first, (axis,)), binary("mul", scope.load(step, (axis,)), index(i)))
            places.append(Value(place, shape[axis]).dim)
        return scope.load(x, places)

    define(scope, node.outputs[0], body)


# ----------------------------------------------------------------------------------------------------------------- Pad


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
    """Every dim with its pads added. A reflection must fit into the axis after cropping by negative pads."""
    fact = scope.fact(required(node, 0))
    if not _is_known(scope, node, 3):
        return _pad_by_fed_axes(scope, node)
    axes = known_integers(scope, node, 3, "the axes")
    require_length(scope, node, 1, 2 * (fact.rank if axes is None else len(axes)), "the pads")
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
        left = _left(dim, before, after)
        padded = [pad for pad in (before, after) if mode != "constant" and not nonnegative(-pad)]
        for pad in padded if mode == "reflect" else ():
            scope.at_least(left - 1 - pad, 0, node, f"axis {axis} is longer than its reflection")
        if padded and mode != "reflect":
            scope.at_least(left, 1, node, f"padded axis {axis} is not empty")
        total = dim + before + after
        if not nonnegative(total):
            scope.at_least(total, 0, node, f"axis {axis} after cropping")
        shape.append(total)
    return [Fact(fact.dtype, tuple(shape))]


@lowers("Pad")
def lower_pad(scope: Lowering, node: ir.Node) -> None:
    """The input where the index is inside of it; outside, a constant, or the element that the mode selects."""
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
            return scope.load(x, [_wrapped(i, dim, *pad) for i, dim, pad in zip(inside, fact.shape, pads, strict=True)])
        nearest = _clamped if mode == "edge" else _reflected
        return scope.load(x, [nearest(i, dim, *pad) for i, dim, pad in zip(inside, fact.shape, pads, strict=True)])

    define(scope, node.outputs[0], body)


def _pad_by_fed_axes(scope: Inference, node: ir.Node) -> list[Fact]:
    """Pad with axes that are an input of the model: the pads of all axes are computed first."""
    made = Expansion(node)
    x, pads, fill, axes = (given(node, position) for position in range(4))
    (spread,) = made.own("SpreadPads", x, pads, axes)
    mode = attribute(node, "mode", "constant")
    return made.infer(scope, *made.emit("Pad", x, spread, fill, mode=mode))


@infers("SpreadPads", domain=DOMAIN)
def infer_spread_pads(scope: Inference, node: ir.Node) -> list[Fact]:
    """Two pads for each axis of the value."""
    rank = scope.fact(required(node, 0)).rank
    (count,), (named,) = (scope.fact(required(node, position)).shape for position in (1, 2))
    scope.same(count, named * 2, node, "there are two pads for each axis")
    return [Fact(DType.I64, (as_dim(2 * rank),))]


@lowers("SpreadPads", domain=DOMAIN)
def lower_spread_pads(scope: Lowering, node: ir.Node) -> None:
    """The pads, those before and those after, times the selection matrix of their axes."""
    x, pads, axes = (required(node, position) for position in range(3))
    rank, (named,) = as_dim(scope.fact(x).rank), scope.fact(axes).shape
    unit = scope.constant(np.eye(int(rank), dtype=np.int64), "unit")

    def body(at: Indices) -> Expr:
        k = Axis("k", named)
        axis = from_the_front(cast(scope.load(axes, (k.dim,)), DType.I64), rank)
        pad = scope.load(pads, (floordiv(at[0], rank) * named + k.dim,))
        names = load(unit, DType.I64, (Value(axis, rank).dim, mod(at[0], rank)))
        return reduce("sum", (k,), binary("mul", pad, names))

    define(scope, node.outputs[0], body)


def _clamped(i: Dim, dim: Dim, before: Dim, after: Dim) -> Dim:
    i = i if nonnegative(-before) else maximum(i, ZERO)
    return i if nonnegative(-after) else minimum(i, dim - 1)


def _reflected(i: Dim, dim: Dim, before: Dim, after: Dim) -> Dim:
    i = i if nonnegative(-before) else maximum(i, -i)
    return i if nonnegative(-after) else minimum(i, (dim - 1) * 2 - i)


def _wrapped(i: Dim, dim: Dim, before: Dim, after: Dim) -> Dim:
    """The cropped axis repeats periodically."""
    if nonnegative(-before) and nonnegative(-after):
        return i
    first = -minimum(before, ZERO)
    return mod(i - first, _left(dim, before, after)) + first


def _left(dim: Dim, before: Dim, after: Dim) -> Dim:
    return dim + minimum(before, ZERO) + minimum(after, ZERO)

"""GridSample: elements of an image interpolated at positions that a tensor holds."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import reduce

from opweld import ir
from opweld.errors import ModelError
from opweld.ops.arithmetic import add, count, div, larger, mul, number, smaller, sub, where
from opweld.ops.emitted import Emitted, Indices, define, emit
from opweld.ops.fact import Fact
from opweld.ops.operands import describe, require_rank, required
from opweld.ops.registry import Inference, Lowering, attribute, infers, lowers
from opweld.tensor.dim import Dim, Value, as_dim
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, binary, cast, unary

MODES = {"linear": "linear", "bilinear": "linear", "nearest": "nearest", "cubic": "cubic", "bicubic": "cubic"}
CUBIC = -0.75
"""The coefficient of the cubic kernel, from the specification."""


@infers("GridSample")
def infer_grid_sample(scope: Inference, node: ir.Node) -> list[Fact]:
    """[N, C, spatial...] with a grid [N, places..., axes] -> [N, C, places...]"""
    x = require_rank(scope.fact(required(node, 0)), 3, node)
    grid = require_rank(scope.fact(required(node, 1)), x.rank, node, x.rank)
    scope.same(x.shape[0], grid.shape[0], node, "the batch of image and grid")
    scope.same(grid.shape[-1], as_dim(x.rank - 2), node, "a position has a coordinate for each spatial axis")
    mode, padding = attribute(node, "mode", "linear"), attribute(node, "padding_mode", "zeros")
    if mode not in MODES or padding not in ("zeros", "border", "reflection"):
        raise ModelError(f"{describe(node)}: mode {mode!r} with padding {padding!r} is not defined")
    for axis, dim in enumerate(x.shape[2:]):
        scope.at_least(dim, 1, node, f"spatial axis {axis} is not empty")
    return [Fact(x.dtype, (*x.shape[:2], *grid.shape[1:-1]))]


@lowers("GridSample")
def lower_grid_sample(scope: Lowering, node: ir.Node) -> None:
    """The sum over the pixels around a position, each with its weight."""
    x, grid = required(node, 0), required(node, 1)
    fact, dtype = scope.fact(x), scope.fact(grid).dtype
    sizes = fact.shape[2:]
    mode, padding = MODES[attribute(node, "mode", "linear")], attribute(node, "padding_mode", "zeros")
    aligned = bool(attribute(node, "align_corners", 0))

    pixels = [count(size, dtype) for size in sizes]

    def place(axis: int) -> Emitted:
        """Coordinates in pixels. The grid holds the last axis first."""

        def body(at: Indices) -> Expr:
            given = scope.load(grid, (*at, as_dim(len(sizes) - 1 - axis)))
            if aligned:
                found = mul(div(add(given, 1.0), 2.0), sub(pixels[axis], 1.0))
            else:
                found = div(sub(mul(add(given, 1.0), pixels[axis]), 1.0), 2.0)
            return found if mode == "cubic" or padding == "zeros" else _inside(found, pixels[axis], padding, aligned)

        return emit(scope, scope.fact(grid).shape[:-1], body, "coordinate")

    places = [place(axis) for axis in range(len(sizes))]

    def body(at: Indices) -> Expr:
        batch, channel, *out = at
        positions = [found.at((batch, *out)) for found in places]
        return sampled(scope, x, (batch, channel), positions, mode, padding, aligned)

    define(scope, node.outputs[0], body)


def sampled(
    scope: Lowering,
    value: ir.Value,
    lead: Indices,
    positions: Sequence[Expr],
    mode: str = "linear",
    padding: str = "zeros",
    aligned: bool = True,
) -> Expr:
    """The interpolated element of a value at the leading indices and a position, in the dtype of the positions."""
    dtype = positions[0].dtype
    sizes = scope.fact(value).shape[len(lead) :]
    pixels = [count(size, dtype) for size in sizes]
    terms: list[Expr] = []
    for chosen in itertools.product(*(taps_around(position, mode, CUBIC) for position in positions)):
        indices: list[Dim] = []
        there: list[Expr] = []
        for axis, (at_pixel, _) in enumerate(chosen):
            size = pixels[axis]
            if padding == "zeros":
                there += [binary("ge", at_pixel, number(0, size)), binary("lt", at_pixel, size)]
            kept = _inside(at_pixel, size, "border" if padding == "zeros" else padding, aligned)
            indices.append(Value(cast(kept, DType.I64), sizes[axis]).dim)
        element = cast(scope.load(value, (*lead, *indices)), dtype)
        if there:
            element = where(reduce(lambda a, b: binary("and", a, b), there), element, 0)
        terms.append(reduce(mul, (weight for _, weight in chosen if weight is not None), element))
    return reduce(add, terms)


def taps_around(position: Expr, mode: str, cubic: float) -> Sequence[tuple[Expr, Expr | None]]:
    """(pixel, weight) of each pixel along one axis that contributes, with the coefficient of a cubic kernel; the weight
    is None where only one pixel does."""
    if mode == "nearest":
        return [(unary("round", position), None)]
    first = unary("floor", position)
    t = sub(position, first)
    if mode == "linear":
        return [(first, sub(1.0, t)), (add(first, 1.0), t)]
    return [(add(first, float(step)), _cubic(t, step, cubic)) for step in (-1, 0, 1, 2)]


def _cubic(t: Expr, step: int, a: float) -> Expr:
    """The weight of the pixel `step` after the one before the position."""
    s = {-1: add(t, 1.0), 0: t, 1: sub(1.0, t), 2: sub(2.0, t)}[step]
    if step in (0, 1):
        return add(mul(mul(sub(mul(s, a + 2), a + 3), s), s), 1.0)
    return mul(sub(mul(add(mul(sub(s, 5.0), s), 8.0), s), 4.0), a)


def _inside(position: Expr, size: Expr, padding: str, aligned: bool) -> Expr:
    """A position moved into the image: to its border, or reflected there."""
    last = sub(size, 1.0)
    if padding == "reflection":
        low = 0.0 if aligned else -0.5
        # An aligned axis of one pixel has no extent to reflect in.
        span = larger(last, 1.0) if aligned else size
        far = unary("abs", sub(position, low))
        times = unary("floor", div(far, span))
        rest = sub(far, mul(times, span))
        odd = sub(times, mul(unary("floor", div(times, 2.0)), 2.0))
        position = add(where(binary("gt", odd, number(0, odd)), sub(span, rest), rest), low)
    # NaN becomes the first pixel: larger(NaN, 0) is NaN, hence a comparison.
    position = where(binary("gt", position, number(0, position)), position, 0)
    return smaller(position, last)

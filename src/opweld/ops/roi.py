"""RoiAlign and MaxRoiPool: regions of images, each resampled or pooled to one size."""

from __future__ import annotations

import math

from opweld import ir
from opweld.errors import ModelError
from opweld.ops.arithmetic import accumulator, add, apply, count, div, larger, mul, smaller, sub, where
from opweld.ops.emitted import Body, Emitted, Indices, define, emit
from opweld.ops.fact import Fact
from opweld.ops.gather import chosen_index
from opweld.ops.grid_sample import taps_around
from opweld.ops.operands import describe, require_float, require_rank, require_same_dtype, required
from opweld.ops.registry import Inference, Lowering, attribute, infers, lowers, required_attribute
from opweld.tensor.dim import Axis, Dim, Value, as_dim
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, at_least_zero, binary, cast, const, reduce, select, unary

MODES = ("avg", "max")
COORDINATES = ("half_pixel", "output_half_pixel")


@infers("RoiAlign")
def infer_roi_align(scope: Inference, node: ir.Node) -> list[Fact]:
    """[N, C, H, W] with regions [R, 4] and their images [R] -> [R, C, output_height, output_width]"""
    x = require_float(require_rank(scope.fact(required(node, 0)), 4, node, 4), node)
    regions = require_rank(scope.fact(required(node, 1)), 2, node, 2)
    images = require_rank(scope.fact(required(node, 2)), 1, node, 1)
    scope.same(regions.shape[1], as_dim(4), node, "a region has two corners")
    scope.same(regions.shape[0], images.shape[0], node, "each region has an image")
    sizes = [int(attribute(node, name, 1)) for name in ("output_height", "output_width")]
    mode, coordinates = attribute(node, "mode", "avg"), attribute(node, "coordinate_transformation_mode", "half_pixel")
    samples = int(attribute(node, "sampling_ratio", 0))
    if min(sizes) < 1 or mode not in MODES or coordinates not in COORDINATES or samples < 0:
        raise ModelError(
            f"{describe(node)}: mode {mode!r}, coordinates {coordinates!r}, {samples} samples, "
            f"output {sizes}: not defined"
        )
    for size in x.shape[2:]:
        scope.at_least(size, 1, node, "an image is not empty")
    return [Fact(require_same_dtype([x, regions], node), (regions.shape[0], x.shape[1], *map(as_dim, sizes)))]


@lowers("RoiAlign")
def lower_roi_align(scope: Lowering, node: ir.Node) -> None:
    """The mean, or the maximum, of evenly spaced samples in a bin, each interpolated from four pixels."""
    if not int(attribute(node, "sampling_ratio", 0)):
        _align_by_size(scope, node)
        return
    x, images = required(node, 0), required(node, 2)
    fact, out = scope.fact(x), scope.fact(node.outputs[0]).shape
    samples, dtype = as_dim(int(attribute(node, "sampling_ratio", 0))), accumulator(fact.dtype)
    mean = attribute(node, "mode", "avg") == "avg"
    rows, columns = (_samples(scope, node, axis, out[2 + axis], samples, dtype) for axis in (0, 1))

    def body(i: Indices) -> Expr:
        region, channel, *bin_at = i
        ky, kx = Axis("ky", samples), Axis("kx", samples)
        image = chosen_index(scope, images, (region,), fact.shape[0])
        places = [at.at((region, place, k.dim)) for at, place, k in zip((rows, columns), bin_at, (ky, kx), strict=True)]
        parts = [
            mul(mul(cast(scope.load(x, (image, channel, row, column)), dtype), row_weight), column_weight)
            for row, row_weight in _pixels(places[0], fact.shape[2])
            for column, column_weight in _pixels(places[1], fact.shape[3])
        ]
        total = parts[0]
        for part in parts[1:]:
            total = add(total, part) if mean else larger(total, part)
        there = apply("and", *(_is_near(place, size) for place, size in zip(places, fact.shape[2:], strict=True)))
        return reduce("sum" if mean else "max", (ky, kx), where(there, total, 0))

    total = emit(scope, out, body, "samples")
    define(scope, node.outputs[0], lambda i: div(total.at(i), count(samples * samples, dtype)) if mean else total.at(i))


def _samples(scope: Lowering, node: ir.Node, axis: int, bins: Dim, samples: Dim, dtype: DType) -> Emitted:
    """[R, bins, samples]: the positions of the samples of each region along one axis (0 is height), in pixels."""

    def body(i: Indices) -> Expr:
        start, extent = _reach(scope, node, axis, i[0], dtype)
        size = div(extent, count(bins, dtype))
        within = div(mul(add(count(i[2], dtype), 0.5), size), count(samples, dtype))
        return add(add(start, mul(count(i[1], dtype), size)), within)

    return emit(scope, (scope.fact(required(node, 1)).shape[0], bins, samples), body, "sample")


def _reach(scope: Lowering, node: ir.Node, axis: int, region: Dim, dtype: DType) -> tuple[Expr, Expr]:
    """The start of a region along an axis (0 is height), and its length, in pixels."""
    regions, scale = required(node, 1), float(attribute(node, "spatial_scale", 1.0))
    half_pixel = attribute(node, "coordinate_transformation_mode", "half_pixel") == "half_pixel"

    def corner(position: int) -> Expr:
        scaled = mul(cast(scope.load(regions, (region, as_dim(position))), dtype), scale)
        return sub(scaled, 0.5) if half_pixel else scaled

    start, end = corner(1 - axis), corner(3 - axis)
    return start, sub(end, start) if half_pixel else larger(sub(end, start), 1)


def _align_by_size(scope: Lowering, node: ir.Node) -> None:
    """The number of samples of a bin depends on the size of its region, which an extern reads."""
    x, images = required(node, 0), required(node, 2)
    fact, out = scope.fact(x), scope.fact(node.outputs[0]).shape
    dtype = accumulator(fact.dtype)

    def reach(i: Indices) -> Expr:
        (top, height), (left, width) = (_reach(scope, node, axis, i[0], dtype) for axis in (0, 1))
        found = width
        for position, part in ((2, height), (1, left), (0, top)):
            found = select(at_least_zero(position - i[1]), part, found)
        return found

    reaches = emit(scope, (out[0], as_dim(4)), reach, "reach")
    wide = (
        scope.tensor(x)
        if fact.dtype is dtype
        else emit(scope, fact.shape, lambda i: cast(scope.load(x, i), dtype), "wide").name
    )
    numbers = (*fact.shape, *out[2:], int(attribute(node, "mode", "avg") == "max"))
    (bins,) = scope.extern("align", [reaches.name, scope.tensor(images), wide], [(dtype, out)], numbers, out[0])
    define(scope, node.outputs[0], Emitted(bins, dtype).at)


def _is_near(place: Expr, size: Dim) -> Expr:
    """Whether a position is in the image or less than a pixel away."""
    return apply("and", apply("ge", place, -1), apply("le", place, count(size, place.dtype)))


def _pixels(place: Expr, size: Dim) -> list[tuple[Dim, Expr]]:
    """(index, weight) of the two pixels around a position, which is clamped to the image."""
    last = count(size - 1, place.dtype)
    inside = smaller(where(apply("gt", place, 0), place, 0), last)
    found: list[tuple[Dim, Expr]] = []
    for at, weight in taps_around(inside, "linear", 0):
        assert weight is not None
        found.append((Value(cast(smaller(at, last), DType.I64), size).dim, weight))
    return found


@infers("MaxRoiPool")
def infer_max_roi_pool(scope: Inference, node: ir.Node) -> list[Fact]:
    """[N, C, H, W] with regions [R, 5] -> [R, C, pooled_shape]"""
    x = require_float(require_rank(scope.fact(required(node, 0)), 4, node, 4), node)
    regions = require_rank(scope.fact(required(node, 1)), 2, node, 2)
    scope.same(regions.shape[1], as_dim(5), node, "a region has an image and two corners")
    pooled = [int(size) for size in required_attribute(node, "pooled_shape")]
    if len(pooled) != 2 or min(pooled) < 1:
        raise ModelError(f"{describe(node)}: pooled_shape {pooled} must be two positive numbers")
    return [Fact(require_same_dtype([x, regions], node), (regions.shape[0], x.shape[1], *map(as_dim, pooled)))]


@lowers("MaxRoiPool")
def lower_max_roi_pool(scope: Lowering, node: ir.Node) -> None:
    """The largest element of each bin, along one axis after the other; zero for a bin without elements."""
    x, regions = required(node, 0), required(node, 1)
    fact, out = scope.fact(x), scope.fact(node.outputs[0]).shape
    lowest = const(-math.inf, fact.dtype)
    bounds = [_bounds(scope, node, axis, out[2 + axis]) for axis in (0, 1)]

    def inside(axis: int, region: Dim, place: Dim, k: Axis) -> Expr:
        at = count(k.dim, DType.F32)
        first, last = bounds[axis]
        return apply("and", binary("ge", at, first((region, place))), binary("lt", at, last((region, place))))

    def along_rows(i: Indices) -> Expr:
        region, channel, row, place = i
        k = Axis("k", fact.shape[3])
        image = Value(cast(scope.load(regions, (region, as_dim(0))), DType.I64), fact.shape[0]).dim
        element = scope.load(x, (image, channel, row, k.dim))
        return reduce("max", (k,), where(inside(1, region, place, k), element, lowest))

    rows = emit(scope, (out[0], out[1], fact.shape[2], out[3]), along_rows, "rows")

    def along_columns(i: Indices) -> Expr:
        region, channel, place, column = i
        k = Axis("k", fact.shape[2])
        return reduce(
            "max", (k,), where(inside(0, region, place, k), rows.at((region, channel, k.dim, column)), lowest)
        )

    largest = emit(scope, out, along_columns, "largest")

    def body(i: Indices) -> Expr:
        region, _, *places = i
        empty = [
            binary("le", last((region, place)), first((region, place)))
            for (first, last), place in zip(bounds, places, strict=True)
        ]
        return where(apply("or", *empty), 0, largest.at(i))

    define(scope, node.outputs[0], body)


def _bounds(scope: Lowering, node: ir.Node, axis: int, bins: Dim) -> tuple[Body, Body]:
    """The first element of each bin [R, bins] along one axis (0 is height), and the one after the last."""
    regions, scale = required(node, 1), float(attribute(node, "spatial_scale", 1.0))
    size = scope.fact(required(node, 0)).shape[2 + axis]

    def corner(region: Dim, position: int) -> Expr:
        scaled = mul(cast(scope.load(regions, (region, as_dim(position))), DType.F32), scale)
        # Rounded half away from zero.
        away = unary("floor", add(unary("abs", scaled), 0.5))
        return where(apply("lt", scaled, 0), unary("neg", away), away)

    def bound(i: Indices, rounding: str) -> Expr:
        start, end = corner(i[0], 2 - axis), corner(i[0], 4 - axis)
        extent = larger(add(sub(end, start), 1), 1)
        place = i[1] if rounding == "floor" else i[1] + 1
        edge = unary(rounding, mul(count(place, DType.F32), div(extent, count(bins, DType.F32))))
        return smaller(larger(add(edge, start), 0), count(size, DType.F32))

    shape = (scope.fact(regions).shape[0], bins)
    first = emit(scope, shape, lambda i: bound(i, "floor"), "first")
    last = emit(scope, shape, lambda i: bound(i, "ceil"), "last")
    return first.at, last.at

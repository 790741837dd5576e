"""Resize by scales computed at run time: the fractions that they stand for become sizes of the next segment."""

from __future__ import annotations

from opweld import ir
from opweld.ops.arithmetic import apply, where
from opweld.ops.emitted import Indices, define, emit
from opweld.ops.expansion import DOMAIN
from opweld.ops.fact import Fact
from opweld.ops.known import required_dims
from opweld.ops.operands import describe, require_rank, required
from opweld.ops.registry import Inference, Lowering, infers, lowers, required_attribute
from opweld.ops.resample import Resampling, intended_units, nearest_numerator
from opweld.ops.resize import resample, resize_mode, resized_axes
from opweld.tensor.dim import Dim, as_dim
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, binary

LARGEST = 1 << 20
"""Scales must be below this."""


@infers("IntendedRatio", domain=DOMAIN)
def infer_intended_ratio(scope: Inference, node: ir.Node) -> list[Fact]:
    """Numerators and denominators."""
    scales = require_rank(scope.fact(required(node, 0)), 1, node, 1)
    return [Fact(DType.I64, scales.shape), Fact(DType.I64, scales.shape)]


@lowers("IntendedRatio", domain=DOMAIN)
def lower_intended_ratio(scope: Lowering, node: ir.Node) -> None:
    """The fraction of each scale; a numerator of 0 for an invalid scale."""
    scales = required(node, 0)
    units = emit(scope, scope.fact(scales).shape, lambda i: intended_units(scope.load(scales, i)), "units")

    def numerator(i: Indices) -> Expr:
        scale = scope.load(scales, i)
        usable = binary("and", apply("gt", scale, 0), apply("lt", scale, LARGEST))
        return where(usable, nearest_numerator(scale, units.at(i)), 0)

    define(scope, node.outputs[0], numerator)
    define(scope, node.outputs[1], units.at)


@infers("Rescale", domain=DOMAIN)
def infer_rescale(scope: Inference, node: ir.Node) -> list[Fact]:
    """Each axis times its fraction, rounded down."""
    x = scope.fact(required(node, 0))
    axes = resized_axes(node, x.rank)
    scope.same(scope.fact(required(node, 1)).shape[0], as_dim(len(axes)), node, "a scale for each axis")
    for numerator in _units(scope, node)[0]:
        scope.at_least(numerator, 1, node, f"scales must be positive numbers below {LARGEST}")
    for denominator in _units(scope, node)[1]:
        scope.at_least(denominator, 1, node, "the denominator of a scale")
    if resize_mode(node) != "nearest":
        _settle_unscaled(scope, node, axes)
    places = tuple(axis.out for axis in _resamplings(scope, node))
    for place in places:
        scope.at_least(place, 1, node, f"{describe(node)} must have an output")
    return [Fact(x.dtype, places)]


@lowers("Rescale", domain=DOMAIN)
def lower_rescale(scope: Lowering, node: ir.Node) -> None:
    """As with known scales."""
    resample(scope, node, _resamplings(scope, node))


def _settle_unscaled(scope: Inference, node: ir.Node, axes: list[int]) -> None:
    """Batch and channels are seldom scaled: the usual variant assumes so, and does not interpolate along them."""
    units = dict(zip(axes, zip(*_units(scope, node), strict=True), strict=True))
    for axis in (0, 1):
        if axis in units:
            numerator, denominator = units[axis]
            if not scope.expect(numerator - denominator, "zero", node, f"axis {axis} keeps its size"):
                return


def _resamplings(scope: Inference | Lowering, node: ir.Node) -> list[Resampling]:
    shape = scope.fact(required(node, 0)).shape
    coordinates = str(required_attribute(node, "coordinate_transformation_mode"))
    result = [Resampling.to_size(dim, dim, coordinates) for dim in shape]
    for axis, numerator, denominator in zip(resized_axes(node, len(shape)), *_units(scope, node), strict=True):
        result[axis] = Resampling.by_scale(shape[axis], numerator, denominator, coordinates)
    return result


def _units(scope: Inference | Lowering, node: ir.Node) -> tuple[tuple[Dim, ...], tuple[Dim, ...]]:
    numerators, denominators = (required_dims(scope, node, position, "a scale's fraction") for position in (1, 2))
    return numerators, denominators

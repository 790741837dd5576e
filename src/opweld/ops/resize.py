"""Resize: nearest, linear and cubic resampling of any axes."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from opweld import ir
from opweld.errors import ModelError, UnsupportedError
from opweld.ops.arithmetic import accumulator, add, div, mul, where, widen
from opweld.ops.crop import CROP, lower_crop
from opweld.ops.emitted import Body, Indices, define, emit
from opweld.ops.expansion import Expansion
from opweld.ops.fact import Fact
from opweld.ops.operands import describe, elements_of, given, known_numbers, normalize_axis, require_rank, required
from opweld.ops.registry import Inference, Lowering, attribute, infers, lowers
from opweld.ops.resample import COORDINATES, ROUNDING_OF_10, ROUNDINGS, Resampling, intended_ratio, kernel_weight
from opweld.tensor.dim import ZERO, Axis, Dim, as_dim, floordiv, product
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, at_least_zero, binary, reduce

POLICIES = ("stretch", "not_larger", "not_smaller")

MAX_LOADS = 8
"""The most elements in one weighted sum: linear in three axes. More are summed along one axis after the other."""


def resize_mode(node: ir.Node) -> str:
    """The interpolation: nearest, linear or cubic."""
    mode = str(attribute(node, "mode", "nearest"))
    if mode not in ("nearest", "linear", "cubic"):
        raise ModelError(f"{describe(node)}: mode {mode!r} is none of nearest, linear, cubic")
    return mode


def _coordinates(node: ir.Node) -> str:
    name = str(attribute(node, "coordinate_transformation_mode", "half_pixel"))
    if node.op_type == "Upsample":
        return "asymmetric"
    if name not in (*COORDINATES, CROP):
        raise ModelError(
            f"{describe(node)}: coordinate_transformation_mode {name!r} is none of {', '.join((*COORDINATES, CROP))}"
        )
    return name


def _cubic(node: ir.Node) -> float | None:
    return float(attribute(node, "cubic_coeff_a", -0.75)) if resize_mode(node) == "cubic" else None


def _alternatives(scope: Inference | Lowering, node: ir.Node, shape: Sequence[Dim]) -> list[list[Resampling]]:
    """One resampling for each axis of the input, from sizes or scales. Where the aspect ratio is kept, one such list
    for each axis that may determine the scale."""
    coordinates = _coordinates(node)
    axes = resized_axes(node, len(shape))
    scales, sizes = _scales(scope, node), None if node.op_type == "Upsample" else given(node, 3)
    result = [Resampling.to_size(dim, dim, coordinates) for dim in shape]
    if scales is not None:
        ratios = _ratios(scope, node, scales)
        for axis, ratio in zip(_matched(axes, len(ratios), node), ratios, strict=True):
            units = as_dim(ratio.numerator), as_dim(ratio.denominator)
            result[axis] = Resampling.by_scale(shape[axis], *units, coordinates)
        return [result]
    if sizes is None:
        raise ModelError(f"{describe(node)}: neither scales nor sizes are given")
    elements = elements_of(scope.fact(sizes))
    if elements is None:
        raise UnsupportedError(
            f"{describe(node)}: the sizes {sizes.name!r} are computed from data. Make them constants or functions of "
            f"the input's shape before export."
        )
    targets = [e for e in elements.flat if isinstance(e, Dim)]
    resized = dict(zip(_matched(axes, len(targets), node), targets, strict=True))
    if _policy(node) != "stretch":
        return [_proportional(shape, resized, axis, coordinates) for axis in resized] or [result]
    for axis, size in resized.items():
        result[axis] = Resampling.to_size(shape[axis], size, coordinates)
    return [result]


def resized_axes(node: ir.Node, rank: int) -> list[int]:
    """The axes that scales or sizes apply to, in their order."""
    listed = attribute(node, "axes", None)
    return [normalize_axis(axis, rank, node) for axis in (range(rank) if listed is None else listed)]


def _matched(axes: list[int], given_numbers: int, node: ir.Node) -> list[int]:
    if given_numbers != len(axes):
        raise ModelError(f"{describe(node)}: {given_numbers} scales or sizes for {len(axes)} axes")
    return axes


def _scales(scope: Inference | Lowering, node: ir.Node) -> ir.Value | None:
    """The scales; None where they are absent or empty."""
    scales = given(node, 1 if node.op_type == "Upsample" else 2)
    if scales is None or product(scope.fact(scales).shape) is ZERO:
        return None
    if _coordinates(node) == CROP:
        raise UnsupportedError(f"{describe(node)}: {CROP} by scales is not supported. Export with sizes.")
    return scales


def _ratios(scope: Inference | Lowering, node: ir.Node, scales: ir.Value) -> list[Fraction]:
    known = known_numbers(scope, scales)
    assert known is not None, describe(node)
    if not np.all(known > 0) or not np.all(np.isfinite(known)):
        raise ModelError(f"{describe(node)}: scales must be positive numbers, got {known.tolist()}")
    return [intended_ratio(float(scale)) for scale in known.flat]


def _policy(node: ir.Node) -> str:
    policy = str(attribute(node, "keep_aspect_ratio_policy", "stretch"))
    if policy not in POLICIES:
        raise ModelError(f"{describe(node)}: keep_aspect_ratio_policy {policy!r} is none of {', '.join(POLICIES)}")
    return policy


def _proportional(shape: Sequence[Dim], sizes: dict[int, Dim], decisive: int, coordinates: str) -> list[Resampling]:
    """All resized axes with the scale that gives one of them its size."""
    s, d = sizes[decisive], shape[decisive]
    result = [Resampling.to_size(dim, dim, coordinates) for dim in shape]
    for axis in sizes:
        rounded = floordiv(shape[axis] * s * 2 + d, d * 2)
        result[axis] = Resampling(shape[axis], rounded, s, d, coordinates)
    return result


def _decided(scope: Inference, node: ir.Node, alternatives: list[list[Resampling]]) -> list[Resampling]:
    """The alternative with the smallest scale (not_larger) or of the largest (not_smaller)."""
    best = alternatives[0]
    for other in alternatives[1:]:
        a, b = (next(r for r in found if not r.is_identity) for found in (best, other))
        excess = b.out_units * a.in_units - a.out_units * b.in_units
        if scope.decide(-excess if _policy(node) == "not_larger" else excess, "least", node, "the scale of all axes"):
            best = other
    return best


@infers("Resize", "Upsample")
def infer_resize(scope: Inference, node: ir.Node) -> list[Fact]:
    """The shape of the input with the new sizes of resized axes."""
    x = require_rank(scope.fact(required(node, 0)), 1, node)
    scales = _scales(scope, node)
    if scales is not None and known_numbers(scope, scales) is None:
        return _by_computed_scales(scope, node, scales)
    places = tuple(axis.out for axis in _decided(scope, node, _alternatives(scope, node, x.shape)))
    for place in places:
        scope.at_least(place, 1, node, f"{describe(node)} must have an output")
    if _coordinates(node) == CROP:
        roi = require_rank(scope.fact(required(node, 1)), 1, node, 1)
        bounds = 2 * len(resized_axes(node, x.rank))
        scope.same(roi.shape[0], as_dim(bounds), node, f"{describe(node)} crops each axis from a start to an end")
    return [Fact(x.dtype, places)]


def _by_computed_scales(scope: Inference, node: ir.Node, scales: ir.Value) -> list[Fact]:
    """The fractions that scales stand for are computed first; sizes and positions follow from them."""
    made = Expansion(node)
    ratio = made.own("IntendedRatio", scales, outputs=2)
    own = {"coordinate_transformation_mode": _coordinates(node), "nearest_mode": _rounding(node)}
    options: dict[str, Any] = {**node.attributes, **own}
    return made.infer(scope, *made.own("Rescale", required(node, 0), *ratio, **options))


@lowers("Resize", "Upsample")
def lower_resize(scope: Lowering, node: ir.Node) -> None:
    """A crop, or elements and weighted sums at positions that follow from sizes and scales."""
    shape, out = scope.fact(required(node, 0)).shape, scope.fact(node.outputs[0]).shape
    if _coordinates(node) == CROP:
        lower_crop(scope, node, _interpolation(scope, node), _rounding(node))
    else:
        alternatives = _alternatives(scope, node, shape)
        resample(scope, node, next(axes for axes in alternatives if tuple(axis.out for axis in axes) == out))


def resample(scope: Lowering, node: ir.Node, axes: list[Resampling]) -> None:
    """Nearest: a load at the nearest index. Else a weighted sum of loads, nested by axis."""
    value = required(node, 0)
    mode, rounding = _interpolation(scope, node), _rounding(node)
    if mode == "nearest":
        return define(scope, node.outputs[0], lambda i: scope.load(value, _nearest(axes, i, rounding)))
    loads = (2 if mode == "linear" else 4) ** sum(not axis.is_identity for axis in axes)
    if attribute(node, "antialias", 0) or attribute(node, "exclude_outside", 0) or loads > MAX_LOADS:
        return _filter(scope, node, axes)
    return define(scope, node.outputs[0], lambda i: _mixed(scope, node, axes, i, ()))


def _rounding(node: ir.Node) -> str:
    rounding = "floor" if node.op_type == "Upsample" else str(attribute(node, "nearest_mode", "round_prefer_floor"))
    if rounding not in (*ROUNDINGS, ROUNDING_OF_10):
        raise ModelError(f"{describe(node)}: nearest_mode {rounding!r} is none of {', '.join(ROUNDINGS)}")
    return rounding


def _interpolation(scope: Lowering, node: ir.Node) -> str:
    """The mode; UnsupportedError where it does not support the dtype."""
    mode, dtype = resize_mode(node), scope.fact(required(node, 0)).dtype
    if mode != "nearest" and not accumulator(dtype).is_float:
        raise UnsupportedError(
            f"{describe(node)}: only floats are interpolated, not {dtype!r}. Cast the input to fp32."
        )
    return mode


def _mixed(scope: Lowering, node: ir.Node, axes: list[Resampling], i: Indices, chosen: tuple[Dim, ...]) -> Expr:
    """The weighted sum of the elements around a position, over the axes after the chosen indices."""
    value = required(node, 0)
    axis = len(chosen)
    if axis == len(axes):
        return widen(scope.load(value, chosen))
    if axes[axis].is_identity:
        return _mixed(scope, node, axes, i, (*chosen, i[axis]))
    taps = axes[axis].taps(i[axis], accumulator(scope.fact(value).dtype), _cubic(node))
    terms = [mul(_mixed(scope, node, axes, i, (*chosen, index)), weight) for index, weight in taps]
    total = terms[0]
    for term in terms[1:]:
        total = add(total, term)
    return total


def _filter(scope: Lowering, node: ir.Node, axes: list[Resampling]) -> None:
    """A weighted sum along one axis after the other. Kernels that are stretched, or cut off at the end of the axis,
    have weights that must be normalised to a sum of one."""
    value = required(node, 0)
    body: Body = lambda i: widen(scope.load(value, i))  # noqa: E731
    shape = [axis.size for axis in axes]
    dtype = accumulator(scope.fact(value).dtype)
    for position, axis in enumerate(axes):
        if not axis.is_identity:
            shape[position] = axis.out
            body = emit(scope, shape, _along(scope, node, axis, position, body, dtype), "filtered").at
    define(scope, node.outputs[0], body)


def _along(scope: Lowering, node: ir.Node, axis: Resampling, position: int, source: Body, dtype: DType) -> Body:
    """The weighted sum of the source along one axis."""
    cubic, stretched = _cubic(node), bool(attribute(node, "antialias", 0))
    inside_only = bool(attribute(node, "exclude_outside", 0))
    first, taps = axis.window(1 if cubic is None else 2, stretched)

    def at(place: Dim, k: Dim) -> Dim:
        return axis.source(place).floor() + first + k

    def raw(i: Indices) -> Expr:
        weight = kernel_weight(axis.distance(i[0], first + i[1], dtype, stretched), cubic)
        if not inside_only:
            return weight
        index = at(i[0], i[1])
        return where(binary("and", at_least_zero(index), at_least_zero(axis.size - 1 - index)), weight, 0)

    weights = emit(scope, (axis.out, taps), raw, "weights")

    def sum_of_weights(i: Indices) -> Expr:
        k = Axis("k", taps)
        return reduce("sum", (k,), weights.at((i[0], k.dim)))

    total = emit(scope, (axis.out,), sum_of_weights, "total_weight")
    share = emit(scope, (axis.out, taps), lambda i: div(weights.at(i), total.at(i[:1])), "share")

    def body(i: Indices) -> Expr:
        k = Axis("k", taps)
        place = i[position]
        indices = (*i[:position], axis.clamp(at(place, k.dim)), *i[position + 1 :])
        return reduce("sum", (k,), mul(source(indices), share.at((place, k.dim))))

    return body


def _nearest(axes: list[Resampling], indices: Indices, rounding: str) -> Indices:
    return tuple(
        place if axis.is_identity else axis.nearest(place, rounding) for axis, place in zip(axes, indices, strict=True)
    )

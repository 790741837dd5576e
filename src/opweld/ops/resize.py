"""Resize: nearest, linear and cubic resampling of any axes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from opweld.errors import ModelError, UnsupportedError
from opweld.ops.arithmetic import accumulator, add, mul, widen
from opweld.ops.emitted import Indices, define
from opweld.ops.fact import Fact
from opweld.ops.operands import describe, elements_of, given, known_numbers, normalize_axis, require_rank, required
from opweld.ops.registry import Inference, Lowering, attribute, infers, lowers
from opweld.ops.resample import COORDINATES, ROUNDINGS, Resampling
from opweld.tensor.dim import Dim, as_dim, floordiv
from opweld.tensor.expr import Expr


def _mode(node: ir.Node) -> str:
    mode = str(attribute(node, "mode", "nearest"))
    if mode not in ("nearest", "linear", "cubic"):
        raise ModelError(f"{describe(node)}: mode {mode!r} is none of nearest, linear, cubic")
    return mode


def _coordinates(node: ir.Node) -> str:
    name = str(attribute(node, "coordinate_transformation_mode", "half_pixel"))
    if node.op_type == "Upsample":
        return "asymmetric"
    if name not in COORDINATES:
        raise UnsupportedError(
            f"{describe(node)}: coordinate_transformation_mode {name!r} is not supported yet; "
            f"use one of {', '.join(COORDINATES)}"
        )
    return name


def _check(node: ir.Node) -> None:
    """UnsupportedError for what is not there yet."""
    if attribute(node, "antialias", 0):
        raise UnsupportedError(f"{describe(node)}: antialias is not supported yet. Export with antialias off.")
    if attribute(node, "exclude_outside", 0) and _mode(node) == "cubic":
        raise UnsupportedError(f"{describe(node)}: exclude_outside is not supported yet. Export with it off.")


def resamplings(scope: Inference | Lowering, node: ir.Node, shape: Sequence[Dim]) -> list[Resampling]:
    """One resampling an axis of the input, from sizes or scales."""
    _check(node)
    coordinates = _coordinates(node)
    listed = attribute(node, "axes", None)
    axes = [normalize_axis(a, len(shape), node) for a in (range(len(shape)) if listed is None else listed)]
    upsample = node.op_type == "Upsample"
    scales, sizes = given(node, 1 if upsample else 2), None if upsample else given(node, 3)
    result = [Resampling.to_size(dim, dim, coordinates) for dim in shape]
    known_scales = None if scales is None else _scales(scope, node, scales)
    if known_scales is not None and known_scales.size:
        for axis, scale in zip(_matched(axes, known_scales.size, node), known_scales.flat, strict=True):
            result[axis] = Resampling.by_scale(shape[axis], float(scale), coordinates)
        return result
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
    policy = attribute(node, "keep_aspect_ratio_policy", "stretch")
    if policy != "stretch":
        return _proportional(node, policy, shape, resized, coordinates)
    for axis, size in resized.items():
        result[axis] = Resampling.to_size(shape[axis], size, coordinates)
    return result


def _matched(axes: list[int], given_numbers: int, node: ir.Node) -> list[int]:
    if given_numbers != len(axes):
        raise ModelError(f"{describe(node)}: {given_numbers} scales or sizes for {len(axes)} axes")
    return axes


def _scales(scope: Inference | Lowering, node: ir.Node, scales: ir.Value) -> np.ndarray:
    known = known_numbers(scope, scales)
    if known is None:
        raise UnsupportedError(
            f"{describe(node)}: the scales {scales.name!r} must be known when compiling. Export with sizes or with "
            f"constant scales."
        )
    if not np.all(known > 0) or not np.all(np.isfinite(known)):
        raise ModelError(f"{describe(node)}: scales must be positive numbers, got {known.tolist()}")
    return known


def _proportional(
    node: ir.Node, policy: str, shape: Sequence[Dim], sizes: dict[int, Dim], coordinates: str
) -> list[Resampling]:
    """One scale for all axes: the smallest (not_larger) or the largest (not_smaller) of size / dim."""
    known = {axis: (size.constant, shape[axis].constant) for axis, size in sizes.items()}
    ratios = {axis: (s, d) for axis, (s, d) in known.items() if s is not None and d is not None}
    if len(ratios) < len(known) or policy not in ("not_larger", "not_smaller"):
        raise UnsupportedError(f"{describe(node)}: keep_aspect_ratio_policy {policy!r} needs fixed sizes; use --dim")
    pick = min if policy == "not_larger" else max
    s, d = pick(ratios.values(), key=lambda pair: pair[0] / pair[1])
    result = [Resampling.to_size(dim, dim, coordinates) for dim in shape]
    for axis in sizes:
        rounded = floordiv(shape[axis] * (2 * s) + d, 2 * d)
        result[axis] = Resampling(shape[axis], rounded, as_dim(s), as_dim(d), coordinates)
    return result


@infers("Resize", "Upsample")
def infer_resize(scope: Inference, node: ir.Node) -> list[Fact]:
    """Each axis takes its new size."""
    x = require_rank(scope.fact(required(node, 0)), 1, node)
    places = tuple(axis.out for axis in resamplings(scope, node, x.shape))
    for place in places:
        scope.at_least(place, 1, node, f"{describe(node)} must have an output")
    return [Fact(x.dtype, places)]


@lowers("Resize", "Upsample")
def lower_resize(scope: Lowering, node: ir.Node) -> None:
    """Nearest: a load at the nearest index. Else a weighted sum of loads, one axis inside the other."""
    value = required(node, 0)
    x = scope.fact(value)
    axes = resamplings(scope, node, x.shape)
    if _mode(node) == "nearest":
        rounding = str(attribute(node, "nearest_mode", "round_prefer_floor")) if node.op_type == "Resize" else "floor"
        if rounding not in ROUNDINGS:
            raise ModelError(f"{describe(node)}: nearest_mode {rounding!r} is none of {', '.join(ROUNDINGS)}")
        return define(scope, node.outputs[0], lambda i: scope.load(value, _nearest(axes, i, rounding)))
    cubic = float(attribute(node, "cubic_coeff_a", -0.75)) if _mode(node) == "cubic" else None
    dtype = accumulator(x.dtype)
    if not dtype.is_float:
        raise UnsupportedError(
            f"{describe(node)}: only floats are interpolated, not {dtype!r}. Cast the input to fp32."
        )

    def mixed(i: Indices, axis: int, chosen: tuple[Dim, ...]) -> Expr:
        if axis == len(axes):
            return widen(scope.load(value, chosen))
        if axes[axis].is_identity:
            return mixed(i, axis + 1, (*chosen, i[axis]))
        taps = axes[axis].taps(i[axis], dtype, cubic)
        terms = [mul(mixed(i, axis + 1, (*chosen, index)), weight) for index, weight in taps]
        total = terms[0]
        for term in terms[1:]:
            total = add(total, term)
        return total

    return define(scope, node.outputs[0], lambda i: mixed(i, 0, ()))


def _nearest(axes: list[Resampling], indices: Indices, rounding: str) -> Indices:
    return tuple(
        place if axis.is_identity else axis.nearest(place, rounding) for axis, place in zip(axes, indices, strict=True)
    )

"""Resize of a crop of each axis whose bounds are in a tensor (tf_crop_and_resize): positions are computed at run
time."""

from __future__ import annotations

import itertools
from functools import reduce

from opweld import ir
from opweld.ops.arithmetic import accumulator, add, count, larger, mul, number, smaller, sub, where, widen
from opweld.ops.emitted import Emitted, Indices, define, emit
from opweld.ops.grid_sample import taps_around
from opweld.ops.operands import normalize_axis, required
from opweld.ops.registry import Lowering, attribute
from opweld.tensor.dim import Dim, Value, as_dim
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, binary, cast, const, unary

CROP = "tf_crop_and_resize"


def lower_crop(scope: Lowering, node: ir.Node, mode: str, rounding: str) -> None:
    """The interpolated elements at position * (end - start) * (size - 1) / (out - 1) + start * (size - 1) of each axis
    where that is within the axis, else the extrapolation value."""
    value = required(node, 0)
    fact, out = scope.fact(value), scope.fact(node.outputs[0]).shape
    dtype = accumulator(scope.fact(required(node, 1)).dtype)
    listed = attribute(node, "axes", None)
    axes = [normalize_axis(axis, fact.rank, node) for axis in (range(fact.rank) if listed is None else listed)]
    places = {
        axis: _places(scope, node, position, len(axes), fact.shape[axis], out[axis], dtype)
        for position, axis in enumerate(axes)
    }
    coefficient = float(attribute(node, "cubic_coeff_a", -0.75))
    outside_value = float(attribute(node, "extrapolation_value", 0.0))

    def pixels(axis: int, place: Expr) -> list[tuple[Dim, Expr | None]]:
        last = count(fact.shape[axis] - 1, dtype)
        found = [(_rounded(place, rounding), None)] if mode == "nearest" else taps_around(place, mode, coefficient)
        # larger(NaN, 0) is NaN, hence a comparison.
        kept = [(smaller(where(binary("gt", at, number(0, at)), at, 0), last), weight) for at, weight in found]
        return [(Value(cast(at, DType.I64), fact.shape[axis]).dim, weight) for at, weight in kept]

    def body(i: Indices) -> Expr:
        at = {axis: found.at((i[axis],)) for axis, found in places.items()}
        taps = [pixels(axis, at[axis]) if axis in at else [(i[axis], None)] for axis in range(fact.rank)]
        terms: list[Expr] = []
        for chosen in itertools.product(*taps):
            element = scope.load(value, [index for index, _ in chosen])
            weights = [cast(weight, widen(element).dtype) for _, weight in chosen if weight is not None]
            terms.append(reduce(mul, weights, widen(element) if weights else element))
        total = reduce(add, terms)
        inside = [
            test
            for axis, place in at.items()
            for test in (
                binary("ge", place, number(0, place)),
                binary("le", place, count(fact.shape[axis] - 1, dtype)),
            )
        ]
        return where(reduce(lambda a, b: binary("and", a, b), inside), total, const(outside_value, total.dtype))

    define(scope, node.outputs[0], body)


def _places(scope: Lowering, node: ir.Node, position: int, axes: int, size: Dim, out: Dim, dtype: DType) -> Emitted:
    """The input position of each output position along one axis."""
    roi = required(node, 1)

    def body(i: Indices) -> Expr:
        start, end = (cast(scope.load(roi, (as_dim(at),)), dtype) for at in (position, axes + position))
        last = count(size - 1, dtype)
        across = mul(sub(end, start), last)
        middle = mul(across, 0.5)
        step = mul(across, count(i[0], dtype))
        spread = binary("div", step, larger(count(out - 1, dtype), 1))
        single = binary("eq", count(out, dtype), const(1, dtype))
        return add(where(single, middle, spread), mul(start, last))

    return emit(scope, (out,), body, "place")


def _rounded(place: Expr, rounding: str) -> Expr:
    if rounding in ("floor", "ceil"):
        return unary(rounding, place)
    if rounding == "round_prefer_floor":
        return unary("ceil", sub(place, 0.5))
    return unary("floor", add(place, 0.5))

"""Pooling: the largest, the mean or the norm of the elements in a window, or of all spatial elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from opweld import ir
from opweld.errors import ModelError, UnsupportedError
from opweld.ops.arithmetic import add, apply, count, div, larger, mul, root, smaller, square, widen
from opweld.ops.conv import convolution_axes, spatial_axes
from opweld.ops.emitted import Emitted, Indices, define
from opweld.ops.fact import Fact
from opweld.ops.operands import describe, require_rank, required, wanted
from opweld.ops.registry import Inference, Lowering, attribute, infers, lowers
from opweld.ops.window import Window, kernel_shape, require_room, windows_of
from opweld.tensor.dim import ONE, Axis, Dim, as_dim, nonnegative, product
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, cast, const, index, load, reduce, unary

MAX_TAPS = 1 << 24
"""The most elements of a window. A mean over a large image has a few million."""


@infers("MaxPool", "AveragePool", "LpPool")
def infer_pool(scope: Inference, node: ir.Node) -> list[Fact]:
    """[N, C, spatial...] -> [N, C, places...], and the indices of the largest elements"""
    x = require_rank(scope.fact(required(node, 0)), 3, node)
    windows = windows_of(node, x.shape[2:], kernel_shape(node, x.rank - 2))
    require_room(scope, node, [window for window in windows if window.room.constant is None])
    places = tuple(window.out for window in windows)
    for window, place in zip(windows, places, strict=True):
        if window.room.constant is not None and not nonnegative(place):
            raise ModelError(
                f"{describe(node)}: a window that reaches over {window.reach} must fit its padded input of "
                f"{window.room + window.reach}, or lack less than two strides"
            )
    _check_windows(node, windows, places)
    shape = (*x.shape[:2], *places)
    return [Fact(x.dtype, shape), Fact(DType.I64, shape)][: len(node.outputs)]


def _check_windows(node: ir.Node, windows: Sequence[Window], places: Sequence[Dim]) -> None:
    """A window on padding alone has no largest element and no mean; one of unbounded size does not terminate."""
    if attribute(node, "auto_pad", "NOTSET") == "NOTSET":
        for window in windows:
            if not all(nonnegative(window.reach - 1 - padding) for padding in (window.before, window.after)):
                raise ModelError(
                    f"{describe(node)}: pads of {window.before} and {window.after} must be smaller than the window, "
                    f"which reaches over {window.reach}"
                )
    taps = product(window.reached(extent)[1] for window, extent in zip(windows, places, strict=True)).constant or 0
    if taps > MAX_TAPS:
        raise UnsupportedError(
            f"{describe(node)}: a window of {taps:,} elements is larger than opweld takes ({MAX_TAPS:,}). "
            "Fix the sizes of its input (dims={NAME: N}, --dim NAME=N) if it is mostly padding."
        )


@lowers("MaxPool")
def lower_max_pool(scope: Lowering, node: ir.Node) -> None:
    """The largest element in the window; padding is never the largest."""
    dtype = scope.fact(required(node, 0)).dtype
    if wanted(node, 0) is not None:
        axes, taps, element, _ = _windowed(scope, node, lowest(dtype))
        scope.result(node.outputs[0], axes, reduce("max", taps, element))
    indices = wanted(node, 1)
    if indices is not None:
        _define_indices(scope, node, indices)


def _define_indices(scope: Lowering, node: ir.Node, indices: ir.Value) -> None:
    """The linear index, in the whole input, of the largest element: the first one, in the order of the taps. Spatial
    axes are in row-major order, or in column-major order (`storage_order`)."""
    x = scope.fact(required(node, 0))
    sizes = x.shape[2:]
    windows = windows_of(node, sizes, kernel_shape(node, len(sizes)))
    axes, taps, element, _ = _windowed(scope, node, lowest(x.dtype))
    first = Emitted(scope.emit(axes, reduce("argmax", taps, element), "first_tap"), DType.I64)
    by_columns = bool(attribute(node, "storage_order", 0))

    def body(at: Indices) -> Expr:
        n, c, *places = at
        found = index((n * x.shape[1] + c) * product(sizes))
        for axis, (window, place) in enumerate(zip(windows, places, strict=True)):
            faster = index(product(other.extent for other in taps[axis + 1 :]))
            tap = apply("mod", apply("div", first.at(at), faster), index(taps[axis].extent))
            skipped, _ = window.reached(axes[2 + axis].extent)
            along = add(index(window.tap(place, as_dim(skipped))), mul(tap, window.dilation))
            if window.guards(place, taps[axis].dim):
                # Where no element is larger than the padding's value, the first tap may be padding.
                along = smaller(larger(along, 0), index(window.size - 1))
            found = add(found, mul(along, index(product(sizes[:axis] if by_columns else sizes[axis + 1 :]))))
        return found

    define(scope, indices, body)


@lowers("AveragePool")
def lower_average_pool(scope: Lowering, node: ir.Node) -> None:
    """The sum over the window, divided by the number of taps that count."""
    dtype = scope.fact(required(node, 0)).dtype
    axes, taps, element, _ = _windowed(scope, node, None)
    total = scope.emit(axes, reduce("sum", taps, widen(element)), "total")
    axes, _, _, counted = _windowed(scope, node, None)
    summed = load(total, widen(element).dtype, tuple(axis.dim for axis in axes))
    scope.result(node.outputs[0], axes, cast(div(summed, count(product(counted), summed.dtype)), dtype))


@lowers("LpPool")
def lower_lp_pool(scope: Lowering, node: ir.Node) -> None:
    """The p-norm of the elements in the window."""
    axes, taps, element, _ = _windowed(scope, node, None)
    inner, outer = norm_parts(node, int(attribute(node, "p", 2)))
    _reduced(scope, node, axes, reduce("sum", taps, inner(widen(element))), outer)


def _windowed(
    scope: Lowering, node: ir.Node, fill: Expr | None
) -> tuple[tuple[Axis, ...], tuple[Axis, ...], Expr, list[Dim]]:
    """The axes of the output, those of the taps, the element of a tap, and the taps that count along each axis."""
    value = required(node, 0)
    x = scope.fact(value)
    windows = windows_of(node, x.shape[2:], kernel_shape(node, x.rank - 2))
    axes = n, c, *places = convolution_axes(scope.fact(node.outputs[0]).shape)
    reached = [window.reached(place.extent) for window, place in zip(windows, places, strict=True)]
    taps = tuple(spatial_axes("k", [count for _, count in reached]))
    steps = [
        (window, place.dim, tap.dim + first)
        for window, place, tap, (first, _) in zip(windows, places, taps, reached, strict=True)
    ]
    indices = [n.dim, c.dim, *(window.tap(place, tap) for window, place, tap in steps)]
    guards = [guard for window, place, tap in steps for guard in window.guards(place, tap)]
    with_padding = bool(attribute(node, "count_include_pad", 0))
    counted = [window.taps(place, with_padding) for window, place, _ in steps]
    return axes, taps, scope.load(value, indices, guards, fill), counted


def lowest(dtype: DType) -> Expr:
    """The identity of maximum: the lowest value of the dtype."""
    if dtype.is_float:
        return const(-math.inf, dtype)
    return const(False if dtype is DType.BOOL else dtype.limits[0], dtype)


def norm_parts(node: ir.Node, p: int) -> tuple[Callable[[Expr], Expr], Callable[[Expr], Expr]]:
    """(the function of each element, the function of their sum) for the p-norm."""
    if p < 1:
        raise ModelError(f"{describe(node)}: the p of a norm must be at least 1, got {p}")
    if p == 1:
        return (lambda x: unary("abs", x)), (lambda x: x)
    if p == 2:
        return square, root
    return (lambda x: _power(unary("abs", x), p)), (lambda x: apply("pow", x, 1 / p))


def _power(x: Expr, p: int) -> Expr:
    """x to the power of p >= 1, by squaring."""
    if p == 1:
        return x
    even = square(_power(x, p // 2))
    return mul(even, x) if p % 2 else even


@infers("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def infer_global_pool(scope: Inference, node: ir.Node) -> list[Fact]:
    """[N, C, spatial...] -> [N, C, 1...]"""
    x = require_rank(scope.fact(required(node, 0)), 2, node)
    if node.op_type != "GlobalMaxPool" and not x.dtype.is_float:
        raise ModelError(f"{describe(node)}: expected a floating-point input, got {x.dtype!r}")
    return [Fact(x.dtype, (*x.shape[:2], *(ONE for _ in x.shape[2:])))]


@lowers("GlobalAveragePool")
def lower_global_average_pool(scope: Lowering, node: ir.Node) -> None:
    """The mean over all spatial axes."""
    axes, summed, element = _global(scope, node)
    extent = product(axis.extent for axis in summed)
    _reduced(scope, node, axes, reduce("sum", summed, widen(element)), lambda x: div(x, count(extent, x.dtype)))


@lowers("GlobalMaxPool")
def lower_global_max_pool(scope: Lowering, node: ir.Node) -> None:
    """The maximum over all spatial axes."""
    axes, taps, element = _global(scope, node)
    scope.result(node.outputs[0], axes, reduce("max", taps, element))


@lowers("GlobalLpPool")
def lower_global_lp_pool(scope: Lowering, node: ir.Node) -> None:
    """The p-norm over all spatial axes."""
    axes, taps, element = _global(scope, node)
    inner, outer = norm_parts(node, int(attribute(node, "p", 2)))
    _reduced(scope, node, axes, reduce("sum", taps, inner(widen(element))), outer)


def _global(scope: Lowering, node: ir.Node) -> tuple[tuple[Axis, ...], tuple[Axis, ...], Expr]:
    value = required(node, 0)
    axes = n, c, *_ = convolution_axes(scope.fact(node.outputs[0]).shape)
    taps = tuple(spatial_axes("k", scope.fact(value).shape[2:]))
    return axes, taps, scope.load(value, [n.dim, c.dim, *(tap.dim for tap in taps)])


def _reduced(scope: Lowering, node: ir.Node, axes: Sequence[Axis], total: Expr, finish: Callable[[Expr], Expr]) -> None:
    """Defines the output as a function of a reduction, which is a tensor of its own."""
    name = scope.emit(axes, total, "total")
    axes = convolution_axes([axis.extent for axis in axes])
    finished = finish(load(name, total.dtype, tuple(axis.dim for axis in axes)))
    scope.result(node.outputs[0], axes, cast(finished, scope.fact(node.outputs[0]).dtype))

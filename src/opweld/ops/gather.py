"""Operators that read at computed indices: Gather, GatherElements, GatherND, OneHot."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from opweld import ir
from opweld.errors import ModelError, UnsupportedError
from opweld.ops.elements import known_integers_of
from opweld.ops.emitted import Indices, define
from opweld.ops.expansion import Expansion
from opweld.ops.fact import Elements, Fact
from opweld.ops.indices import from_the_front
from opweld.ops.known import required_dims
from opweld.ops.operands import describe, elements_of, normalize_axis, require_rank, required
from opweld.ops.registry import Inference, Lowering, attribute, infers, lowers
from opweld.tensor.dim import ZERO, Dim, Value, as_dim, nonnegative
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Const, Expr, binary, cast, index, select


@infers("Gather")
def infer_gather(scope: Inference, node: ir.Node) -> list[Fact]:
    """The shape of the data with the axis replaced by the shape of the indices."""
    data, indices = scope.fact(required(node, 0)), _indices(scope, node, 1)
    axis = normalize_axis(attribute(node, "axis", 0), data.rank, node)
    _check_range(node, elements_of(indices), data.shape[axis])
    return [Fact(data.dtype, (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]))]


@lowers("Gather")
def lower_gather(scope: Lowering, node: ir.Node) -> None:
    """data[indices[...]] along the axis."""
    data, indices = required(node, 0), required(node, 1)
    shape, rank = scope.fact(data).shape, scope.fact(indices).rank
    axis = normalize_axis(attribute(node, "axis", 0), len(shape), node)

    def body(at: Indices) -> Expr:
        chosen = chosen_index(scope, indices, at[axis : axis + rank], shape[axis])
        return scope.load(data, (*at[:axis], chosen, *at[axis + rank :]))

    define(scope, node.outputs[0], body)


@infers("GatherElements")
def infer_gather_elements(scope: Inference, node: ir.Node) -> list[Fact]:
    """The shape of the indices."""
    data, indices = scope.fact(required(node, 0)), _indices(scope, node, 1)
    require_rank(indices, data.rank, node, data.rank)
    axis = normalize_axis(attribute(node, "axis", 0), data.rank, node)
    _check_range(node, elements_of(indices), data.shape[axis])
    for position, (inner, outer) in enumerate(zip(indices.shape, data.shape, strict=True)):
        if position != axis:
            scope.at_least(outer - inner, 0, node, f"the indices fit into axis {position} of the data")
    return [Fact(data.dtype, indices.shape)]


@lowers("GatherElements")
def lower_gather_elements(scope: Lowering, node: ir.Node) -> None:
    """The data at the same position, except along the axis, where the indices give it."""
    data, indices = required(node, 0), required(node, 1)
    shape = scope.fact(data).shape
    axis = normalize_axis(attribute(node, "axis", 0), len(shape), node)

    def body(at: Indices) -> Expr:
        return scope.load(data, (*at[:axis], chosen_index(scope, indices, at, shape[axis]), *at[axis + 1 :]))

    define(scope, node.outputs[0], body)


@infers("GatherND")
def infer_gather_nd(scope: Inference, node: ir.Node) -> list[Fact]:
    """The indices without their last axis, then the remaining axes of the data."""
    data, indices = scope.fact(required(node, 0)), _indices(scope, node, 1)
    batch = int(attribute(node, "batch_dims", 0))
    require_rank(indices, 1, node)
    depth = indices.shape[-1].constant
    if depth is None:
        raise UnsupportedError(f"{describe(node)}: the last dim of the indices must be a known number")
    if not 0 <= batch < min(indices.rank, data.rank) or not 1 <= depth <= data.rank - batch:
        raise ModelError(
            f"{describe(node)}: indices of shape {list(indices.shape)} do not fit data of rank {data.rank}"
        )
    shape = [
        scope.same(outer, inner, node, f"batch axis {position}")
        for position, (outer, inner) in enumerate(zip(data.shape[:batch], indices.shape[:batch], strict=True))
    ]
    elements = elements_of(indices)
    for position in range(depth):
        part = None if elements is None else elements[..., position]
        _check_range(node, part, data.shape[batch + position])
    return [Fact(data.dtype, (*shape, *indices.shape[batch:-1], *data.shape[batch + depth :]))]


@lowers("GatherND")
def lower_gather_nd(scope: Lowering, node: ir.Node) -> None:
    """The data at the indices that the last axis of the indices lists."""
    data, indices = required(node, 0), required(node, 1)
    batch = int(attribute(node, "batch_dims", 0))
    shape, inner = scope.fact(data).shape, scope.fact(indices).shape
    depth, outer = int(inner[-1]), len(inner) - 1

    def body(at: Indices) -> Expr:
        chosen = [
            chosen_index(scope, indices, (*at[:outer], as_dim(position)), shape[batch + position])
            for position in range(depth)
        ]
        return scope.load(data, (*at[:batch], *chosen, *at[outer:]))

    define(scope, node.outputs[0], body)


@infers("OneHot")
def infer_one_hot(scope: Inference, node: ir.Node) -> list[Fact]:
    """The shape of the indices with an axis of size depth; the dtype of the two values."""
    indices, values = scope.fact(required(node, 0)), scope.fact(required(node, 2))
    if values.rank != 1 or values.shape[0].constant not in (2, None):
        raise ModelError(f"{describe(node)}: expected two values (off, on), got shape {list(values.shape)}")
    scope.same(values.shape[0], as_dim(2), node, "there are two values, off and on")
    if scope.fact(required(node, 1)).dtype.is_float:
        return _hot_as_cast(scope, node)
    (depth,) = required_dims(scope, node, 1, "the depth")
    if not nonnegative(depth):
        scope.at_least(depth, 1, node, "the depth")
    axis = normalize_axis(attribute(node, "axis", -1), indices.rank + 1, node)
    return [Fact(values.dtype, (*indices.shape[:axis], depth, *indices.shape[axis:]))]


def _hot_as_cast(scope: Inference, node: ir.Node) -> list[Fact]:
    """OneHot with a depth that is a float cast to an integer."""
    made = Expansion(node)
    indices, depth, values = (required(node, position) for position in range(3))
    (whole,) = made.emit("Cast", depth, to=DType.I64.onnx)
    return made.infer(scope, *made.emit("OneHot", indices, whole, values, axis=attribute(node, "axis", -1)))


@lowers("OneHot")
def lower_one_hot(scope: Lowering, node: ir.Node) -> None:
    """The on value where the index along the new axis equals the element of the indices, else the off value."""
    indices, values = required(node, 0), required(node, 2)
    axis = normalize_axis(attribute(node, "axis", -1), scope.fact(indices).rank + 1, node)
    depth = scope.fact(node.outputs[0]).shape[axis]

    def body(at: Indices) -> Expr:
        hot = from_the_front(cast(scope.load(indices, (*at[:axis], *at[axis + 1 :])), DType.I64), depth)
        return select(binary("eq", hot, index(at[axis])), scope.load(values, (1,)), scope.load(values, (0,)))

    define(scope, node.outputs[0], body)


def chosen_index(scope: Lowering, indices: ir.Value, at: Sequence[Dim], extent: Dim) -> Dim:
    """The index into an axis of the given extent that a tensor of indices holds; negative ones count from the end.

    Indices known at compile time become index arithmetic if they are affine in their own indices (one number, or evenly
    spaced ones). All others are run-time values, which compiled code checks before it uses them.
    """
    elements = elements_of(scope.fact(indices))
    if elements is not None:
        known = _affine(elements, at, extent)
        if known is not None:
            return known
    expr = from_the_front(cast(scope.load(indices, at), DType.I64), extent)
    if isinstance(expr, Const) and nonnegative(extent - 1 - int(expr.value)):
        return as_dim(int(expr.value))
    return Value(expr, extent).dim


def _affine(elements: Elements, at: Sequence[Dim], extent: Dim) -> Dim | None:
    """first + sum of step * index, if the elements have that form and are within the axis."""
    fixed = tuple(dim.constant if dim.constant is not None else slice(None) for dim in at)
    part = np.asarray(elements[fixed], object)
    free = [dim for dim in at if dim.constant is None]
    if part.size == 0:
        return ZERO
    if part.size == 1:
        only = part.reshape(-1)[0]
        only = extent + only if nonnegative(-only - 1) else only
        return only if nonnegative(only) and nonnegative(extent - 1 - only) else None
    known = known_integers_of(part)
    if known is None:
        return None
    values = np.array(known, np.int64).reshape(part.shape)
    if (values < 0).all():
        first = extent + int(values.flat[0])
    elif (values >= 0).all():
        first = as_dim(int(values.flat[0]))
    else:
        return None
    origin = (0,) * values.ndim
    steps = [
        int(values[tuple(int(a == axis) for a in range(values.ndim))] - values[origin]) if values.shape[axis] > 1 else 0
        for axis in range(values.ndim)
    ]
    expected = values[origin] + sum(
        step * grid for step, grid in zip(steps, np.indices(values.shape, sparse=True), strict=True)
    )
    if not np.array_equal(np.broadcast_to(expected, values.shape), values):
        return None
    if not (
        nonnegative(extent - 1 - int(values.max())) if values.flat[0] >= 0 else nonnegative(extent + int(values.min()))
    ):
        return None
    total = first
    for step, dim in zip(steps, free, strict=True):
        total = total + dim * step
    return total


def _indices(scope: Inference, node: ir.Node, position: int) -> Fact:
    fact = scope.fact(required(node, position))
    if fact.dtype not in (DType.I32, DType.I64):
        raise ModelError(f"{describe(node)}: the indices must be int32 or int64, got {fact.dtype!r}")
    return fact


def _check_range(node: ir.Node, elements: Elements | None, extent: Dim) -> None:
    """Refuses known indices that are certainly out of range; unknown ones are checked when the model runs."""
    size = extent.constant
    if elements is None or size is None:
        return
    for element in elements.flat:
        if element.constant is not None and not -size <= element.constant < size:
            raise ModelError(f"{describe(node)}: index {element} is out of range for an axis of size {size}")

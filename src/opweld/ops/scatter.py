"""Operators that write at computed indices: ScatterElements, ScatterND, MaxUnpool.

Each computes the linear index of every update; updates of one element are combined in order, by `reduction`.
"""

from __future__ import annotations

from opweld import ir
from opweld.errors import ModelError, UnsupportedError
from opweld.ops.emitted import Emitted, Indices, emit
from opweld.ops.fact import Fact
from opweld.ops.indices import from_the_front
from opweld.ops.known import known_dims
from opweld.ops.operands import describe, normalize_axis, require_rank, require_same_dtype, required
from opweld.ops.registry import Inference, Lowering, attribute, fresh_axes, infers, lowers
from opweld.tensor.dim import ONE, ZERO, Dim, as_dim, product, row_major
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, binary, cast, const, index, select

_REDUCTIONS = ("none", "add", "mul", "min", "max")


# ---------------------------------------------------------------------------------------------------- ScatterElements


@infers("ScatterElements", "Scatter")
def infer_scatter_elements(scope: Inference, node: ir.Node) -> list[Fact]:
    """The shape of the data."""
    data, indices, updates = _operands(scope, node)
    require_rank(data, 1, node)
    require_rank(indices, data.rank, node, data.rank)
    _same_shape(scope, node, indices.shape, updates.shape)
    axis = normalize_axis(attribute(node, "axis", 0), data.rank, node)
    for position, (inner, outer) in enumerate(zip(indices.shape, data.shape, strict=True)):
        if position != axis:
            scope.at_least(outer - inner, 0, node, f"the indices fit into axis {position} of the data")
    return [Fact(data.dtype, data.shape)]


@lowers("ScatterElements", "Scatter")
def lower_scatter_elements(scope: Lowering, node: ir.Node) -> None:
    """Each update goes to its own position, except along the axis, where the indices give it."""
    indices = required(node, 1)
    shape = scope.fact(required(node, 0)).shape
    axis = normalize_axis(attribute(node, "axis", 0), len(shape), node)

    def place(at: Indices) -> Expr:
        rest = row_major((*at[:axis], ZERO, *at[axis + 1 :]), shape)
        chosen = _within(cast(scope.load(indices, at), DType.I64), shape[axis])
        found = binary("add", binary("mul", chosen, index(product(shape[axis + 1 :]))), index(rest))
        return select(binary("lt", chosen, const(0, DType.I64)), const(-1, DType.I64), found)

    count = scope.fact(indices).shape
    _scatter(scope, node, emit(scope, count, place, "places"), product(count), ONE)


# ---------------------------------------------------------------------------------------------------------- ScatterND


@infers("ScatterND")
def infer_scatter_nd(scope: Inference, node: ir.Node) -> list[Fact]:
    """The shape of the data."""
    data, indices, updates = _operands(scope, node)
    require_rank(indices, 1, node)
    depth = _depth(node, indices, data)
    _same_shape(scope, node, (*indices.shape[:-1], *data.shape[depth:]), updates.shape)
    return [Fact(data.dtype, data.shape)]


@lowers("ScatterND")
def lower_scatter_nd(scope: Lowering, node: ir.Node) -> None:
    """Each slice of the updates goes to the position that a row of the indices gives."""
    data, indices = scope.fact(required(node, 0)), required(node, 1)
    fact = scope.fact(indices)
    depth = _depth(node, fact, data)

    def place(at: Indices) -> Expr:
        found, bad = const(0, DType.I64), const(False, DType.BOOL)
        for position in range(depth):
            given_index = cast(scope.load(indices, (*at, as_dim(position))), DType.I64)
            chosen = _within(given_index, data.shape[position])
            bad = binary("or", bad, binary("lt", chosen, const(0, DType.I64)))
            step = index(product(data.shape[position + 1 :]))
            found = binary("add", found, binary("mul", chosen, step))
        return select(bad, const(-1, DType.I64), found)

    places = emit(scope, fact.shape[:-1], place, "places")
    _scatter(scope, node, places, product(fact.shape[:-1]), product(data.shape[depth:]))


def _depth(node: ir.Node, indices: Fact, data: Fact) -> int:
    """The number of axes of the data that a row of the indices selects."""
    depth = indices.shape[-1].constant
    if depth is None:
        raise UnsupportedError(f"{describe(node)}: the last dim of the indices must be a known number")
    if not 0 <= depth <= data.rank:
        raise ModelError(
            f"{describe(node)}: indices of shape {list(indices.shape)} do not fit data of rank {data.rank}"
        )
    return depth


# ---------------------------------------------------------------------------------------------------------- MaxUnpool


@infers("MaxUnpool")
def infer_max_unpool(scope: Inference, node: ir.Node) -> list[Fact]:
    """The shape before pooling: given, or the smallest one that pools to this shape."""
    x, places = scope.fact(required(node, 0)), scope.fact(required(node, 1))
    require_rank(x, 3, node)
    _same_shape(scope, node, x.shape, places.shape)
    output = known_dims(scope, node, 2, "the output shape")
    if output is not None:
        if len(output) != x.rank:
            raise ModelError(f"{describe(node)}: the output shape has {len(output)} dims, the input {x.rank}")
        return [Fact(x.dtype, tuple(output))]
    return [Fact(x.dtype, _unpooled(node, x))]


@lowers("MaxUnpool")
def lower_max_unpool(scope: Lowering, node: ir.Node) -> None:
    """Each element goes to its index; all others are zero."""
    x, places = required(node, 0), required(node, 1)
    fact, output = scope.fact(x), scope.fact(node.outputs[0]).shape
    # Indices are relative to the assumed size before pooling, which may differ from the given one.
    assumed = _unpooled(node, fact)

    def place(at: Indices) -> Expr:
        found = cast(scope.load(places, at), DType.I64)
        if assumed == output:
            return found
        total, outer = const(0, DType.I64), ONE
        inner = ONE
        for old, new in zip(reversed(assumed), reversed(output), strict=True):
            digit = binary("mod", binary("div", found, index(outer)), index(old))
            total = binary("add", total, binary("mul", digit, index(inner)))
            outer, inner = outer * old, inner * new
        return total

    data = emit(scope, output, lambda at: const(0, fact.dtype), "zeros")
    updates = emit(scope, fact.shape, lambda at: scope.load(x, at), "updates")
    where = emit(scope, fact.shape, place, "places")
    _write(scope, node, "none", data, where, updates, product(output), product(fact.shape), ONE)


def _unpooled(node: ir.Node, x: Fact) -> tuple[Dim, ...]:
    kernel = attribute(node, "kernel_shape", None)
    rank = x.rank - 2
    if kernel is None or len(kernel) != rank:
        raise ModelError(f"{describe(node)}: kernel_shape must have {rank} numbers")
    strides = attribute(node, "strides", None) or [1] * rank
    pads = attribute(node, "pads", None) or [0] * (2 * rank)
    if len(strides) != rank or len(pads) != 2 * rank:
        raise ModelError(f"{describe(node)}: strides and pads must have {rank} and {2 * rank} numbers")
    sizes = (
        (dim - 1) * stride + size - pads[axis] - pads[axis + rank]
        for axis, (dim, stride, size) in enumerate(zip(x.shape[2:], strides, kernel, strict=True))
    )
    return (*x.shape[:2], *sizes)


# -------------------------------------------------------------------------------------------------------------- common


def _operands(scope: Inference, node: ir.Node) -> tuple[Fact, Fact, Fact]:
    data, indices, updates = (scope.fact(required(node, position)) for position in range(3))
    require_same_dtype((data, updates), node)
    if not indices.dtype.is_integer:
        raise ModelError(f"{describe(node)}: the indices must be integers, got {indices.dtype!r}")
    kind = attribute(node, "reduction", "none")
    if kind not in _REDUCTIONS:
        raise ModelError(f"{describe(node)}: reduction {kind!r} is none of {', '.join(_REDUCTIONS)}")
    return data, indices, updates


def _same_shape(scope: Inference, node: ir.Node, wanted: tuple[Dim, ...], got: tuple[Dim, ...]) -> None:
    if len(wanted) != len(got):
        raise ModelError(f"{describe(node)}: updates of shape {list(got)} where {list(wanted)} is expected")
    for axis, (a, b) in enumerate(zip(wanted, got, strict=True)):
        scope.same(a, b, node, f"axis {axis} of the updates")


def _within(chosen: Expr, extent: Dim) -> Expr:
    """An index counted from the front, -1 where it is out of range."""
    none, size = const(-1, DType.I64), index(extent)
    counted = from_the_front(chosen, extent)
    outside = binary("or", binary("lt", counted, const(0, DType.I64)), binary("ge", counted, size))
    return select(outside, none, counted)


def _scatter(scope: Lowering, node: ir.Node, places: Emitted, count: Dim, width: Dim) -> None:
    """Writes the updates, `width` elements at each of `count` linear indices."""
    data, updates = required(node, 0), required(node, 2)
    kind = attribute(node, "reduction", "none")
    dtype = scope.fact(data).dtype
    computed = dtype if kind == "none" else _computed(dtype)
    old, new = (
        emit(scope, scope.fact(value).shape, lambda at, value=value: cast(scope.load(value, at), computed), "operand")
        for value in (data, updates)
    )
    _write(scope, node, kind, old, places, new, product(scope.fact(data).shape), count, width)


def _computed(dtype: DType) -> DType:
    """The type in which updates are combined: a wider one for types without arithmetic of their own."""
    if dtype.is_float:
        return DType.F64 if dtype is DType.F64 else DType.F32
    return DType.U8 if dtype is DType.BOOL else dtype


def _write(
    scope: Lowering,
    node: ir.Node,
    kind: str,
    data: Emitted,
    places: Emitted,
    updates: Emitted,
    size: Dim,
    count: Dim,
    width: Dim,
) -> None:
    output = scope.fact(node.outputs[0])
    function = "scatter" if kind == "none" else f"scatter_{kind}"
    operands = [data.name, places.name, updates.name]
    (made,) = scope.extern(function, operands, [(data.dtype, output.shape)], (size, count, width))
    if data.dtype is output.dtype:
        scope.alias(node.outputs[0], made)
        return
    axes = fresh_axes(output.shape)
    element = Emitted(made, data.dtype).at([axis.dim for axis in axes])
    scope.result(node.outputs[0], axes, cast(element, output.dtype))

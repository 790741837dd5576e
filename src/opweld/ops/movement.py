"""Operators that move elements by index arithmetic alone: Transpose, Concat, Split, Expand, Tile, DepthToSpace."""

from __future__ import annotations

from collections.abc import Sequence

from opweld import ir
from opweld.errors import ModelError, UnsupportedError
from opweld.ops.emitted import Indices, define
from opweld.ops.fact import Fact
from opweld.ops.known import known_dims, require_length, required_dims
from opweld.ops.operands import describe, elements_of, given, normalize_axis, require_rank, require_same_dtype, required
from opweld.ops.registry import Inference, Lowering, attribute, infers, lowers, required_attribute
from opweld.tensor.dim import ONE, ZERO, Dim, ceildiv, floordiv, maximum, minimum, mod, nonnegative
from opweld.tensor.expr import Expr, at_least_zero, select


@infers("Transpose")
def infer_transpose(scope: Inference, node: ir.Node) -> list[Fact]:
    """The dims in the order of `perm`, reversed without it."""
    fact = scope.fact(required(node, 0))
    return [Fact(fact.dtype, tuple(fact.shape[axis] for axis in _permutation(node, fact.rank)))]


@lowers("Transpose")
def lower_transpose(scope: Lowering, node: ir.Node) -> None:
    """Axis `perm[i]` of the input is indexed by index i."""
    x = required(node, 0)
    order = _permutation(node, scope.fact(x).rank)
    if order == tuple(range(len(order))):
        scope.alias(node.outputs[0], scope.tensor(x))
        return
    define(scope, node.outputs[0], lambda at: scope.load(x, [at[order.index(axis)] for axis in range(len(order))]))


def _permutation(node: ir.Node, rank: int) -> tuple[int, ...]:
    order = tuple(attribute(node, "perm", None) or reversed(range(rank)))
    if sorted(order) != list(range(rank)):
        raise ModelError(f"{describe(node)}: perm {list(order)} is not a permutation of the {rank} axes of its input")
    return order


@infers("Concat")
def infer_concat(scope: Inference, node: ir.Node) -> list[Fact]:
    """The sum of the sizes along the axis; all others are equal."""
    facts = [scope.fact(value) for value in node.inputs]
    dtype, first = require_same_dtype(facts, node), facts[0]
    axis = normalize_axis(required_attribute(node, "axis"), first.rank, node)
    shape = list(first.shape)
    for fact in facts[1:]:
        require_rank(fact, first.rank, node, first.rank)
        for position, dim in enumerate(fact.shape):
            if position == axis:
                shape[axis] = shape[axis] + dim
            else:
                shape[position] = scope.same(
                    shape[position], dim, node, f"concatenated values agree in axis {position}"
                )
    return [Fact(dtype, tuple(shape))]


@lowers("Concat")
def lower_concat(scope: Lowering, node: ir.Node) -> None:
    """The input that contains the index, at the index within it."""
    axis = normalize_axis(required_attribute(node, "axis"), scope.fact(node.outputs[0]).rank, node)
    parts = [value for value in node.inputs if value is not None and scope.fact(value).shape[axis] is not ZERO]
    if len(parts) == 1:
        scope.alias(node.outputs[0], scope.tensor(parts[0]))
        return

    def body(at: Indices) -> Expr:
        start, starts = ZERO, list[Dim]()
        for value in parts:
            starts.append(start)
            start = start + scope.fact(value).shape[axis]
        loads = [
            scope.load(value, (*at[:axis], at[axis] - begin, *at[axis + 1 :]))
            for value, begin in zip(parts, starts, strict=True)
        ]
        result = loads[-1]
        for load, end in zip(reversed(loads[:-1]), reversed(starts[1:]), strict=True):
            result = select(at_least_zero(end - 1 - at[axis]), load, result)
        return result

    if not parts:
        parts = [required(node, 0)]
    define(scope, node.outputs[0], body)


@infers("Split")
def infer_split(scope: Inference, node: ir.Node) -> list[Fact]:
    """Parts along the axis: of the given sizes, or of equal sizes, of which the last may be smaller."""
    fact = scope.fact(required(node, 0))
    axis = normalize_axis(attribute(node, "axis", 0), fact.rank, node)
    extent, count = fact.shape[axis], len(node.outputs)
    require_length(scope, node, 1, count, "the sizes of the parts")
    sizes = known_dims(scope, node, 1, "the sizes of the parts")
    if sizes is None:
        if attribute(node, "num_outputs", count) != count:
            raise ModelError(
                f"{describe(node)}: num_outputs is {attribute(node, 'num_outputs', None)}, but it has {count} outputs"
            )
        chunk = ceildiv(extent, count) if extent.constant is not None else floordiv(extent, count)
        last = extent - chunk * (count - 1)
        if extent.constant is None:
            scope.same(chunk * count, extent, node, f"axis {axis} splits into {count} equal parts")
            last = chunk
        sizes = (*(chunk for _ in range(count - 1)), last)
    if len(sizes) != count:
        raise ModelError(f"{describe(node)}: {len(sizes)} sizes are given for {count} outputs")
    total = ZERO
    for size in sizes:
        if not nonnegative(size):
            scope.at_least(size, 0, node, "the size of a part")
        total = total + size
    scope.same(total, extent, node, f"the parts fill axis {axis}")
    return [Fact(fact.dtype, (*fact.shape[:axis], size, *fact.shape[axis + 1 :])) for size in sizes]


@lowers("Split")
def lower_split(scope: Lowering, node: ir.Node) -> None:
    """The input with an offset along the axis."""
    x = required(node, 0)
    axis = normalize_axis(attribute(node, "axis", 0), scope.fact(x).rank, node)
    start = ZERO
    for value in node.outputs:
        if value.name:
            _define_shifted(scope, value, x, axis, start)
        start = start + scope.fact(value).shape[axis]


def _define_shifted(scope: Lowering, value: ir.Value, x: ir.Value, axis: int, start: Dim) -> None:
    define(scope, value, lambda at: scope.load(x, (*at[:axis], at[axis] + start, *at[axis + 1 :])))


@infers("Expand")
def infer_expand(scope: Inference, node: ir.Node) -> list[Fact]:
    """The broadcast of the input's shape and the given one."""
    fact = scope.fact(required(node, 0))
    dims = required_dims(scope, node, 1, "the shape")
    rank = max(fact.rank, len(dims))
    pairs = zip(_padded(fact.shape, rank), _padded(dims, rank), strict=True)
    return [Fact(fact.dtype, tuple(_expanded(scope, node, size, dim) for size, dim in pairs))]


def _padded(shape: Sequence[Dim], rank: int) -> tuple[Dim, ...]:
    return (*(ONE for _ in range(rank - len(shape))), *shape)


def _expanded(scope: Inference, node: ir.Node, size: Dim, dim: Dim) -> Dim:
    """The size of an axis: that of the input, unless that is 1. A size that is an input of the model may be 1 where the
    input's is not."""
    fed = scope.is_data_dependent(dim)
    if fed and size.constant not in (None, 0, 1):
        scope.same((dim - 1) * (dim - size), ZERO, node, "a fed size is 1 or that of the axis")
        return size
    if not nonnegative(dim):
        scope.at_least(dim, 1, node, "a dim of the shape")
    if (
        fed
        and size.constant is None
        and not scope.expect(size - dim, "zero", node, "the axis has the size that is fed")
    ):
        scope.same((size - 1) * (dim - 1), ZERO, node, "one of two sizes that differ is 1")
        return maximum(size, dim)
    return scope.broadcast([(size,), (dim,)], node)[0]


@lowers("Expand")
def lower_expand(scope: Lowering, node: ir.Node) -> None:
    """The input, with axes of size 1 indexed by 0."""
    x, out = required(node, 0), scope.fact(node.outputs[0]).shape
    shape = scope.fact(x).shape
    if shape == out:
        scope.alias(node.outputs[0], scope.tensor(x))
        return
    own = slice(len(out) - len(shape), None)

    def body(at: Indices) -> Expr:
        # An axis whose size may be 1 at run time must not be read beyond its end.
        places = zip(at[own], shape, out[own], strict=True)
        return scope.load(x, [i if old in (new, ONE) else minimum(i, old - 1) for i, old, new in places])

    define(scope, node.outputs[0], body)


@infers("Tile")
def infer_tile(scope: Inference, node: ir.Node) -> list[Fact]:
    """Every dim times its number of repeats."""
    fact = scope.fact(required(node, 0))
    require_length(scope, node, 1, fact.rank, "the repeats")
    repeats = required_dims(scope, node, 1, "the repeats")
    if len(repeats) != fact.rank:
        raise ModelError(f"{describe(node)}: {len(repeats)} repeats are given for an input of rank {fact.rank}")
    for repeat in repeats:
        if not nonnegative(repeat):
            scope.at_least(repeat, 0, node, "the number of repeats")
    return [Fact(fact.dtype, tuple(dim * repeat for dim, repeat in zip(fact.shape, repeats, strict=True)))]


@lowers("Tile")
def lower_tile(scope: Lowering, node: ir.Node) -> None:
    """The input at each index modulo its size."""
    x = required(node, 0)
    shape = scope.fact(x).shape
    define(scope, node.outputs[0], lambda at: scope.load(x, [mod(i, dim) for i, dim in zip(at, shape, strict=True)]))


@infers("Trilu")
def infer_trilu(scope: Inference, node: ir.Node) -> list[Fact]:
    """The fact of the input, which is a stack of matrices."""
    fact = require_rank(scope.fact(required(node, 0)), 2, node)
    _diagonal(scope, node)
    return [Fact(fact.dtype, fact.shape)]


@lowers("Trilu")
def lower_trilu(scope: Lowering, node: ir.Node) -> None:
    """The input on one side of the diagonal, zero on the other."""
    x, diagonal = required(node, 0), _diagonal(scope, node)
    upper = bool(attribute(node, "upper", 1))

    def body(at: Indices) -> Expr:
        above = at[-1] - at[-2] - diagonal
        return scope.load(x, at, (above if upper else -above,))

    define(scope, node.outputs[0], body)


def _diagonal(scope: Inference | Lowering, node: ir.Node) -> Dim:
    found = given(node, 1)
    if found is None:
        return ZERO
    elements = elements_of(scope.fact(found))
    if elements is None or elements.size != 1:
        raise UnsupportedError(f"{describe(node)}: k must be known when compiling. Make it a constant before export.")
    return elements.flat[0]


@infers("DepthToSpace")
def infer_depth_to_space(scope: Inference, node: ir.Node) -> list[Fact]:
    """[N, C, H, W] becomes [N, C / b^2, H * b, W * b]."""
    fact = require_rank(scope.fact(required(node, 0)), 4, node, 4)
    batch, channels, height, width = fact.shape
    block = _block(node)
    rest = floordiv(channels, block * block)
    scope.same(rest * block * block, channels, node, f"channels divide by {block * block}")
    return [Fact(fact.dtype, (batch, rest, height * block, width * block))]


@lowers("DepthToSpace")
def lower_depth_to_space(scope: Lowering, node: ir.Node) -> None:
    """The position within a block selects the channel: its slow part (DCR) or its fast part (CRD)."""
    x, block = required(node, 0), _block(node)
    channels = scope.fact(node.outputs[0]).shape[1]
    column_row = attribute(node, "mode", "DCR") == "CRD"

    def body(at: Indices) -> Expr:
        n, c, i, j = at
        inner = mod(i, block) * block + mod(j, block)
        channel = c * (block * block) + inner if column_row else inner * channels + c
        return scope.load(x, (n, channel, floordiv(i, block), floordiv(j, block)))

    define(scope, node.outputs[0], body)


@infers("SpaceToDepth")
def infer_space_to_depth(scope: Inference, node: ir.Node) -> list[Fact]:
    """[N, C, H, W] becomes [N, C * b^2, H / b, W / b]."""
    fact = require_rank(scope.fact(required(node, 0)), 4, node, 4)
    batch, channels, height, width = fact.shape
    block = _block(node)
    rows, columns = floordiv(height, block), floordiv(width, block)
    scope.same(rows * block, height, node, f"the height divides by {block}")
    scope.same(columns * block, width, node, f"the width divides by {block}")
    return [Fact(fact.dtype, (batch, channels * (block * block), rows, columns))]


@lowers("SpaceToDepth")
def lower_space_to_depth(scope: Lowering, node: ir.Node) -> None:
    """The slow part of the channel is the position within a block; in mode CRD the fast part is."""
    x, block = required(node, 0), _block(node)
    channels = scope.fact(x).shape[1]
    column_row = attribute(node, "mode", "DCR") == "CRD"

    def body(at: Indices) -> Expr:
        n, c, i, j = at
        inner, channel = floordiv(c, channels), mod(c, channels)
        if column_row:
            inner, channel = mod(c, block * block), floordiv(c, block * block)
        row, column = i * block + floordiv(inner, block), j * block + mod(inner, block)
        return scope.load(x, (n, channel, row, column))

    define(scope, node.outputs[0], body)


def _block(node: ir.Node) -> int:
    size = int(required_attribute(node, "blocksize"))
    if size < 1:
        raise ModelError(f"{describe(node)}: blocksize must be at least 1, got {size}")
    return size

"""Operators that read shapes, or change the shape without moving elements."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce as fold

from opweld import ir
from opweld.errors import ModelError
from opweld.ops.elements import make
from opweld.ops.emitted import define
from opweld.ops.expansion import Expansion
from opweld.ops.fact import Fact
from opweld.ops.fed_axes import by_fed_axes
from opweld.ops.known import required_dims
from opweld.ops.operands import (
    describe,
    known_integers,
    normalize_axes,
    normalize_axis,
    required,
)
from opweld.ops.registry import Inference, Lowering, attribute, infers, lowers
from opweld.tensor.dim import ONE, ZERO, Dim, as_dim, floordiv, minimum, mod, nonnegative, product, row_major
from opweld.tensor.dtype import DType


@infers("Shape")
def infer_shape(scope: Inference, node: ir.Node) -> list[Fact]:
    """The dims of the input, from `start` to `end`, as int64."""
    shape = scope.fact(required(node, 0)).shape
    dims = shape[attribute(node, "start", 0) : attribute(node, "end", None)]
    return [Fact(DType.I64, (as_dim(len(dims)),), make((len(dims),), dims))]


@infers("Size")
def infer_size(scope: Inference, node: ir.Node) -> list[Fact]:
    """The number of elements of the input, as int64."""
    return [Fact(DType.I64, (), make((), [product(scope.fact(required(node, 0)).shape)]))]


@infers("Identity")
def infer_identity(scope: Inference, node: ir.Node) -> list[Fact]:
    """The fact of the input."""
    return [scope.fact(required(node, 0))]


@infers("Reshape")
def infer_reshape(scope: Inference, node: ir.Node) -> list[Fact]:
    """The shape of the second input; 0 keeps a dim (unless `allowzero`), one -1 takes the remaining elements."""
    fact = scope.fact(required(node, 0))
    dims = list(required_dims(scope, node, 1, "the new shape"))
    fed = [dim for dim in dims if scope.is_data_dependent(dim)]
    if not all(map(nonnegative, fed)):
        # One condition, which keeps its identity while its dims are replaced by sizes one by one.
        plain = fold(minimum, fed) - 1
        if not scope.expect(plain, "least", node, "the new shape has neither 0 nor -1"):
            return _resolved(scope, node)
    keep_zero = bool(attribute(node, "allowzero", 0))
    open_position = None
    for position, dim in enumerate(dims):
        if dim is ZERO and not keep_zero:
            if position >= fact.rank:
                raise ModelError(
                    f"{describe(node)}: dim {position} of the new shape is 0, but the input has rank {fact.rank}"
                )
            dims[position] = fact.shape[position]
        elif dim.constant == -1:
            if open_position is not None:
                raise ModelError(f"{describe(node)}: the new shape {dims} has more than one -1")
            open_position = position
        elif not nonnegative(dim):
            scope.at_least(dim, 1, node, "a dim of the new shape")
    total = product(fact.shape)
    if open_position is not None:
        rest = product(dim for position, dim in enumerate(dims) if position != open_position)
        if rest is not ZERO and not nonnegative(rest - 1):
            scope.at_least(rest, 1, node, "-1 stands beside dims that are not 0")
        dims[open_position] = ZERO if rest is ZERO else floordiv(total, rest)
    if not any(dim is ZERO for dim in dims) or total.constant is not None:
        scope.same(product(dims), total, node, "the new shape has as many elements as the input")
    return [Fact(fact.dtype, tuple(dims))]


def _resolved(scope: Inference, node: ir.Node) -> list[Fact]:
    """A new shape whose 0 and -1 are replaced at run time."""
    made = Expansion(node)
    x, shape = (required(node, position) for position in range(2))
    (sizes,) = made.own("ResolvedShape", x, shape, allowzero=attribute(node, "allowzero", 0))
    return made.infer(scope, *made.own("Shaped", x, sizes))


@infers("Flatten")
def infer_flatten(scope: Inference, node: ir.Node) -> list[Fact]:
    """Two dims: the product before the axis and the product from it on."""
    fact = scope.fact(required(node, 0))
    axis = attribute(node, "axis", 1)
    if not -fact.rank <= axis <= fact.rank:
        raise ModelError(f"{describe(node)}: axis {axis} is out of range for a value of rank {fact.rank}")
    axis += fact.rank if axis < 0 else 0
    return [Fact(fact.dtype, (product(fact.shape[:axis]), product(fact.shape[axis:])))]


@infers("Squeeze")
def infer_squeeze(scope: Inference, node: ir.Node) -> list[Fact]:
    """Without the given axes, which have size 1, or without all axes of size 1."""
    fact = scope.fact(required(node, 0))
    fed = by_fed_axes(scope, node, 1, fact.rank)
    if fed is not None:
        return fed
    axes = known_integers(scope, node, 1, "the axes")
    if axes is None:
        axes = tuple(
            position
            for position, dim in enumerate(fact.shape)
            if scope.decide(dim - 1, "zero", node, f"axis {position} is squeezed when its size is 1")
        )
    removed = normalize_axes(axes, fact.rank, node)
    for axis in removed:
        scope.same(fact.shape[axis], ONE, node, f"squeezed axis {axis} has size 1")
    return [Fact(fact.dtype, tuple(dim for position, dim in enumerate(fact.shape) if position not in removed))]


@infers("Unsqueeze")
def infer_unsqueeze(scope: Inference, node: ir.Node) -> list[Fact]:
    """With axes of size 1 at the given positions of the output."""
    fact = scope.fact(required(node, 0))
    count = product(scope.fact(required(node, 1)).shape).constant or 0
    fed = by_fed_axes(scope, node, 1, fact.rank + count)
    if fed is not None:
        return fed
    axes = known_integers(scope, node, 1, "the axes") or ()
    rank = fact.rank + len(axes)
    added = {normalize_axis(axis, rank, node) for axis in axes}
    if len(added) < len(axes):
        raise ModelError(f"{describe(node)}: axes {list(axes)} name one axis twice")
    kept = iter(fact.shape)
    return [Fact(fact.dtype, tuple(ONE if position in added else next(kept) for position in range(rank)))]


@lowers("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity")
def lower_reshape(scope: Lowering, node: ir.Node) -> None:
    """The input at the index that has the same position in row-major order."""
    x, y = required(node, 0), node.outputs[0]
    old, new = scope.fact(x).shape, scope.fact(y).shape
    if old == new:
        scope.alias(y, scope.tensor(x))
        return
    define(scope, y, lambda indices: scope.load(x, reshaped_indices(indices, new, old)))


@lowers("Shape", "Size")
def lower_sizes(scope: Lowering, node: ir.Node) -> None:
    """Emits nothing: sizes are tracked elements, and loads of them are folded."""
    scope.alias(node.outputs[0], scope.tensor(node.outputs[0]))


def reshaped_indices(indices: Sequence[Dim], shape: Sequence[Dim], target: Sequence[Dim]) -> tuple[Dim, ...]:
    """The indices into `target` of the element that has these indices in `shape`, both row-major.

    Runs of axes whose sizes multiply to the same polynomial are matched, so that an index is divided only where axes
    are split or merged.
    """
    result = [ZERO] * len(target)
    if any(dim is ZERO for dim in (*shape, *target)):
        return tuple(result)
    sources = [position for position, dim in enumerate(shape) if dim is not ONE]
    targets = [position for position, dim in enumerate(target) if dim is not ONE]
    while sources or targets:
        taken, given = _matching_run([shape[p] for p in sources], [target[p] for p in targets])
        run = sources[:taken]
        flat = row_major([indices[position] for position in run], [shape[position] for position in run])
        _unflatten(flat, targets[:given], target, result)
        sources, targets = sources[taken:], targets[given:]
    return tuple(result)


def _matching_run(sources: Sequence[Dim], targets: Sequence[Dim]) -> tuple[int, int]:
    """The shortest prefixes with the same product; everything if there are none."""
    products: dict[Dim, int] = {}
    total = ONE
    for count, dim in enumerate(targets, 1):
        total = total * dim
        products.setdefault(total, count)
    total = ONE
    for count, dim in enumerate(sources, 1):
        total = total * dim
        if total in products:
            return count, products[total]
    return len(sources), len(targets)


def _unflatten(flat: Dim, positions: Sequence[int], shape: Sequence[Dim], result: list[Dim]) -> None:
    for number, position in reversed(list(enumerate(positions))):
        result[position] = mod(flat, shape[position]) if number else flat
        flat = floordiv(flat, shape[position])

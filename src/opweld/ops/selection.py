"""Operators whose number of results depends on data: NonZero, Compress, Unique, NonMaxSuppression.

Each computes a result of the largest possible size and the number of valid elements; a node after it takes that many.
"""

from __future__ import annotations

import math

import numpy as np

from opweld import ir
from opweld.errors import ModelError
from opweld.ops.emitted import Emitted, Indices, define, emit
from opweld.ops.expansion import DOMAIN, Expansion
from opweld.ops.fact import Fact
from opweld.ops.keys import emit_keys
from opweld.ops.known import known_dims
from opweld.ops.operands import describe, given, normalize_axis, require_rank, require_same_dtype, required
from opweld.ops.registry import Inference, Lowering, attribute, infers, lowers
from opweld.tensor.dim import ONE, ZERO, Dim, as_dim, maximum, minimum, product
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, binary, const, index, select

# ------------------------------------------------------------------------------------------------------------- NonZero


@infers("NonZero")
def infer_non_zero(scope: Inference, node: ir.Node) -> list[Fact]:
    """One column for each element that is not zero."""
    made = Expansion(node)
    places, count = made.own("NonZero", required(node, 0), outputs=2)
    return made.infer(scope, made.taken(places, count, axis=1))


@infers("NonZero", domain=DOMAIN)
def infer_all_non_zero(scope: Inference, node: ir.Node) -> list[Fact]:
    """The indices of non-zero elements, sized for all elements, and how many there are."""
    fact = scope.fact(required(node, 0))
    return [Fact(DType.I64, (as_dim(fact.rank), product(fact.shape))), Fact(DType.I64, (ONE,))]


@lowers("NonZero", domain=DOMAIN)
def lower_all_non_zero(scope: Lowering, node: ir.Node) -> None:
    """Linear indices, split into an index for each axis."""
    x = required(node, 0)
    fact = scope.fact(x)
    total = product(fact.shape)
    mask = emit(scope, fact.shape, lambda at: binary("ne", scope.load(x, at), const(0, fact.dtype)), "mask")
    places, count = scope.extern("nonzero", [mask.name], [(DType.I64, (total,)), (DType.I64, (ONE,))], (total,))
    found = Emitted(places, DType.I64)

    def body(at: Indices) -> Expr:
        row, column = at
        chosen = const(0, DType.I64)
        for axis in range(fact.rank):
            step, extent = index(product(fact.shape[axis + 1 :])), index(fact.shape[axis])
            own = binary("mod", binary("div", found.at((column,)), step), extent)
            chosen = select(binary("eq", index(row), const(axis, DType.I64)), own, chosen)
        return chosen

    define(scope, node.outputs[0], body)
    scope.alias(node.outputs[1], count)


# ------------------------------------------------------------------------------------------------------------ Compress


@infers("Compress")
def infer_compress(scope: Inference, node: ir.Node) -> list[Fact]:
    """The elements where the condition holds, along an axis or of the flattened value."""
    x, condition = required(node, 0), required(node, 1)
    if scope.fact(condition).dtype is not DType.BOOL:
        raise ModelError(f"{describe(node)}: the condition must be bool, got {scope.fact(condition).dtype!r}")
    require_rank(scope.fact(condition), 1, node, 1)
    made = Expansion(node)
    axis = attribute(node, "axis", None)
    if axis is None:
        (x,) = made.emit("Reshape", x, made.constant(np.array([-1])))
    places, count = made.own("NonZero", condition, outputs=2)
    chosen = made.taken(places, count, axis=1)
    (chosen,) = made.emit("Reshape", chosen, made.constant(np.array([-1])))
    return made.infer(scope, *made.emit("Gather", x, chosen, axis=0 if axis is None else axis))


# -------------------------------------------------------------------------------------------------------------- Unique


@infers("Unique")
def infer_unique(scope: Inference, node: ir.Node) -> list[Fact]:
    """The distinct slices along an axis, or elements, their positions and counts."""
    x = required(node, 0)
    fact = scope.fact(x)
    made = Expansion(node)
    axis = attribute(node, "axis", None)
    if axis is None:
        (x,) = made.emit("Reshape", x, made.constant(np.array([-1])))
    axis = 0 if axis is None else normalize_axis(axis, fact.rank, node)
    options = {"axis": axis, "sorted": int(attribute(node, "sorted", 1))}
    first, inverse, counts, total = made.own("Unique", x, outputs=4, **options)
    first = made.taken(first, total)
    (different,) = made.emit("Gather", x, first, axis=axis)
    return made.infer(scope, *(different, first, inverse, made.taken(counts, total))[: len(node.outputs)])


@infers("Unique", domain=DOMAIN)
def infer_all_unique(scope: Inference, node: ir.Node) -> list[Fact]:
    """Sized for as many groups as slices: first slice, group of each slice, count of each group; the number of
    groups."""
    fact = scope.fact(required(node, 0))
    room = fact.shape[int(attribute(node, "axis", 0))]
    return [*(Fact(DType.I64, (room,)) for _ in range(3)), Fact(DType.I64, (ONE,))]


@lowers("Unique", domain=DOMAIN)
def lower_all_unique(scope: Lowering, node: ir.Node) -> None:
    """Slices as rows of keys."""
    x = required(node, 0)
    fact, axis = scope.fact(x), int(attribute(node, "axis", 0))
    order = (axis, *(position for position in range(fact.rank) if position != axis))
    keys = emit_keys(scope, x, order)
    room = fact.shape[axis]
    width = product(fact.shape[position] for position in order[1:])
    results = [(DType.I64, (room,))] * 3 + [(DType.I64, (ONE,))]
    made = scope.extern("unique", [keys.name], results, (room, width, int(attribute(node, "sorted", 1))))
    for value, name in zip(node.outputs, made, strict=True):
        scope.alias(value, name)


# --------------------------------------------------------------------------------------------------- NonMaxSuppression


@infers("NonMaxSuppression")
def infer_suppression(scope: Inference, node: ir.Node) -> list[Fact]:
    """(batch, class, box) of each box that is kept."""
    made = Expansion(node)
    inputs = [*node.inputs, *([None] * (5 - len(node.inputs)))]
    centred = attribute(node, "center_point_box", 0)
    kept, count = made.own("NonMaxSuppression", *inputs, outputs=2, center_point_box=centred)
    return made.infer(scope, made.taken(kept, count))


@infers("NonMaxSuppression", domain=DOMAIN)
def infer_all_kept(scope: Inference, node: ir.Node) -> list[Fact]:
    """The boxes that are kept, sized for the most possible, and how many there are."""
    boxes, scores = scope.fact(required(node, 0)), scope.fact(required(node, 1))
    require_rank(boxes, 3, node, 3)
    require_rank(scores, 3, node, 3)
    if require_same_dtype((boxes, scores), node) is not DType.F32:
        raise ModelError(f"{describe(node)}: boxes and scores must be float32")
    scope.same(boxes.shape[0], scores.shape[0], node, "the batches")
    scope.same(boxes.shape[1], scores.shape[2], node, "the boxes")
    scope.same(boxes.shape[2], as_dim(4), node, "four numbers a box")
    room = product((*scores.shape[:2], _most(scope, node)))
    return [Fact(DType.I64, (room, as_dim(3))), Fact(DType.I64, (ONE,))]


@lowers("NonMaxSuppression", domain=DOMAIN)
def lower_all_kept(scope: Lowering, node: ir.Node) -> None:
    """Greedy, from the best score on; see `opw_extern_suppress_f32`."""
    boxes, scores = required(node, 0), required(node, 1)
    operands = [scope.tensor(boxes), scope.tensor(scores)]
    for position, usual in ((3, 0.0), (4, -math.inf)):
        operands.append(_threshold(scope, node, position, usual))
    batches, kinds, count = scope.fact(scores).shape
    numbers = (batches, count, kinds, _most(scope, node), int(attribute(node, "center_point_box", 0)))
    results = [(DType.I64, scope.fact(node.outputs[0]).shape), (DType.I64, (ONE,))]
    for value, name in zip(node.outputs, scope.extern("suppress", operands, results, numbers), strict=True):
        scope.alias(value, name)


def _most(scope: Inference | Lowering, node: ir.Node) -> Dim:
    """The most boxes of a class that are kept: 0 if absent, as ONNX defines."""
    numbers = known_dims(scope, node, 2, "the most boxes of a class")
    if numbers is None:
        return ZERO
    if len(numbers) != 1:
        raise ModelError(f"{describe(node)}: the most boxes of a class must be one number")
    return minimum(maximum(numbers[0], ZERO), scope.fact(required(node, 0)).shape[1])


def _threshold(scope: Lowering, node: ir.Node, position: int, usual: float) -> str:
    value = given(node, position)

    def body(_: Indices) -> Expr:
        return const(usual, DType.F32) if value is None else scope.load(value, (ZERO,) * scope.fact(value).rank)

    return emit(scope, (ONE,), body, "threshold").name

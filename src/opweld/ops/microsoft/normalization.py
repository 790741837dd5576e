"""Layer normalisations of a sum, and of embeddings."""

from __future__ import annotations

from collections.abc import Sequence

from opweld import ir
from opweld.ops.arithmetic import add, widen
from opweld.ops.emitted import Body, Emitted, Indices, define, emit
from opweld.ops.fact import Fact
from opweld.ops.gather import chosen_index
from opweld.ops.microsoft.domain import MICROSOFT
from opweld.ops.normalization import infer_layer_normalization, normalized, scaled
from opweld.ops.operands import (
    given,
    normalize_axis,
    require_float,
    require_rank,
    require_same_dtype,
    required,
    wanted,
)
from opweld.ops.registry import Inference, Lowering, attribute, infers, lowers
from opweld.ops.rows import rows_along, rows_of
from opweld.tensor.dim import ONE
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, const

EPSILON = 1e-12
"""ONNX Runtime's default epsilon."""

# ----------------------------------------------------------------------------------------- SimplifiedLayerNormalization


@infers("SimplifiedLayerNormalization", domain=MICROSOFT)
def infer_simplified(scope: Inference, node: ir.Node) -> list[Fact]:
    """As RMSNormalization, and the inverse root of each row's mean square."""
    return infer_layer_normalization(scope, node)


@lowers("SimplifiedLayerNormalization", domain=MICROSOFT)
def lower_simplified(scope: Lowering, node: ir.Node) -> None:
    """x / sqrt(mean square + epsilon) * scale"""
    x, scale = required(node, 0), required(node, 1)
    rank = scope.fact(x).rank
    axis = normalize_axis(int(attribute(node, "axis", -1)), rank, node)
    rows = rows_along(scope, x, range(axis, rank))
    normal = normalized(rows, float(attribute(node, "epsilon", 1e-5)), centred=False)
    define(scope, node.outputs[0], scaled(scope, normal.element, scale, None))
    output = wanted(node, 1)
    if output is not None:
        define(scope, output, lambda i: normal.inverse.at(i[:axis]))


# ----------------------------------------------------------------------------------------------- SkipLayerNormalization


@infers("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def infer_skip(scope: Inference, node: ir.Node) -> list[Fact]:
    """The fact of the input; the statistics of each row; the sum that is normalised."""
    x = require_float(require_rank(scope.fact(required(node, 0)), 2, node), node)
    skip = scope.fact(required(node, 1))
    vectors = [scope.fact(v) for v in (given(node, i) for i in range(2, 5)) if v is not None]
    require_same_dtype((x, skip, *vectors), node)
    for size, extent in zip(scope.broadcast([x.shape, skip.shape], node), x.shape, strict=True):
        scope.same(size, extent, node, "what is added broadcasts to the input")
    for vector in vectors:
        require_rank(vector, 1, node, 1)
        scope.same(vector.shape[0], x.shape[-1], node, "scales and biases lie along the last axis")
    whole, statistic = Fact(x.dtype, x.shape), Fact(DType.F32, (*x.shape[:-1], ONE))
    return [whole, statistic, statistic, whole]


@lowers("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=MICROSOFT)
def lower_skip(scope: Lowering, node: ir.Node) -> None:
    """The layer normalisation of input + skip + bias; simplified variants do not subtract the mean."""
    centred = node.op_type == "SkipLayerNormalization"
    x, skip, scale = (required(node, position) for position in range(3))
    shift = given(node, 3) if centred else None
    bias = given(node, 4 if centred else 3)
    fact = scope.fact(x)

    def added(at: Indices) -> Expr:
        total = add(widen(scope.load(x, at)), widen(scope.load(skip, at)))
        return total if bias is None else add(total, widen(scope.load(bias, at)))

    total = emit(scope, fact.shape, added, "sum")
    _normalise(scope, node, total, scale, shift, centred)
    output = wanted(node, 3)
    if output is not None:
        define(scope, output, total.at)


def _normalise(
    scope: Lowering, node: ir.Node, total: Emitted, scale: ir.Value, shift: ir.Value | None, centred: bool
) -> None:
    """Defines the first output as the normalised rows of a sum, the next two as statistics if they are used."""
    shape = scope.fact(node.outputs[0]).shape
    rows = rows_of(scope, shape, total.at, (len(shape) - 1,))
    normal = normalized(rows, float(attribute(node, "epsilon", EPSILON)), centred)
    define(scope, node.outputs[0], scaled(scope, normal.element, scale, shift))
    if node.op_type == "EmbedLayerNormalization":
        return
    for statistic, output in ((normal.mean, wanted(node, 1)), (normal.inverse, wanted(node, 2))):
        if statistic is not None and output is not None:
            define(scope, output, lambda i, statistic=statistic: statistic.at(i[:-1]))


# ---------------------------------------------------------------------------------------------- EmbedLayerNormalization


@infers("EmbedLayerNormalization", domain=MICROSOFT)
def infer_embed(scope: Inference, node: ir.Node) -> list[Fact]:
    """[batch, sequence] of ids -> [batch, sequence, hidden], the number of unmasked elements of each row, and the
    sum."""
    ids = require_rank(scope.fact(required(node, 0)), 2, node, 2)
    tables = [require_rank(scope.fact(v), 2, node, 2) for v in _tables(node)]
    vectors = [require_rank(scope.fact(required(node, position)), 1, node, 1) for position in (5, 6)]
    dtype = require_same_dtype((*tables, *vectors), node)
    hidden = tables[0].shape[1]
    for extent in (*(table.shape[1] for table in tables), *(vector.shape[0] for vector in vectors)):
        scope.same(extent, hidden, node, "embeddings, scale and bias have one size")
    for position in (1, 7):
        value = given(node, position)
        if value is not None:
            for a, b in zip(require_rank(scope.fact(value), 2, node, 2).shape, ids.shape, strict=True):
                scope.same(a, b, node, "segments and mask have the shape of the ids")
    if given(node, 8) is None:
        scope.at_least(tables[1].shape[0] - ids.shape[1], 0, node, "there is an embedding of each position")
    else:
        positions = require_rank(scope.fact(required(node, 8)), 2, node, 2)
        scope.broadcast([positions.shape, ids.shape], node)
    whole = Fact(dtype, (*ids.shape, hidden))
    return [whole, Fact(DType.I32, ids.shape[:1]), whole]


def _tables(node: ir.Node) -> Sequence[ir.Value]:
    """The embeddings of words, positions, and segments where there are any."""
    found = [required(node, 2), required(node, 3), given(node, 4)]
    return [value for value in found if value is not None]


@lowers("EmbedLayerNormalization", domain=MICROSOFT)
def lower_embed(scope: Lowering, node: ir.Node) -> None:
    """The layer normalisation of word + position + segment embedding."""
    ids, segments, positions = required(node, 0), given(node, 1), given(node, 8)
    words, places, parts = required(node, 2), required(node, 3), given(node, 4)
    fact = scope.fact(ids)

    def row(table: ir.Value, rows: ir.Value, at: Indices) -> Expr:
        chosen = chosen_index(scope, rows, at[:2], scope.fact(table).shape[0])
        return widen(scope.load(table, (chosen, at[2])))

    def added(at: Indices) -> Expr:
        place = widen(scope.load(places, (at[1], at[2]))) if positions is None else row(places, positions, at)
        total = add(row(words, ids, at), place)
        return total if segments is None or parts is None else add(total, row(parts, segments, at))

    total = emit(scope, scope.fact(node.outputs[0]).shape, added, "embedding")
    _normalise(scope, node, total, required(node, 5), required(node, 6), centred=True)
    _count_mask(scope, node, fact)
    summed = wanted(node, 2)
    if summed is not None:
        define(scope, summed, total.at)


def _count_mask(scope: Lowering, node: ir.Node, ids: Fact) -> None:
    """Defines how many elements of each row of the mask are one; zero without a mask."""
    output, mask = wanted(node, 1), given(node, 7)
    if output is None:
        return
    body: Body = lambda at: const(0, DType.I32)  # noqa: E731
    if mask is not None:
        rows = rows_along(scope, mask, (1,))
        body = rows.total("sum", rows.element, "length").at
    define(scope, output, body)

"""Attention as ONNX Runtime's fused operators compute it: Attention and MultiHeadAttention."""

from __future__ import annotations

import math
from collections.abc import Sequence

from opweld import ir
from opweld.errors import ModelError, UnsupportedError
from opweld.ops.arithmetic import add, apply, where
from opweld.ops.attention import Adjust, Heads, attend, emit_heads, joined, merged
from opweld.ops.emitted import Body, Indices, define, emit
from opweld.ops.fact import Fact
from opweld.ops.matmul import contraction
from opweld.ops.microsoft.domain import MICROSOFT
from opweld.ops.operands import describe, given, require_float, require_rank, require_same_dtype, required, wanted
from opweld.ops.registry import Inference, Lowering, attribute, infers, lowers, required_attribute
from opweld.tensor.dim import ONE, ZERO, Axis, Dim, as_dim, floordiv
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, binary, cast, const, index, select
from opweld.tensor.expr import at_least_zero as holds

LOWEST = -3.4028234663852886e38
"""The score of a masked key: so low that an added bias does not matter."""


def split(scope: Inference, node: ir.Node, width: Dim, heads: int) -> Dim:
    """The size of a head, for a number of heads and a width."""
    if heads < 1:
        raise ModelError(f"{describe(node)}: the number of heads must be at least 1, got {heads}")
    size = floordiv(width, heads)
    scope.same(size * heads, width, node, f"{heads} heads of one size fill the last axis")
    return size


def scale_of(node: ir.Node, size: Dim) -> float:
    """The factor of the scores: given, or one over the root of a head's size."""
    found = float(attribute(node, "scale", 0.0))
    if found:
        return found
    if size.constant is None:
        raise UnsupportedError(
            f"{describe(node)}: the size of a head must be a known number. Fix it (dims={{NAME: N}}, --dim NAME=N)."
        )
    return 1 / math.sqrt(size.constant)


def refuse_inputs(node: ir.Node, *positions: int) -> None:
    """UnsupportedError when one of these inputs is present."""
    for position in positions:
        value = given(node, position)
        if value is not None:
            raise UnsupportedError(
                f"{describe(node)}: input {position} ({value.name!r}) is not supported yet. "
                "Export the model without that optimisation."
            )


# --------------------------------------------------------------------------------------------------- masks and biases


def check_mask(scope: Inference, node: ir.Node, position: int, sizes: tuple[Dim, Dim, Dim]) -> None:
    """A mask is [batch] or [2 * batch] of ends (and starts), or [batch, keys], or [batch, queries, keys], of int32."""
    mask = given(node, position)
    if mask is None:
        return
    fact, (batch, length, total) = require_rank(scope.fact(mask), 1, node, 3), sizes
    if fact.rank == 1:
        if fact.shape[0] is not batch and fact.shape[0] is not batch * 2:
            scope.same(fact.shape[0], batch, node, "the mask has one end of each row")
        return
    wanted_shape = (batch, total) if fact.rank == 2 else (batch, length, total)
    for a, b in zip(fact.shape, wanted_shape, strict=True):
        scope.same(a, b, node, "the mask has the sizes of rows, queries and keys")


def check_attention_bias(scope: Inference, node: ir.Node, position: int, shape: tuple[Dim, Dim, Dim, Dim]) -> None:
    """Checks that a bias of the scores broadcasts to them in batch and heads."""
    bias = given(node, position)
    if bias is not None:
        fact = require_rank(scope.fact(bias), 4, node, 4)
        for own, extent in zip(fact.shape, shape, strict=True):
            if own is not ONE or extent is ONE:
                scope.same(own, extent, node, "the attention bias broadcasts to the scores")


def masked(
    scope: Lowering, node: ir.Node, mask: ir.Value | None, bias: ir.Value | None, past: Dim, length: Dim
) -> Adjust:
    """Applies masks and biases to a score; a unidirectional node masks keys after the query."""
    filtered = float(attribute(node, "mask_filter_value", -10000.0))
    causal = bool(attribute(node, "unidirectional", 0))

    def adjust(score: Expr, at: Indices) -> Expr:
        if mask is not None:
            score = add(score, where(_open(scope, mask, at), const(0, score.dtype), filtered))
        if bias is not None:
            score = add(score, cast(scope.load(bias, at), score.dtype))
        if causal:
            score = select(holds(past + at[2] - at[3]), score, const(LOWEST, score.dtype))
        return score

    return adjust


def _open(scope: Lowering, mask: ir.Value, at: Indices) -> Expr:
    """Whether a mask lets a query attend to a key."""
    fact, (row, _, query, key) = scope.fact(mask), at
    if fact.rank > 1:
        return apply("gt", scope.load(mask, (row, key) if fact.rank == 2 else (row, query, key)), 0)

    def edge(place: Dim) -> Expr:
        return cast(scope.load(mask, (place,)), DType.I64)

    before_end = binary("lt", index(key), edge(row))
    if fact.shape[0] is not _doubled(scope):
        return before_end
    return binary("and", before_end, binary("ge", index(key), edge(row + floordiv(fact.shape[0], 2))))


def _doubled(scope: Lowering) -> Dim:
    """The size of a mask of ends and starts."""
    return scope.fact(scope.node.outputs[0]).shape[0] * 2


# ---------------------------------------------------------------------------------------------------------- Attention


@infers("Attention", domain=MICROSOFT)
def infer_attention(scope: Inference, node: ir.Node) -> list[Fact]:
    """[batch, length, width] and weights [width, q + k + v] -> [batch, length, v] and, stacked, all keys and values."""
    refuse_inputs(node, 6)
    for name in ("do_rotary", "past_present_share_buffer"):
        if attribute(node, name, 0):
            raise UnsupportedError(f"{describe(node)}: {name}=1 is not supported yet. Export without it.")
    x, weights = (require_rank(scope.fact(required(node, i)), r, node, r) for i, r in ((0, 3), (1, 2)))
    dtype = require_same_dtype((require_float(x, node), weights), node)
    scope.same(x.shape[2], weights.shape[0], node, "the weights project the input")
    sizes, heads = _sizes(node, weights), int(required_attribute(node, "num_heads"))
    scope.same(sizes[0] + sizes[1] + sizes[2], weights.shape[1], node, "queries, keys and values fill the projection")
    scope.same(sizes[0], sizes[1], node, "queries and keys have one size")
    size, width = split(scope, node, sizes[0], heads), split(scope, node, sizes[2], heads)
    if (bias := given(node, 2)) is not None:
        scope.same(require_rank(scope.fact(bias), 1, node, 1).shape[0], weights.shape[1], node, "a bias of each")
    batch, length, _ = x.shape
    past = _past(scope, node)
    if past is not ZERO or given(node, 4) is not None:
        scope.same(size, width, node, "keys and values of one size are kept")
        own = require_rank(scope.fact(required(node, 4)), 5, node, 5).shape
        for a, b in zip(own, (as_dim(2), batch, as_dim(heads), past, size), strict=True):
            scope.same(a, b, node, "the past has the sizes of keys and values")
    total = past + length
    check_mask(scope, node, 3, (batch, length, total))
    check_attention_bias(scope, node, 5, (batch, as_dim(heads), length, total))
    scale_of(node, size)
    present = Fact(dtype, (as_dim(2), batch, as_dim(heads), total, size))
    return [Fact(dtype, (batch, length, sizes[2])), present]


def _sizes(node: ir.Node, weights: Fact) -> Sequence[Dim]:
    found = attribute(node, "qkv_hidden_sizes", None)
    if not found:
        return (floordiv(weights.shape[1], 3),) * 3
    if len(found) != 3:
        raise ModelError(f"{describe(node)}: qkv_hidden_sizes must be three numbers, got {list(found)}")
    return [as_dim(int(size)) for size in found]


def _past(scope: Inference | Lowering, node: ir.Node) -> Dim:
    past = given(node, 4)
    return ZERO if past is None else scope.fact(past).shape[3]


@lowers("Attention", domain=MICROSOFT)
def lower_attention(scope: Lowering, node: ir.Node) -> None:
    """Attention of the heads of a projection, over the keys and values before them too."""
    x, weights, bias = required(node, 0), required(node, 1), given(node, 2)
    batch, length, width = scope.fact(x).shape
    sizes, heads = _sizes(node, scope.fact(weights)), as_dim(int(required_attribute(node, "num_heads")))

    def product(at: Indices) -> Expr:
        k = Axis("k", width)
        return contraction((k,), scope.load(x, (*at[:2], k.dim)), scope.load(weights, (k.dim, at[2])))

    projected = emit(scope, (batch, length, scope.fact(weights).shape[1]), product, "projection")

    def part(start: Dim, size: Dim) -> Body:
        def body(at: Indices) -> Expr:
            column = start + at[1] * size + at[3]
            element = projected.at((at[0], at[2], column))
            return element if bias is None else add(element, scope.load(bias, (column,)))

        return body

    head, value_head = floordiv(sizes[0], heads), floordiv(sizes[2], heads)
    queries = emit_heads(scope, (batch, heads, length, head), part(ZERO, head), "queries")
    kept = given(node, 4)
    past = _past(scope, node)
    keys = _with_past(scope, kept, ZERO, past, (batch, heads, length, head), part(sizes[0], head), "keys")
    start = sizes[0] + sizes[1]
    values = _with_past(scope, kept, ONE, past, (batch, heads, length, value_head), part(start, value_head), "values")
    adjust = masked(scope, node, given(node, 3), given(node, 5), past, length)
    mixed = attend(scope, queries, keys, values, scale_of(node, head), adjust)
    define(scope, node.outputs[0], lambda at: merged(mixed, at))
    if (present := wanted(node, 1)) is not None:
        define(scope, present, lambda at: select(holds(-at[0]), keys.at(at[1:]), values.at(at[1:])))


def _with_past(
    scope: Lowering,
    kept: ir.Value | None,
    which: Dim,
    past: Dim,
    shape: tuple[Dim, Dim, Dim, Dim],
    own: Body,
    hint: str,
) -> Heads:
    """The heads of the past, which is stacked, followed by the new ones."""
    if kept is None:
        return emit_heads(scope, shape, own, hint)
    body = joined(lambda at: scope.load(kept, (which, *at)), past, own)
    return emit_heads(scope, (*shape[:2], past + shape[2], shape[3]), body, hint)


# -------------------------------------------------------------------------------------------------- MultiHeadAttention


@infers("MultiHeadAttention", domain=MICROSOFT)
def infer_multi_head(scope: Inference, node: ir.Node) -> list[Fact]:
    """Queries, keys and values [batch, length, heads * size], the last two also as heads -> [batch, length, heads *
    value size], and all keys and values as heads."""
    refuse_inputs(node, 8, 9)
    heads = int(required_attribute(node, "num_heads"))
    if scope.fact(required(node, 0)).rank != 3 or given(node, 1) is None or given(node, 2) is None:
        raise UnsupportedError(
            f"{describe(node)}: packed queries, keys and values are not supported yet. Export them as three inputs."
        )
    query = require_float(scope.fact(required(node, 0)), node)
    key, value = (require_rank(scope.fact(required(node, i)), 3, node, 4) for i in (1, 2))
    dtype = require_same_dtype((query, key, value), node)
    batch, length, hidden = query.shape
    size = split(scope, node, hidden, heads)
    key_shape, value_shape = (_heads_shape(scope, node, fact, heads) for fact in (key, value))
    for a, b in ((key_shape[0], batch), (value_shape[0], batch), (key_shape[3], size), (key_shape[2], value_shape[2])):
        scope.same(a, b, node, "queries, keys and values go together")
    width = value_shape[3]
    if (bias := given(node, 3)) is not None:
        count = require_rank(scope.fact(bias), 1, node, 1).shape[0]
        scope.same(count, hidden * 2 + width * heads, node, "there is a bias of queries, keys and values")
    past = _past_length(scope, node)
    for position, extent in ((6, size), (7, width)):
        if (kept := given(node, position)) is not None:
            own = require_rank(scope.fact(kept), 4, node, 4).shape
            for a, b in zip(own, (batch, as_dim(heads), past, extent), strict=True):
                scope.same(a, b, node, "the past has the sizes of keys and values")
    total = past + key_shape[2]
    check_mask(scope, node, 4, (batch, length, total))
    check_attention_bias(scope, node, 5, (batch, as_dim(heads), length, total))
    scale_of(node, size)
    present = [Fact(dtype, (batch, as_dim(heads), total, extent)) for extent in (size, width)]
    return [Fact(dtype, (batch, length, width * heads)), *present]


def _heads_shape(scope: Inference, node: ir.Node, fact: Fact, heads: int) -> tuple[Dim, Dim, Dim, Dim]:
    if fact.rank == 4:
        scope.same(fact.shape[1], as_dim(heads), node, "keys and values have the heads that the node says")
        return (fact.shape[0], fact.shape[1], fact.shape[2], fact.shape[3])
    return (fact.shape[0], as_dim(heads), fact.shape[1], split(scope, node, fact.shape[2], heads))


def _past_length(scope: Inference | Lowering, node: ir.Node) -> Dim:
    kept = given(node, 6)
    if (kept is None) != (given(node, 7) is None):
        raise ModelError(f"{describe(node)}: past keys and past values go together")
    return ZERO if kept is None else scope.fact(kept).shape[2]


@lowers("MultiHeadAttention", domain=MICROSOFT)
def lower_multi_head(scope: Lowering, node: ir.Node) -> None:
    """Attention of queries, keys and values with their biases, over those of the past too."""
    query, key, value, bias = required(node, 0), required(node, 1), required(node, 2), given(node, 3)
    batch, length, hidden = scope.fact(query).shape
    heads, past = as_dim(int(required_attribute(node, "num_heads"))), _past_length(scope, node)
    size = floordiv(hidden, heads)
    value_fact = scope.fact(value)
    width = value_fact.shape[3] if value_fact.rank == 4 else floordiv(value_fact.shape[2], heads)
    rows = value_fact.shape[2] if value_fact.rank == 4 else value_fact.shape[1]

    def part(source: ir.Value, start: Dim, extent: Dim) -> Body:
        direct = scope.fact(source).rank == 4

        def body(at: Indices) -> Expr:
            column = at[1] * extent + at[3]
            element = scope.load(source, at if direct else (at[0], at[2], column))
            return element if bias is None else add(element, scope.load(bias, (start + column,)))

        return body

    def grown(source: ir.Value, kept: ir.Value | None, start: Dim, extent: Dim, hint: str) -> Heads:
        own = part(source, start, extent)
        body = own if kept is None else joined(lambda at: scope.load(kept, at), past, own)
        return emit_heads(scope, (batch, heads, past + rows, extent), body, hint)

    queries = emit_heads(scope, (batch, heads, length, size), part(query, ZERO, size), "queries")
    keys = grown(key, given(node, 6), hidden, size, "keys")
    values = grown(value, given(node, 7), hidden * 2, width, "values")
    adjust = masked(scope, node, given(node, 4), given(node, 5), past, length)
    mixed = attend(scope, queries, keys, values, scale_of(node, size), adjust)
    define(scope, node.outputs[0], lambda at: merged(mixed, at))
    for position, whole in ((1, keys), (2, values)):
        if (present := wanted(node, position)) is not None:
            define(scope, present, whole.at)

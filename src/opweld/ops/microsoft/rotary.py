"""Rotary embeddings, and attention whose keys and values are shared by groups of heads and grow in a cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from opweld import ir
from opweld.errors import ModelError, UnsupportedError
from opweld.ops.arithmetic import add, apply, div, mul, sub, where
from opweld.ops.attention import Heads, attend, emit_heads, merged, rotated
from opweld.ops.emitted import Body, Indices, define
from opweld.ops.fact import Fact
from opweld.ops.gather import chosen_index
from opweld.ops.known import required_dims
from opweld.ops.microsoft.attention import LOWEST, check_attention_bias, refuse_inputs, scale_of, split
from opweld.ops.microsoft.domain import MICROSOFT
from opweld.ops.operands import describe, given, require_float, require_rank, require_same_dtype, required, wanted
from opweld.ops.registry import Inference, Lowering, attribute, infers, lowers, required_attribute
from opweld.tensor.dim import ZERO, Dim, Value, as_dim, floordiv
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, at_least_zero, binary, cast, const, index, select, unary

Past: TypeAlias = Callable[[Dim], Expr]
"""The number of past positions of a row of the batch."""

# ----------------------------------------------------------------------------------------------------- RotaryEmbedding


@infers("RotaryEmbedding", domain=MICROSOFT)
def infer_rotary(scope: Inference, node: ir.Node) -> list[Fact]:
    """The fact of the input, [batch, length, heads * size] or [batch, heads, length, size]."""
    if attribute(node, "is_packed_batching", 0) or attribute(node, "scale", 1.0) != 1:
        raise UnsupportedError(f"{describe(node)}: packed batches and scales are not supported yet. Export without.")
    x = require_rank(require_float(scope.fact(required(node, 0)), node), 3, node, 4)
    cosines, sines = (require_rank(scope.fact(required(node, i)), 2, node, 2) for i in (2, 3))
    require_same_dtype((x, cosines, sines), node)
    positions = require_rank(scope.fact(required(node, 1)), 1, node, 2)
    for a, b in zip(cosines.shape, sines.shape, strict=True):
        scope.same(a, b, node, "there is a sine of each cosine")
    length = x.shape[1] if x.rank == 3 else x.shape[2]
    if positions.rank == 2:
        for a, b in zip(positions.shape, (x.shape[0], length), strict=True):
            scope.same(a, b, node, "there is a position of each row and place")
    size = _rotary_size(node, x, cosines)
    if x.rank == 3:
        scope.same(floordiv(x.shape[2], size) * size, x.shape[2], node, "heads of one size fill the last axis")
    scope.at_least(size - cosines.shape[1] * 2, 0, node, "a head has the features that are turned")
    return [Fact(x.dtype, x.shape)]


def _rotary_size(node: ir.Node, x: Fact, cosines: Fact) -> Dim:
    """The size of a head."""
    if x.rank == 4:
        return x.shape[3]
    heads = int(attribute(node, "num_heads", 0))
    return floordiv(x.shape[2], heads) if heads > 0 else cosines.shape[1] * 2


@lowers("RotaryEmbedding", domain=MICROSOFT)
def lower_rotary(scope: Lowering, node: ir.Node) -> None:
    """Pairs of features rotated by the angles of their positions."""
    x, positions, cosines, sines = (required(node, position) for position in range(4))
    fact, cache = scope.fact(x), scope.fact(cosines)
    size, several = _rotary_size(node, fact, cache), scope.fact(positions).rank == 2

    def element(at: Indices) -> Expr:
        return scope.load(x, at if fact.rank == 4 else (at[0], at[2], at[1] * size + at[3]))

    def angle(table: ir.Value) -> Body:
        def body(at: Indices) -> Expr:
            row, place, pair = at
            if several:
                chosen = chosen_index(scope, positions, (row, place), cache.shape[0])
            else:  # one number: the position of the first element
                first = cast(scope.load(positions, (ZERO,)), DType.I64)
                chosen = Value(binary("add", first, index(place)), cache.shape[0]).dim
            return scope.load(table, (chosen, pair))

        return body

    interleaved = bool(attribute(node, "interleaved", 0))
    turned = _partly(element, angle(cosines), angle(sines), cache.shape[1] * 2, size, interleaved)

    def body(at: Indices) -> Expr:
        return turned(at if fact.rank == 4 else (at[0], at[2] // size, at[1], at[2] % size))

    define(scope, node.outputs[0], body)


def _partly(element: Body, cosine: Body, sine: Body, turned: Dim, size: Dim, interleaved: bool) -> Body:
    """Heads with the first features rotated and the others unchanged."""
    if turned is size:
        return rotated(element, cosine, sine, turned, interleaved)

    def body(at: Indices) -> Expr:
        inside = at_least_zero(turned - 1 - at[3])
        # Features that are not rotated have no angle: they use that of a rotated one.
        return select(
            inside, rotated(element, cosine, sine, turned, interleaved)((*at[:3], at[3] % turned)), element(at)
        )

    return body


# ------------------------------------------------------------------------------------------------- GroupQueryAttention


@infers("GroupQueryAttention", domain=MICROSOFT)
def infer_group_query(scope: Inference, node: ir.Node) -> list[Fact]:
    """Queries [batch, length, heads * size], with keys and values in them or besides -> the same shape, and the caches
    [batch, key heads, capacity, size] with the new elements."""
    _check_variants(node)
    query = require_float(require_rank(scope.fact(required(node, 0)), 3, node, 3), node)
    heads, kv_heads = _head_counts(node)
    batch, length, width = query.shape
    packed = given(node, 1) is None
    size = split(scope, node, width, heads + 2 * kv_heads if packed else heads)
    facts = [query]
    for position in () if packed else (1, 2):
        fact = require_rank(scope.fact(required(node, position)), 3, node, 3)
        facts.append(fact)
        for a, b in zip(fact.shape, (batch, length, size * kv_heads), strict=True):
            scope.same(a, b, node, "keys and values have the rows and places of queries")
    lengths = require_rank(scope.fact(required(node, 5)), 1, node, 2)
    scope.broadcast([lengths.shape[:1], (batch,)], node)
    past = _capacity(scope, node)
    for position in (3, 4):
        if (kept := given(node, position)) is not None:
            fact = require_rank(scope.fact(kept), 4, node, 4)
            facts.append(fact)
            for a, b in zip(fact.shape, (batch, as_dim(kv_heads), past, size), strict=True):
                scope.same(a, b, node, "the caches have the sizes of keys and values")
    if (sink := given(node, 11)) is not None:
        facts.append(require_rank(scope.fact(sink), 1, node, 1))
        scope.same(facts[-1].shape[0], as_dim(heads), node, "there is a sink of each head")
    dtype = require_same_dtype(facts, node)
    total = required_dims(scope, node, 6, "the total length")[0]
    scope.at_least(total - length, 0, node, "the total length has the new places")
    roomy = scope.decide(past - total, "least", node, "the cache has room for what is new")
    capacity = past if roomy else total
    scale_of(node, size)
    check_attention_bias(scope, node, 10, (batch, as_dim(heads), length, total))
    if attribute(node, "do_rotary", 0):
        cosines, sines = (require_rank(scope.fact(required(node, i)), 2, node, 2) for i in (7, 8))
        require_same_dtype((query, cosines, sines), node)
        scope.at_least(size - cosines.shape[1] * 2, 0, node, "a head has the features that are turned")
    scope.decide(total - length, "zero", node, "all places are new")
    present = Fact(dtype, (batch, as_dim(kv_heads), capacity, size))
    return [Fact(dtype, (batch, length, size * heads)), present, present]


def _check_variants(node: ir.Node) -> None:
    """UnsupportedError for attributes that are rarely used on CPUs."""
    refuse_inputs(node, 12, 13, 14, 15)
    for name, usual in (("qk_output", 0), ("sliding_window_cache", 0), ("causal", 1)):
        if int(attribute(node, name, usual)) != usual:
            raise UnsupportedError(f"{describe(node)}: {name}={attribute(node, name, usual)} is not supported yet.")
    if (given(node, 1) is None) != (given(node, 2) is None) or (given(node, 3) is None) != (given(node, 4) is None):
        raise ModelError(f"{describe(node)}: keys and values go together")


def _head_counts(node: ir.Node) -> tuple[int, int]:
    heads, kv_heads = int(required_attribute(node, "num_heads")), int(required_attribute(node, "kv_num_heads"))
    if kv_heads < 1 or heads < 1 or heads % kv_heads:
        raise ModelError(f"{describe(node)}: {heads} heads of queries do not share {kv_heads} of keys")
    return heads, kv_heads


def _capacity(scope: Inference | Lowering, node: ir.Node) -> Dim:
    kept = given(node, 3)
    return ZERO if kept is None else scope.fact(kept).shape[2]


@lowers("GroupQueryAttention", domain=MICROSOFT)
def lower_group_query(scope: Lowering, node: ir.Node) -> None:
    """Each row has its own past: seqlens_k + 1 positions minus the new ones. The new keys and values come after it."""
    heads, kv_heads = _head_counts(node)
    query, packed = required(node, 0), given(node, 1) is None
    output = scope.fact(node.outputs[0])
    batch, length, width = output.shape
    size = floordiv(width, heads)
    total = required_dims(scope, node, 6, "the total length")[0]
    # Keys beyond the total length are masked; a cache may have room for more.
    room = scope.fact(node.outputs[1]).shape[2] if len(node.outputs) > 1 else total
    first = total is length

    def past(row: Dim) -> Expr:
        """The number of past positions of a row."""
        if first:
            return const(0, DType.I64)
        lengths = required(node, 5)
        at = (row, ZERO) if scope.fact(lengths).rank == 2 else (row,)
        return sub(cast(scope.load(lengths, at), DType.I64), index(length - 1))

    def part(source: ir.Value, start: Dim) -> Body:
        return lambda at: scope.load(source, (at[0], at[2], start + at[1] * size + at[3]))

    queries = part(query, ZERO)
    new_keys = part(query, size * heads) if packed else part(required(node, 1), ZERO)
    new_values = part(query, size * (heads + kv_heads)) if packed else part(required(node, 2), ZERO)
    if attribute(node, "do_rotary", 0):
        queries, new_keys = (_turned(scope, node, body, past, size) for body in (queries, new_keys))
    shape = (batch, as_dim(kv_heads), length, size)
    added = [
        emit_heads(scope, shape, body, hint) for body, hint in ((new_keys, "new_keys"), (new_values, "new_values"))
    ]
    keys, values = (
        emit_heads(scope, (batch, as_dim(kv_heads), room, size), _cached(scope, given(node, i), own, past), hint)
        for i, own, hint in ((3, added[0], "keys"), (4, added[1], "values"))
    )

    def adjust(score: Expr, at: Indices) -> Expr:
        return _seen(scope, node, score, at, binary("add", past(at[0]), index(at[2])))

    asked = emit_heads(scope, (batch, as_dim(heads), length, size), queries, "queries")
    mixed = attend(scope, asked, keys, values, scale_of(node, size), adjust, _sink(scope, node))
    define(scope, node.outputs[0], lambda at: merged(mixed, at))
    for position, whole in ((1, keys), (2, values)):
        if (present := wanted(node, position)) is not None:
            define(scope, present, whole.at)


def _sink(scope: Lowering, node: ir.Node) -> Body | None:
    """An attention sink: a score for each head, or zero for a smooth softmax."""
    sink = given(node, 11)
    if sink is not None:
        return lambda row: cast(scope.load(sink, (row[1],)), DType.F32)
    if int(attribute(node, "smooth_softmax", 0)) > 0:
        return lambda row: const(0.0, DType.F32)
    return None


def _turned(scope: Lowering, node: ir.Node, element: Body, past: Past, size: Dim) -> Body:
    """Heads rotated by the angles of their positions, which follow the past or are given."""
    cosines, sines, positions = required(node, 7), required(node, 8), given(node, 9)
    extent, pairs = scope.fact(cosines).shape

    def angle(table: ir.Value) -> Body:
        def body(at: Indices) -> Expr:
            if positions is not None:
                chosen = chosen_index(scope, positions, at[:2], extent)
            else:
                chosen = Value(binary("add", past(at[0]), index(at[1])), extent).dim
            return scope.load(table, (chosen, at[2]))

        return body

    interleaved = bool(attribute(node, "rotary_interleaved", 0))
    return _partly(element, angle(cosines), angle(sines), pairs * 2, size, interleaved)


def _cached(scope: Lowering, kept: ir.Value | None, new: Heads, past: Past) -> Body:
    """The past part of the cache, then the new elements, then zeros."""
    length = new.shape[2]

    def body(at: Indices) -> Expr:
        before = past(at[0])
        place = binary("sub", index(at[2]), before)
        inside = binary("and", apply("ge", place, 0), binary("lt", place, index(length)))
        clipped = binary("min", binary("max", place, const(0, DType.I64)), index(length - 1))
        added = new.at((*at[:2], Value(clipped, length).dim, at[3]))
        result = where(inside, added, const(0, added.dtype))
        if kept is None:
            return result
        extent = scope.fact(kept).shape[2]
        old = scope.load(kept, at, (extent - 1 - at[2],), const(0, added.dtype))
        return select(apply("lt", place, 0), old, result)

    return body


def _seen(scope: Lowering, node: ir.Node, score: Expr, at: Indices, place: Expr) -> Expr:
    """A score with soft cap and bias; keys after the query, or outside the local window, are masked."""
    cap, window, bias = (
        float(attribute(node, "softcap", 0.0)),
        int(attribute(node, "local_window_size", -1)),
        given(node, 10),
    )
    if cap > 0:
        score = mul(unary("tanh", div(score, cap)), cap)
    if bias is not None:
        inside = scope.fact(bias).shape[3] - 1 - at[3]
        score = add(score, cast(scope.load(bias, at, (inside,), const(0, scope.fact(bias).dtype)), score.dtype))
    seen = binary("le", index(at[3]), place)
    if window > 0:
        seen = binary("and", seen, binary("gt", index(at[3]), sub(place, window)))
    return where(seen, score, const(LOWEST, score.dtype))

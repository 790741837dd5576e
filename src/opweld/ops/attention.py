"""Scaled dot-product attention of heads: scores of queries and keys, their adjustment, and the weighted sum of
values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from opweld.ops.arithmetic import add, mul, sub
from opweld.ops.emitted import Body, Emitted, Indices, emit
from opweld.ops.matmul import contraction
from opweld.ops.registry import Lowering
from opweld.ops.rows import rows_of
from opweld.ops.softmax import softmax_of
from opweld.tensor.dim import Axis, Dim
from opweld.tensor.expr import Expr, at_least_zero, cast, select

Adjust: TypeAlias = "Callable[[Expr, Indices], Expr]"
"""Adjusts a scaled score at (batch, head, query, key)."""


@dataclass(frozen=True)
class Heads:
    """A tensor [batch, heads, length, size]."""

    tensor: Emitted
    shape: tuple[Dim, Dim, Dim, Dim]

    def at(self, indices: Indices) -> Expr:
        """The element of (batch, head, place, feature)."""
        return self.tensor.at(indices)


def emit_heads(scope: Lowering, shape: tuple[Dim, Dim, Dim, Dim], body: Body, hint: str) -> Heads:
    """Emits heads by their elements."""
    return Heads(emit(scope, shape, body, hint), shape)


def attend(
    scope: Lowering, queries: Heads, keys: Heads, values: Heads, scale: float, adjust: Adjust, sink: Body | None = None
) -> Heads:
    """softmax(adjust(scale * q k^T)) v, with an attention sink for each (batch, head, query) if given. Several query
    heads share a head of keys and values if there are fewer of those (grouped-query attention)."""
    batch, heads, length, size = queries.shape
    shared = heads // keys.shape[1]
    total, width = keys.shape[2], values.shape[3]

    def product(at: Indices) -> Expr:
        k = Axis("k", size)
        key = keys.at((at[0], at[1] // shared, at[3], k.dim))
        return contraction((k,), queries.at((at[0], at[1], at[2], k.dim)), key)

    scores = emit(scope, (batch, heads, length, total), product, "scores")
    rows = rows_of(scope, (batch, heads, length, total), lambda at: adjust(mul(scores.at(at), scale), at), (3,))
    weigh = softmax_of(rows, sink)
    weights = rows.per_element(weigh, "weights")

    def mixed(at: Indices) -> Expr:
        k = Axis("k", total)
        value = values.at((at[0], at[1] // shared, k.dim, at[3]))
        return contraction((k,), cast(weights.at((*at[:3], k.dim)), value.dtype), value)

    return emit_heads(scope, (batch, heads, length, width), mixed, "mixed")


def merged(heads: Heads, at: Indices) -> Expr:
    """An element of [batch, length, heads * size]."""
    size = heads.shape[3]
    return heads.at((at[0], at[2] // size, at[1], at[2] % size))


def joined(first: Body, length: Dim, second: Body) -> Body:
    """Two sets of heads concatenated along the third axis, of which the first has the given length."""

    def body(at: Indices) -> Expr:
        later = second((*at[:2], at[2] - length, at[3]))
        return select(at_least_zero(length - 1 - at[2]), first(at), later)

    return body


def rotated(element: Body, cosine: Body, sine: Body, turned: Dim, interleaved: bool) -> Body:
    """Heads with rotary embedding applied to the first `turned` features; cosine and sine are indexed by (batch,
    position, pair). Pairs are adjacent features if `interleaved`, else half of the rotated features apart."""
    half = turned // 2

    def body(at: Indices) -> Expr:
        place, feature = at[:-1], at[-1]
        pair = feature // 2 if interleaved else feature % half
        low, high = (pair * 2, pair * 2 + 1) if interleaved else (pair, pair + half)
        angle = (at[0], at[2], pair)
        c, s = cosine(angle), sine(angle)
        x, y = element((*place, low)), element((*place, high))
        first, second = sub(mul(x, c), mul(y, s)), add(mul(y, c), mul(x, s))
        # The first of a pair: an even feature, or one of the first half.
        is_first = at_least_zero(-(feature % 2)) if interleaved else at_least_zero(half - 1 - feature)
        return select(is_first, first, second)

    return body

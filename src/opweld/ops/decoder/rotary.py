"""Rotary embedding of heads that lie side by side, by angles whose cosines and sines are fed.

    Rotary(x [tokens, heads * size], cosines [tokens, pairs], sines [tokens, pairs]; size, interleaved, scale)

The first 2 * pairs features of each head are rotated, as pairs of neighbours where `interleaved`, else of features that
are `pairs` apart; all are multiplied by `scale`.
"""

from __future__ import annotations

from opweld import ir
from opweld.errors import ModelError
from opweld.ops.arithmetic import add, mul, sub
from opweld.ops.decoder.domain import DOMAIN
from opweld.ops.emitted import Indices, define
from opweld.ops.fact import Fact
from opweld.ops.operands import describe, require_rank, required
from opweld.ops.registry import Inference, Lowering, attribute, infers, lowers, required_attribute
from opweld.tensor.dim import floordiv, mod
from opweld.tensor.expr import Expr, at_least_zero, select


@infers("Rotary", domain=DOMAIN)
def infer_rotary(scope: Inference, node: ir.Node) -> list[Fact]:
    """That of x."""
    x, cosines, sines = (require_rank(scope.fact(required(node, n)), 2, node, 2) for n in range(3))
    size, pairs = int(required_attribute(node, "size")), cosines.shape[1].constant
    if pairs is None or 2 * pairs > size or sines.shape[1].constant != pairs:
        raise ModelError(f"{describe(node)}: {cosines.shape[1]} cosines and {sines.shape[1]} sines for heads of {size}")
    if x.shape[1].constant is None or int(x.shape[1]) % size:
        raise ModelError(f"{describe(node)}: {x.shape[1]} features are no heads of {size}")
    for fact in (cosines, sines):
        scope.same(fact.shape[0], x.shape[0], node, "angles for each token")
    return [Fact(x.dtype, x.shape)]


@lowers("Rotary", domain=DOMAIN)
def lower_rotary(scope: Lowering, node: ir.Node) -> None:
    """Of a pair (x, y): x cos - y sin, y cos + x sin."""
    x, cosines, sines = (required(node, n) for n in range(3))
    size, scale = int(required_attribute(node, "size")), float(attribute(node, "scale", 1.0))
    pairs = int(scope.fact(cosines).shape[1])
    interleaved = bool(attribute(node, "interleaved", 0))

    def body(at: Indices) -> Expr:
        token, column = at
        feature, head = mod(column, size), floordiv(column, size) * size
        pair = floordiv(feature, 2) if interleaved else mod(feature, pairs)
        low, high = (pair * 2, pair * 2 + 1) if interleaved else (pair, pair + pairs)
        first, second = scope.load(x, (token, head + low)), scope.load(x, (token, head + high))
        c, s = scope.load(cosines, (token, pair)), scope.load(sines, (token, pair))
        is_first = at_least_zero(-mod(feature, 2)) if interleaved else at_least_zero(pairs - 1 - feature)
        turned = select(is_first, sub(mul(first, c), mul(second, s)), add(mul(second, c), mul(first, s)))
        if 2 * pairs < size:
            turned = select(at_least_zero(2 * pairs - 1 - feature), turned, scope.load(x, (token, column)))
        return turned if scale == 1 else mul(turned, scale)

    define(scope, node.outputs[0], body)

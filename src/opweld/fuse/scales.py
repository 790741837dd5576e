"""Scales: a literal that multiplies all of an operand of sums of products multiplies the sums instead.

    q_scaled[i, k] = mul(qkv[i, k], 0.35)        k_scaled[k, j] = mul(qkv[j, k + 64], 0.35)
    scores[i, j] = sum<k>(mul(q_scaled[i, k], k_scaled[k, j]))

becomes

    scores[i, j] = mul(sum<k>(mul(qkv[i, k], qkv[j, k + 64])), 0.1225)

so that the sums read what was there before, and nothing is written to memory to be multiplied by a number. Exporters of
attention scale queries and keys, each by the root of the factor; others scale the scores.

Only what is still a tensor of its own after chains and epilogues is looked at, and scales no sum of a row, as a mean
does, whose row it will join: a scale that whoever makes the operand applies in registers costs nothing there. All
readers of the operand must be such sums, else it is computed anyway.

Either way a result is a sum of products of the same numbers, each rounded once more or less, which is within the
rounding of the sum. An infinity or a NaN stays one, and no sign of a zero changes, as the factor is positive. What can
differ is where numbers end: with factors within `MOST` and its reciprocal, the operands and the results of the two ways
are at most `MOST` ** 2 = 2 ** 16 apart, so that both are finite, and normal, wherever sums of absolute products lie
between 2 ** -110 and 2 ** 111. float32 itself goes from 2 ** -126 to 2 ** 128, and what comes closer to its ends than
that depends on the order of the sum as well. A narrower type, whose ends are nearer and which rounds what is scaled, is
left alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from opweld.fuse.legality import inline
from opweld.fuse.prices import Price
from opweld.fuse.region import Kind, is_zero, reductions
from opweld.fuse.use_def import UseDef, key_of, origins_of, too_much
from opweld.tensor.algebra import simplify
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Binary, Const, Expr, Load, Reduce, binary, const, reduce, transform
from opweld.tensor.program import Tensor

MOST = 256.0
"""The largest factor that leaves a sum; the smallest is its reciprocal."""


@dataclass(frozen=True)
class _Scaled:
    """An operand: the tensor, what it loads, and the factor."""

    tensor: Tensor
    source: Load
    factor: float


def move_scales(graph: UseDef) -> None:
    """Literal factors of operands leave the sums that read these."""
    candidates = [scaled for name in graph.items if (scaled := _scaled(graph, graph.tensor(name))) is not None]
    share = _shares(graph, candidates)
    for scaled in candidates:
        name = scaled.tensor.name
        users = [user for user in graph.users(name) if isinstance(user, Tensor)]
        moved = [_without(graph, user, scaled) for user in users]
        changed = [user for user in moved if user is not None]
        if not changed or len(changed) < len(graph.users(name)) or not _leaves(graph, scaled, users, changed, share):
            continue
        for user in changed:
            graph.put(user)
        graph.remove((name,))


def _shares(graph: UseDef, candidates: list[_Scaled]) -> Mapping[str, float]:
    """The part of a product by a literal that each scaled operand adds to a reader: all of them are one literal."""
    operands = Counter(key_of(user) for scaled in candidates for user in graph.users(scaled.tensor.name))
    return {name: 1 / count for name, count in operands.items()}


def _scaled(graph: UseDef, tensor: Tensor | None) -> _Scaled | None:
    """A tensor that is another one by a positive literal, in a type that sums of products are computed in."""
    if tensor is None or tensor.name in graph.kept or tensor.dtype not in (DType.F32, DType.F64):
        return None
    body = tensor.body
    if not isinstance(body, Binary) or body.op not in ("mul", "div"):
        return None
    if not isinstance(body.x, Load) or not isinstance(body.y, Const) or not body.y.value > 0:
        return None
    made = graph.tensor(body.x.tensor)
    if made is not None and graph.kind(made) is Kind.ROWWISE:
        return None
    factor = float(body.y.value)
    return _Scaled(tensor, body.x, factor if body.op == "mul" else 1 / factor)


def _without(graph: UseDef, user: Tensor, scaled: _Scaled) -> Tensor | None:
    """A reader of an operand that multiplies its sum by the factor; None where the operand is not just a factor of a
    sum of products."""
    if graph.kind(user) is not Kind.CONTRACTION:
        return None
    (summed,) = reductions(user.body)
    product = summed.body
    if not isinstance(product, Binary) or product.dtype is not scaled.tensor.dtype:
        return None
    operands, factor = [product.x, product.y], 1.0
    for site in graph.sites(user, scaled.tensor.name):
        if site not in operands or not is_zero(site.fill):
            return None
        inner = inline(site, replace(scaled.tensor, body=scaled.source))
        if not isinstance(inner, Load):
            return None
        factor *= scaled.factor ** operands.count(site)
        operands = [inner if operand is site else operand for operand in operands]
    total = reduce("sum", summed.axes, binary("mul", *operands))
    origin = origins_of(scaled.tensor, user)
    return replace(user, body=simplify(_multiplied(user.body, summed, total, factor)), origin=origin)


def _multiplied(body: Expr, summed: Reduce, total: Expr, factor: float) -> Expr:
    """An expression with another sum, by a factor, in the place of its sum; of two literal factors it becomes one."""
    product = binary("mul", total, const(factor, total.dtype))

    def rewritten(node: Expr) -> Expr | None:
        if node is summed:
            return product
        if not isinstance(node, Binary) or node.op != "mul" or node.x is not product or not isinstance(node.y, Const):
            return None
        both = factor * float(node.y.value)
        return binary("mul", total, const(both, total.dtype)) if _is_ordinary(node.y.value) else None

    return transform(body, rewritten)


def _is_ordinary(factor: float) -> bool:
    return 1 / MOST <= abs(factor) <= MOST


def _leaves(
    graph: UseDef, scaled: _Scaled, users: list[Tensor], changed: list[Tensor], share: Mapping[str, float]
) -> bool:
    """Puts to the ledger whether the factor is applied after the sums."""
    prices, tensor = graph.prices, scaled.tensor
    moves = prices.work(replace(tensor, body=scaled.source))
    read = [prices.inside(tensor.name, moves, prices.work(user)) for user in users]
    after = [prices.multiplied(work, share[user.name]) for work, user in zip(read, users, strict=True)]
    price = Price(prices.seconds(prices.work(tensor), *map(prices.work, users)), prices.seconds(*after))
    failed: dict[str, int | str] = {}
    if not _is_ordinary(scaled.factor):
        failed = {"factor": str(scaled.factor), "most": int(MOST)}
    for user in changed:
        failed = failed or too_much(operands=len(graph.inputs(user)), terms=graph.terms(user))
    return graph.scales(tensor, users, failed, price)

"""Epilogues: what is done with the result of a contraction or window is done before it leaves the registers."""

from __future__ import annotations

from dataclasses import replace

from opweld.fuse.legality import covers_once, inline
from opweld.fuse.prices import Price
from opweld.fuse.region import Kind
from opweld.fuse.use_def import UseDef, of_one_node, terms_of, too_much
from opweld.tensor.expr import substitute_loads
from opweld.tensor.program import Tensor

ANCHORS = (Kind.CONTRACTION, Kind.WINDOW)


def fold_epilogues(web: UseDef) -> None:
    """The only user of a contraction or window is computed on its accumulators. Later anchors choose first: of two
    that meet in an addition, the one computed last still has its result in registers."""
    for name in reversed(list(web.items)):
        anchor = web.tensor(name)
        while anchor is not None and web.kind(anchor) in ANCHORS:
            anchor = _with_user(web, anchor)


def _with_user(web: UseDef, anchor: Tensor) -> Tensor | None:
    """The anchor with its user as epilogue; None where it stays as it is."""
    user = web.only_user(anchor.name)
    if not isinstance(user, Tensor):
        return None
    reason = "computed on the accumulators before they are stored"
    own = of_one_node(anchor.origin, user.origin)
    prices, before, after = web.prices, web.prices.work(anchor), web.prices.work(user)
    work = prices.inside(anchor.name, before, after)
    failed, price = _refusal(web, anchor, user), Price(prices.seconds(before, after), prices.seconds(work))
    if not web.joins("fuse.epilogue", anchor, user, reason, failed, price, own=own):
        return None
    body = substitute_loads(user.body, lambda node: inline(node, anchor) if node.tensor == anchor.name else None)
    merged = replace(user, body=body, origin=tuple(dict.fromkeys((*anchor.origin, *user.origin))))
    web.put(merged)
    prices.keep(merged, work)
    web.remove((anchor.name,))
    web.renamed(anchor.name, user.name)
    return merged


def _refusal(web: UseDef, anchor: Tensor, user: Tensor) -> dict[str, int | str]:
    if web.reduces(user):
        kind = web.kind(user)
        return {"user": "scan" if kind is None else kind.value}
    if web.is_joined(user):
        return {"user": "concatenation: the result is stored into its slice instead"}
    sites = web.sites(user, anchor.name)
    if len({(site.indices, site.guards) for site in sites}) != 1:
        return {"loads": len(sites)}
    if not covers_once(sites[0], user, anchor):
        return {"indices": f"{sites[0]} does not ask for each element once"}
    operands = {*web.inputs(anchor), *web.inputs(user)} - {anchor.name}
    return too_much(
        nodes=web.size(anchor) + web.size(user) - 1,
        operands=len(operands),
        terms=web.terms(anchor) + terms_of(sites[0]),
    )

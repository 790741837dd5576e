"""Epilogues: what is done with the result of a contraction or window is done before it leaves the registers."""

from __future__ import annotations

from dataclasses import replace

from opweld.fuse.legality import covers_once, inline
from opweld.fuse.prices import Price
from opweld.fuse.region import Kind
from opweld.fuse.use_def import UseDef, of_one_node, origins_of, terms_of, too_much
from opweld.tensor.algebra import simplify
from opweld.tensor.expr import substitute_loads
from opweld.tensor.program import Tensor

ANCHORS = (Kind.CONTRACTION, Kind.WINDOW)


def fold_epilogues(graph: UseDef) -> None:
    """The only user of a contraction or window is computed on its accumulators. Later anchors choose first: of two
    that meet in an addition, the one computed last still has its result in registers."""
    for name in reversed(list(graph.items)):
        anchor = graph.tensor(name)
        while anchor is not None and graph.kind(anchor) in ANCHORS:
            anchor = _with_user(graph, anchor)


def _with_user(graph: UseDef, anchor: Tensor) -> Tensor | None:
    """The anchor with its user as epilogue; None where it stays as it is."""
    user = graph.only_user(anchor.name)
    if not isinstance(user, Tensor):
        return None
    reason = "computed on the accumulators before they are stored"
    own = of_one_node(anchor.origin, user.origin)
    prices, before, after = graph.prices, graph.prices.work(anchor), graph.prices.work(user)
    work = prices.inside(anchor.name, before, after)
    failed, price = _refusal(graph, anchor, user), Price(prices.seconds(before, after), prices.seconds(work))
    if not graph.joins("fuse.epilogue", anchor, user, reason, failed, price, own=own):
        return None
    body = substitute_loads(user.body, lambda node: inline(node, anchor) if node.tensor == anchor.name else None)
    merged = replace(user, body=simplify(body), origin=origins_of(anchor, user))
    graph.put(merged)
    prices.keep(merged, work)
    graph.remove((anchor.name,))
    graph.renamed(anchor.name, user.name)
    return merged


def _refusal(graph: UseDef, anchor: Tensor, user: Tensor) -> dict[str, int | str]:
    if graph.reduces(user):
        kind = graph.kind(user)
        return {"user": "scan" if kind is None else kind.value}
    if graph.is_joined(user):
        return {"user": "concatenation: the result is stored into its slice instead"}
    sites = graph.sites(user, anchor.name)
    if len({(site.indices, site.guards) for site in sites}) != 1:
        return {"loads": len(sites)}
    if not covers_once(sites[0], user, anchor):
        return {"indices": f"{sites[0]} does not ask for each element once"}
    operands = {*graph.inputs(anchor), *graph.inputs(user)} - {anchor.name}
    return too_much(
        nodes=graph.size(anchor) + graph.size(user) - 1,
        operands=len(operands),
        terms=graph.terms(anchor) + terms_of(sites[0]),
    )

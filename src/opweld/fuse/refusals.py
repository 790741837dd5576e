"""What was never asked: each pair of tensors that could be one kernel has its decision, refused ones included."""

from __future__ import annotations

import math

from opweld.fuse.grouping import RULE, RowGroups
from opweld.fuse.prices import Price
from opweld.fuse.region import Kind
from opweld.fuse.use_def import UseDef, key_of
from opweld.tensor.program import Item, Tensor


def record_rest(graph: UseDef, rows: RowGroups) -> None:
    """Puts to the ledger, as refused, each computed value and user of it that nobody has asked about."""
    for key, item in graph.items.items():
        for name in graph.inputs(item):
            source = graph.tensor(name)
            if source is None or graph.asked(name, key):
                continue
            space = rows.space(name)
            if space is None or space is not rows.space(key):
                rule, failed = _why(graph, rows, source, item)
                graph.joins(rule, source, item, "", failed, _apart(graph, source, item))


def _apart(graph: UseDef, source: Tensor, user: Item) -> Price:
    """What two items take as two kernels; as one they cannot be."""
    return Price(graph.prices.seconds(graph.prices.work(source), graph.prices.work(user)), math.inf)


def _why(graph: UseDef, rows: RowGroups, source: Tensor, user: Item) -> tuple[str, dict[str, int | str]]:
    """The rule under which the two would have met, and what said no."""
    kind, user_kind = graph.kind(source), graph.kind(user)
    if rows.space(source.name) is not None or (kind is Kind.MAP and user_kind is Kind.ROWWISE):
        return RULE, _why_no_row(rows, source, user, user_kind)
    rule = "fuse.chain" if kind is Kind.MAP else "fuse.epilogue"
    if source.name in graph.kept:
        return rule, {"output": graph.kept[source.name]}
    users = max(len(graph.users(source.name)), graph.users_before.get(source.name, 0))
    return rule, {"users": users} if users > 1 else {"user": _name(user_kind)}


def _why_no_row(rows: RowGroups, source: Tensor, user: Item, user_kind: Kind | None) -> dict[str, int | str]:
    if user_kind not in (Kind.MAP, Kind.ROWWISE):
        return {"user": _name(user_kind)}
    space = rows.space(key_of(user))
    if rows.space(source.name) is not None or space is None:
        return {"user": "computed with another row"}
    return {"row": f"begun by {space.tensors[0].name}"}


def _name(kind: Kind | None) -> str:
    return "scan" if kind is None else kind.value

"""Near misses that left nodes in different kernels, grouped by kind and sorted by cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from opweld.account.amounts import Amounts
from opweld.account.outcomes import Outcomes
from opweld.ledger import Decision, Ledger
from opweld.record import FileNode, Record

REWRITTEN = "(rewritten)"
"""The operator shown for a node that is not in the file."""


@dataclass(frozen=True)
class Miss:
    """Decisions of one rule that stayed at their baseline for one reason, the keys of `Decision.failed`, about nodes of
    the same operators.

    Attributes:
        decisions: the most expensive first. ends: for each, the nodes that it keeps in different kernels, by the names
            that decisions use.
        operators: those of the first ends.
        seconds, bytes: the predicted cost of all; None if not counted.
        fix: a suggested fix; "" if there is none.
    """

    decisions: tuple[Decision, ...]
    ends: tuple[tuple[str, ...], ...]
    operators: tuple[str, ...]
    seconds: float | None
    bytes: int | None
    fix: str

    @property
    def first(self) -> Decision:
        """The most expensive of them."""
        return self.decisions[0]


def misses_of(ledger: Ledger, record: Record, outcomes: Outcomes, amounts: Amounts) -> list[Miss]:
    """The near misses of a compilation, most expensive first by seconds, then by bytes, uncounted ones last.

    Two nodes that another decision put into one kernel are not near misses."""
    nodes = {name: node for node in record.nodes for name in node.called}
    groups: dict[tuple[object, ...], list[tuple[Decision, tuple[str, ...]]]] = {}
    for decision in ledger:
        if not decision.near_miss:
            continue
        ends = ends_of(decision, nodes, outcomes)
        if decision.stage == "fuse" and len(ends) == 2 and outcomes.together(*ends):
            continue
        key = decision.rule, tuple(decision.failed), tuple(_operator(end, nodes) for end in ends)
        groups.setdefault(key, []).append((decision, ends))
    made = [_miss(found, nodes, amounts) for found in groups.values()]
    return sorted(made, key=lambda miss: (-(miss.seconds or 0.0), -(miss.bytes or 0)))


def ends_of(decision: Decision, nodes: Mapping[str, FileNode], outcomes: Outcomes) -> tuple[str, ...]:
    """The nodes that a decision concerns: the producer of its value and the reader; if unknown, the ends of its
    site."""
    names = [part.rpartition(" ")[0] for part in decision.subject.split(" > ")]
    found = [name for name in names if name in decision.site]
    if len(found) > 1 and found[0] in nodes:
        given = set(nodes[found[0]].outputs)
        readers = [name for name in decision.site if name in nodes and given.intersection(nodes[name].inputs)]
        apart = [name for name in readers if not outcomes.together(found[0], name)]
        found = [found[0], *(apart[:1] or found[1:2])]
    return tuple(found) or tuple(dict.fromkeys((*decision.site[:1], *decision.site[-1:])))


def _operator(name: str, nodes: Mapping[str, FileNode]) -> str:
    return nodes[name].operator if name in nodes else REWRITTEN


def _miss(found: Sequence[tuple[Decision, tuple[str, ...]]], nodes: Mapping[str, FileNode], amounts: Amounts) -> Miss:
    seconds = {d.id: s for d, _ in found if (s := amounts.seconds_saved(d)) is not None}
    counted = {d.id: b for d, _ in found if (b := amounts.bytes_saved(d)) is not None}
    ordered = sorted(found, key=lambda pair: (-seconds.get(pair[0].id, 0.0), -counted.get(pair[0].id, 0)))
    first, ends = ordered[0]
    return Miss(
        tuple(decision for decision, _ in ordered),
        tuple(ends for _, ends in ordered),
        tuple(_operator(end, nodes) for end in ends),
        sum(seconds.values()) if seconds else None,
        sum(counted.values()) if counted else None,
        suggested_fix(first),
    )


def suggested_fix(decision: Decision) -> str:
    """The suggested fix of a near miss; "" if there is none."""
    for says, fix in SUGGESTED_FIXES:
        if says(decision):
            return fix
    return ""


def _failed(key: str, rules: str) -> Callable[[Decision], bool]:
    return lambda decision: key in decision.failed and decision.rule.startswith(rules)


SUGGESTED_FIXES: Sequence[tuple[Callable[[Decision], bool], str]] = (
    (_failed("output", "fuse"), "leave the value out of the model's outputs, if it is not needed"),
    (_failed("weights", "rewrite.siblings"), "export the weights as stored tensors"),
    (_failed("bias", "rewrite.siblings"), "export the bias as a stored vector"),
    (_failed("trips", "schedule.prefetch"), "fix the sizes: --dim NAME=N"),
)
"""Conditions of decisions, and the fix of each. Another decision may still refuse."""

"""Rules over a graph until none has anything to say, each decision through the ledger.

A rule is asked about a node when the node is new, or when something changed around it. What it proposes is decided
once for each output that it is about; what it refuses is recorded when all is done, for a refusal may be overtaken."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import onnx_ir as ir

from opweld.ledger import Alternative, Ledger
from opweld.rewrite.rule import Proposal, Refusal, Rule
from opweld.rewrite.scope import Scope

BASELINE = "as written"
TAKEN = "rewritten"
LIMIT = 32
"""Looks at a node, on average: far more than any graph needs, so that a rule that undoes another's work ends."""


def rewrite(scope: Scope, rules: Sequence[Rule], ledger: Ledger) -> None:
    """Applies rules until they have nothing more to say."""
    by_operator: defaultdict[str, list[Rule]] = defaultdict(list)
    for rule in rules:
        for operator in rule.operators:
            by_operator[operator].append(rule)
    answers: dict[tuple[str, str], bool] = {}
    refused: dict[tuple[str, str], tuple[ir.Node, tuple[str, ...], Refusal]] = {}
    scope.changed = dict.fromkeys(scope.graph)
    looks = LIMIT * (len(scope.changed) + 1)
    while scope.changed and looks:
        node = next(iter(scope.changed))
        del scope.changed[node]
        looks -= 1
        if node.graph is not scope.graph or node.domain not in ("", "ai.onnx") or not node.outputs:
            continue
        for rule in by_operator[node.op_type]:
            found = rule.look(node, scope)
            if found is None:
                continue
            key = rule.name, node.outputs[0].name or ""
            site = tuple(dict.fromkeys(n.name or "" for n in (node, *found.nodes)))
            if isinstance(found, Refusal):
                refused[key] = node, site, found
                continue
            if key not in answers:
                refused.pop(key, None)
                answers[key] = _decided(rule, key[1], site, found, ledger)
            if answers[key]:
                found.apply()
                break
    for (name, subject), (_, site, refusal) in refused.items():
        if (name, subject) not in answers:
            ledger.decide(
                rule=name,
                site=site,
                subject=(subject,),
                alternatives=[Alternative(BASELINE), Alternative(TAKEN)],
                prefer=BASELINE,
                reason=refusal.reason,
                failed=refusal.failed or {"condition": refusal.reason},
            )


def _decided(rule: Rule, subject: str, site: tuple[str, ...], found: Proposal, ledger: Ledger) -> bool:
    taken = ledger.decide(
        rule=rule.name,
        site=site,
        subject=(subject,),
        alternatives=[Alternative(BASELINE, bytes=found.saved), Alternative(TAKEN, bytes=0 if found.saved else None)],
        prefer=TAKEN,
        reason=found.reason,
    )
    return taken == TAKEN

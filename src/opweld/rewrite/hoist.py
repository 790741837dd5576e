"""The rewrites that compiling applies; the compiler imports no other module of this package.

Rewriting is a product of its own, `opweld optimize`: ONNX in, ONNX out, by dozens of rules. Compiling applies two of
them, and those that users add, which may require measuring.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx_ir as ir
from onnx_ir.passes.common import TopologicalSortPass

from opweld.ledger import Decision, Ledger
from opweld.rewrite.added import Added, added, kinds
from opweld.rewrite.apply import apply, make_names_unique
from opweld.rewrite.engine import BASELINE, TAKEN
from opweld.rewrite.facts import certain_facts
from opweld.rewrite.rule import Rule
from opweld.rewrite.rules.consecutive import Consecutive
from opweld.rewrite.rules.selection import Select
from opweld.rewrite.scope import Scope, qualified

__all__ = ["BASELINE", "OWN", "TAKEN", "added", "candidates_of", "hoist", "kinds"]

OWN: tuple[Rule, ...] = (Consecutive(), Select())
"""The rules of opweld's own that compiling applies; `rules.HOISTED` has their names."""


def hoist(model: ir.Model, ledger: Ledger, rules: Iterable[object] = ()) -> ir.Model:
    """A loaded model rewritten in place for compiling, by the rules of `OWN`, `rules`, and those of packages."""
    users, own = added(rules), OWN
    if all(isinstance(rule, Rule) for rule in users) and not any(_occurring(model, (*users, *own))):
        return model  # without applicable rules, inference is skipped
    scope = Scope(model, certain_facts(model))
    if apply(scope, ledger, users, own):
        TopologicalSortPass()(model)
        make_names_unique(model)
    return model


def candidates_of(ledger: Ledger, rules: Iterable[object]) -> list[Decision]:
    """The decisions of users' rules that wait to be measured: they are not pinned or disabled, and their level is
    enabled.

    `rules`: as for `hoist`."""
    waiting = {rule.name for rule in added(rules) if isinstance(rule, Rule) and rule.measured}
    return [d for d in ledger if d.rule in waiting and TAKEN in d.legal and not d.fired and ledger.may_change(d)]


def _occurring(model: ir.Model, rules: Iterable[Added]) -> Iterator[ir.Node]:
    """The nodes at which a rule may match."""
    by_operator: dict[str, list[Rule]] = {}
    for rule in (rule for rule in rules if isinstance(rule, Rule)):
        for operator in rule.operators:
            by_operator.setdefault(operator, []).append(rule)
    return (node for node in model.graph if any(rule.occurs(node) for rule in by_operator.get(qualified(node), ())))

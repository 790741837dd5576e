"""Applies users' and opweld's own rules and passes to a graph, and makes names unique afterwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir
from onnx_ir.passes.common import NameFixPass

from opweld.ledger import Ledger
from opweld.rewrite.added import Added
from opweld.rewrite.engine import rewrite, run
from opweld.rewrite.rule import Pass, Rule
from opweld.rewrite.scope import Scope
from opweld.rewrite.sound import check_sound


def apply(
    scope: Scope,
    ledger: Ledger,
    users: Sequence[Added],
    own: Sequence[Rule],
    later: Sequence[Sequence[Rule]] = (),
    merged: Callable[[], bool] = lambda: False,
) -> bool:
    """Applies users' passes and rules and opweld's own; returns whether anything changed. Users' rules are tried first,
    since they know more than opweld's. `later`, `merged`: as for `rewrite`.

    Raises RuleError for a rule that fails, or that leaves an invalid graph."""
    changed = [run(entry, scope, ledger) for entry in users if isinstance(entry, Pass)]
    first = [*(entry for entry in users if isinstance(entry, Rule)), *own]
    changed.append(rewrite(scope, first, ledger, later, merged))
    applied = {entry.name for entry in users} & {decision.rule for decision in ledger if decision.fired}
    if applied:
        check_sound(scope.graph, sorted(applied))
    return any(changed)


def make_names_unique(model: ir.Model) -> None:
    """Renames values and nodes whose names are not unique, and names those without."""
    nodes = list(ir.traversal.RecursiveGraphIterator(model.graph))
    unnamed = [node for node in nodes if not node.name]
    absent = [value for node in nodes for value in node.outputs if not value.name]
    NameFixPass()(model)
    for named in (*unnamed, *absent):
        named.name = ""

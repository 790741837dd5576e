"""Dead code elimination: removes what no output of the model needs."""

from __future__ import annotations

from opweld.ledger import Alternative, Ledger
from opweld.rewrite.scope import Scope

NAME = "rewrite.dead"


def remove_dead(scope: Scope, ledger: Ledger) -> None:
    """Removes nodes and stored tensors that nothing reads, from the last to the first."""
    for node in reversed(list(scope.graph)):
        if node.graph is not scope.graph or any(v.uses() or v.is_graph_output() for v in node.outputs):
            continue
        taken = scope.decide(
            ledger,
            rule=NAME,
            site=(node.name or "",),
            subject=next((value.name for value in node.outputs if value.name), node.name or ""),
            alternatives=[Alternative("kept"), Alternative("removed")],
            prefer="removed",
            reason="no output needs it",
        )
        if taken == "removed":
            scope.remove(node)
    for name, value in list(scope.model.graph.initializers.items()):
        if not value.uses() and not value.is_graph_output() and not value.is_graph_input():
            del scope.model.graph.initializers[name]

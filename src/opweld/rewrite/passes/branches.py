"""An If whose condition is known is replaced by the nodes of the branch that it takes."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from opweld.ledger import Alternative, Ledger
from opweld.rewrite.scope import Scope, operand

NAME = "rewrite.branches"

Bodies = list[tuple[ir.Node, Scope]]
"""Nodes with bodies, and the bodies, from `Scope.bodies`."""


def take_branches(scope: Scope, bodies: Bodies, ledger: Ledger) -> bool:
    """Inlines the branch that an If takes where its condition is stored; returns whether any was. Bodies inside of an
    inlined branch are added to those of the graph."""
    changed = False
    for owner in [node for node in scope.graph if node.op_type == "If" and node.domain in ("", "ai.onnx")]:
        condition = scope.constant(operand(owner, 0))
        if condition is None or condition.size != 1:
            continue
        name = "then_branch" if condition.reshape(-1)[0] else "else_branch"
        body = owner.attributes[name].as_graph()
        inner = next(found for node, found in bodies if node is owner and found.graph is body)
        taken = scope.decide(
            ledger,
            rule=NAME,
            site=(owner.name or "",),
            subject=next((value.name for value in owner.outputs if value.name), ""),
            alternatives=[Alternative("as written"), Alternative("one branch")],
            prefer="one branch",
            reason=f"the condition is known: {name}",
        )
        if taken == "one branch":
            bodies += inner.bodies()
            _put(scope, owner, inner)
            changed = True
    return changed


def _put(scope: Scope, owner: ir.Node, inner: Scope) -> None:
    body = inner.graph
    results = list(body.outputs)
    body.outputs.clear()
    for node in list(body):
        body.remove(node)
        scope.adopt(node, owner, inner)
    for value in list(body.initializers.values()):  # a stored output of a body is not moved before
        stored = scope.store(owner, value.const_value.numpy()) if value.const_value is not None else None
        results = [stored if result is value and stored is not None else result for result in results]
    _hand_on(scope, owner, results)
    scope.drop(owner)


def _hand_on(scope: Scope, owner: ir.Node, results: Sequence[ir.Value]) -> None:
    for output, result in zip(owner.outputs, results, strict=True):
        if not output.uses() and not output.is_graph_output():
            continue
        if not scope.replaceable(output, result):
            result = scope.add(owner, "Identity", [result])
        scope.replace(output, result)

"""Computes elementwise steps of a recurrence inside their only user."""

from __future__ import annotations

from dataclasses import replace

from opweld.fuse.legality import inline
from opweld.fuse.region import reductions
from opweld.ledger import Alternative, Ledger
from opweld.tensor.expr import Expr, Load, loads, substitute_loads
from opweld.tensor.program import Scan, Tensor


def fold_steps(scan: Scan, ledger: Ledger) -> Scan:
    """The recurrence with chains of steps folded, each fold a decision in the ledger."""
    steps = {step.name: step for step in scan.steps}
    kept = {name for _, name in scan.stacked} | {state.update for state in scan.states}
    for name in list(steps):
        step = steps[name]  # with what was computed inside it meanwhile
        users = [s for s in steps.values() if any(node.tensor == name for node in loads(s.body))]
        if not users or reductions(step.body):
            continue
        failed: dict[str, int | str] = {}
        if name in kept:
            failed["step"] = "is a state or an output"
        elif len(users) != 1:
            failed["users"] = len(users)
        elif reductions(users[0].body):
            failed["user"] = "a reduction"
        choice = ledger.decide(
            rule="fuse.chain",
            site=tuple(dict.fromkeys((*step.origin, *users[0].origin))),
            subject=(*(output for output, _ in (*scan.stacked, *scan.final)), name, users[0].name),
            alternatives=(Alternative("separate"), Alternative("fused")),
            prefer="separate" if failed else "fused",
            reason="needs its operand in scratch" if failed else "one user, elementwise: the value stays in a register",
            failed=failed,
        )
        if choice == "fused":
            steps[users[0].name] = _inside(users[0], step)
            del steps[name]
    return replace(scan, steps=tuple(steps.values()))


def _inside(user: Tensor, step: Tensor) -> Tensor:
    def substitute(node: Load) -> Expr | None:
        return inline(node, step) if node.tensor == step.name else None

    return replace(user, body=substitute_loads(user.body, substitute))

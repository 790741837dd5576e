"""Recurrences as regions: chains of elementwise steps folded, each step that is left a member."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace

from opweld.fuse.legality import inline
from opweld.fuse.prices import Prices
from opweld.fuse.region import Kind, Member, Region, classify, reductions
from opweld.fuse.use_def import origins_of
from opweld.ledger import Alternative, Ledger
from opweld.tensor.dim import product
from opweld.tensor.expr import Expr, Load, loads, substitute_loads
from opweld.tensor.program import Constant, Scan, Tensor, item_inputs, item_outputs


def recurrence(scan: Scan, constants: Container[str]) -> Region:
    """The region of a scan.

    Weights that are fed cannot be packed along the lanes: their sum over a row is one window an element."""
    members: list[Member] = []
    for step in scan.steps:
        kind = classify(step, constants)
        members.append(Member(Kind.WINDOW if kind is Kind.ROWWISE else kind, (step,)))
    return Region(tuple(members), item_outputs(scan), scan)


def weights_of(scan: Scan, constants: Mapping[str, Constant]) -> int:
    """The bytes of the constants that a step reads: what has passed through the caches when it is read again."""
    read = {node.tensor for step in scan.steps for node in loads(step.body)}
    return sum(constants[name].bytes for name in read & constants.keys())


def without_unused(scan: Scan) -> Scan:
    """The recurrence without steps that nothing reads."""
    used = {name for _, name in scan.stacked} | {state.update for state in scan.states}
    for step in reversed(scan.steps):
        if step.name in used:
            used.update(item_inputs(step))
    return replace(scan, steps=tuple(step for step in scan.steps if step.name in used))


def fold_steps(scan: Scan, prices: Prices, ledger: Ledger) -> Scan:
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
        price = prices.of_steps(step, users[0], scan.time.extent)
        reason = "one user, elementwise: the value stays in a register"
        if not price.pays:
            reason = f"{product(users[0].shape)} elements would be computed instead of {product(step.shape)}"
        choice = ledger.decide(
            rule="fuse.chain",
            site=origins_of(step, users[0]),
            subject=(*(output for output, _ in (*scan.stacked, *scan.final)), name, users[0].name),
            alternatives=(
                Alternative("separate", seconds=price.apart),
                Alternative("fused", seconds=None if failed else price.together),
            ),
            prefer="fused" if price.pays and not failed else "separate",
            reason="needs its operand in scratch" if failed else reason,
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

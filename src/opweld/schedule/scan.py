"""The template of recurrences: one thread walks the steps, states and step values stay in scratch.

    copy the initial states into scratch
    for each step: compute every step tensor into scratch; store what is stacked; move the updates into the states
    copy the states to the final outputs

Everything that does not depend on the state was hoisted out of the recurrence before; what remains is small, and a
barrier at every step would cost more than a second thread gains.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from opweld.fuse.legality import inline
from opweld.fuse.region import Kind, classify, reductions
from opweld.place.storage import Storage, Term, dense
from opweld.schedule.map import schedule_map
from opweld.schedule.nest import nest_of
from opweld.schedule.reduction import schedule_reduction
from opweld.schedule.tile import Loop, Scratch, Statement
from opweld.target import Target
from opweld.tensor.dim import Axis, Dim
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, Load, load, loads, substitute_loads
from opweld.tensor.program import Scan, Tensor


def schedule_scan(
    scan: Scan,
    storages: dict[str, Storage],
    shapes: dict[str, tuple[Dim, ...]],
    constants: Container[str],
    target: Target,
) -> tuple[tuple[Statement, ...], tuple[Scratch, ...]]:
    """Statements and scratch of a recurrence; its grid has one iteration."""
    scan = _fold_steps(scan)
    local = dict(storages)
    scratch: list[Scratch] = []
    for value in (*scan.states, *scan.steps):
        name = f"{value.name}_now"
        local[value.name] = dense(name, value.dtype, value.shape)
        scratch.append(Scratch(name, value.dtype, local[value.name].elements))
    sizes = shapes | {value.name: value.shape for value in (*scan.states, *scan.steps)}

    def compute(axes: tuple[Axis, ...], body: Expr, storage: Storage, kind: Kind) -> tuple[Statement, ...]:
        nest = nest_of(axes, tuple(axis.dim for axis in axes), body, storage, local, sizes)
        if kind is not Kind.MAP:
            # Weights that are fed cannot be packed along the lanes: their sum over a row is one window an element.
            kind = kind if kind is Kind.CONTRACTION else Kind.WINDOW
            grid, inner = schedule_reduction(nest, storage.root, kind, target)
        else:
            grid, inner = schedule_map(nest, storage.root, target)
        for axis in reversed(grid):
            inner = (Loop(axis, inner),)
        return inner

    def copy(source: str, dtype: DType, axes: tuple[Axis, ...], storage: Storage) -> tuple[Statement, ...]:
        return compute(axes, load(source, dtype, tuple(a.dim for a in axes)), storage, Kind.MAP)

    before: list[Statement] = []
    for state in scan.states:
        before += compute(state.axes, state.initial, local[state.name], Kind.MAP)
    during: list[Statement] = []
    steps = {step.name: step for step in scan.steps}
    for step in scan.steps:
        during += compute(step.axes, step.body, local[step.name], classify(step, constants))
    for name, source in scan.stacked:
        step = steps[source]
        during += copy(source, step.dtype, step.axes, _at_step(local[name], scan.time))
    for state in scan.states:
        during += copy(state.update, state.dtype, state.axes, local[state.name])
    after: list[Statement] = []
    states = {state.name: state for state in scan.states}
    for name, source in scan.final:
        state = states[source]
        after += copy(source, state.dtype, state.axes, local[name])
    return (*before, Loop(scan.time, tuple(during)), *after), tuple(scratch)


def _at_step(stacked: Storage, time: Axis) -> Storage:
    """The part of a stacked output that belongs to the current step."""
    address = stacked.offset
    terms: list[Term] = []
    for term in stacked.terms:
        if term.axis == 0:
            address = address + term.stride * (time.dim + term.shift)
        else:
            terms.append(replace(term, axis=term.axis - 1))
    return replace(stacked, terms=tuple(terms), offset=address)


def _fold_steps(scan: Scan) -> Scan:
    """Computes an elementwise step inside its only user."""
    steps = list(scan.steps)
    kept = {name for _, name in scan.stacked} | {state.update for state in scan.states}
    for step in list(steps):
        users = [s for s in steps if any(node.tensor == step.name for node in loads(s.body))]
        if step.name in kept or len(users) != 1 or reductions(step.body) or reductions(users[0].body):
            continue

        def substitute(node: Load, step: Tensor = step) -> Expr | None:
            return inline(node, step) if node.tensor == step.name else None

        merged = replace(users[0], body=substitute_loads(users[0].body, substitute))
        steps = [merged if s is users[0] else s for s in steps if s is not step]
    return replace(scan, steps=tuple(steps))

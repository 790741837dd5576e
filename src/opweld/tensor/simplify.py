"""Simplification of tensor programs: algebra, constant folding, common subexpressions, dead code."""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np

from opweld.ledger import Alternative, Ledger
from opweld.tensor.algebra import simplify
from opweld.tensor.dim import ONE, ZERO, Atom, Axis, Dim, as_dim, atoms_of, floordiv, nonnegative, product
from opweld.tensor.expr import (
    Const,
    Expr,
    Index,
    Load,
    Reduce,
    Select,
    at_least_zero,
    binary,
    const,
    load,
    loads,
    reduce,
    select,
    substitute,
    substitute_loads,
    transform,
)
from opweld.tensor.flow import Flow
from opweld.tensor.fold import (
    Answer,
    Decide,
    Folding,
    affine_constant,
    fold_constants,
    is_generated,
    load_generated,
    load_literal,
    load_position,
    uniform_literals,
)
from opweld.tensor.intern import current
from opweld.tensor.label import labels
from opweld.tensor.program import Constant, Extern, Item, Scan, State, Tensor, TensorProgram, item_inputs, item_outputs

__all__ = ["canonical_body", "simplify", "simplify_flow", "simplify_program"]

MERGE_BYTES = 1 << 20
"""Constants up to this size are merged when their bytes are equal; larger ones when they have the same `read`
function."""

_ROUNDS = 8
_digests: WeakKeyDictionary[Constant, bytes] = WeakKeyDictionary()


def _folded(folding: Folding) -> Answer:
    """The decision without a ledger."""
    return "in every run" if folding.refused else "now"


def simplify_program(program: TensorProgram, decide: Decide = _folded) -> TensorProgram:
    """A program with the same outputs that computes no more; the same object when there is nothing to do.

    Args:
        program: a verified program.
        decide: decides, once for each tensor of constants, when it is computed.
    """
    answers: dict[str, Answer] = {}

    def decide_once(folding: Folding) -> Answer:
        name = folding.name
        if name not in answers:
            answers[name] = decide(folding)
        return answers[name]

    for _ in range(_ROUNDS):
        # folding comes first, while values that depend on constants through several tensors are still exact
        following = _simplify_bodies(_with_positions(_fold(program, decide_once)))
        for step in (_write_blocks, _join_parts, _forward_copies, _merge_constants, _merge_tensors, _remove_dead):
            following = step(following)
        if following is program:
            break
        program = following
    return program


def simplify_flow(flow: Flow, ledger: Ledger) -> Flow:
    """The flow with every program simplified; folding is decided by the ledger."""

    segments = (
        replace(segment, programs=tuple(simplify_variant(program, ledger) for program in segment.programs))
        for segment in flow.segments
    )
    return replace(flow, segments=tuple(segments))


def simplify_variant(program: TensorProgram, ledger: Ledger) -> TensorProgram:
    """The program simplified; folding is decided by the ledger."""
    ledger.variant(program.name, labels(program))
    return simplify_program(program, functools.partial(_decided, ledger))


def _decided(ledger: Ledger, folding: Folding) -> Answer:
    """The ledger's decision about a tensor of constants."""
    alternatives = [Alternative("in every run", bytes=folding.before), Alternative("now", bytes=folding.after)]
    prefer, reason = "in every run" if folding.refused else "now", folding.reason
    if folding.readers:
        alternatives.append(Alternative("by its readers", bytes=folding.before))
        prefer, reason = "by its readers", f"its operands take {folding.before:,} bytes, it takes {folding.after:,}"
    taken = ledger.decide(
        rule="simplify.fold",
        site=[name for name in folding.origin if name],
        subject=[folding.name],
        alternatives=alternatives,
        prefer=prefer,
        reason=reason,
        failed=folding.refused,
    )
    return "now" if taken == "now" else "by its readers" if taken == "by its readers" else "in every run"


def _map_bodies(item: Item, change: Callable[[Expr], Expr]) -> Item:
    """The item with every expression changed; the same object when none is."""
    if isinstance(item, Tensor):
        body = change(item.body)
        return item if body is item.body else replace(item, body=body)
    if isinstance(item, Extern):
        return item
    states = tuple(_map_state(state, change) for state in item.states)
    steps = tuple(_map_step(step, change) for step in item.steps)
    if states == item.states and steps == item.steps:
        return item
    return replace(item, states=states, steps=steps)


def _map_state(state: State, change: Callable[[Expr], Expr]) -> State:
    initial = change(state.initial)
    return state if initial is state.initial else replace(state, initial=initial)


def _map_step(step: Tensor, change: Callable[[Expr], Expr]) -> Tensor:
    body = change(step.body)
    return step if body is step.body else replace(step, body=body)


def _with_items(program: TensorProgram, items: tuple[Item, ...]) -> TensorProgram:
    return program if items == program.items else replace(program, items=items)


def _simplify_bodies(program: TensorProgram) -> TensorProgram:
    literals = uniform_literals(program.constants, program.items)

    def change(body: Expr) -> Expr:
        if literals:
            body = substitute_loads(body, lambda node: load_literal(node, literals))
        return simplify(body)

    return _with_items(program, tuple(_emptied(_map_bodies(item, change)) for item in program.items))


def _with_positions(program: TensorProgram) -> TensorProgram:
    """Replaces loads of affine constants, and of tensors that count along their axes, by index expressions."""
    known = {c.name: found for c in program.constants if (found := affine_constant(c)) is not None}
    generated = {item.name: item for item in program.items if isinstance(item, Tensor) and is_generated(item)}
    if not known and not generated:
        return program

    def position(node: Load) -> Expr | None:
        if node.tensor in generated:
            return load_generated(node, generated[node.tensor])
        found = known.get(node.tensor)
        return None if found is None else load_position(node, found)

    items = (_map_bodies(item, lambda body: substitute_loads(body, position)) for item in program.items)
    return _with_items(program, tuple(items))


def _emptied(item: Item) -> Item:
    """An empty tensor without operands: their computation may be dead, and no schedule needs to handle it."""
    if not isinstance(item, Tensor) or isinstance(item.body, Const) or all(dim.constant != 0 for dim in item.shape):
        return item
    return replace(item, body=const(0, item.dtype))


def _fold(program: TensorProgram, decide: Decide) -> TensorProgram:
    folded = fold_constants(program, decide)
    items = folded.items
    if folded.inlined:
        items = tuple(_map_bodies(item, lambda body: _inlined(body, folded.inlined)) for item in items)
    if len(items) == len(program.items) and all(new is old for new, old in zip(items, program.items, strict=True)):
        return program
    return replace(program, items=items, constants=folded.constants)


def _inlined(body: Expr, tensors: Mapping[str, Tensor]) -> Expr:
    """A body with these tensors computed where they are loaded; where a guard is, the fill may be another value."""

    def computed(node: Load) -> Expr | None:
        tensor = None if node.guards else tensors.get(node.tensor)
        if tensor is None:
            return None
        mapping: dict[Atom, Dim] = dict(zip(tensor.axes, node.indices, strict=True))
        return substitute(tensor.body, mapping)

    return substitute_loads(body, computed)


def _write_blocks(program: TensorProgram) -> TensorProgram:
    """Replaces scatters into a block of a value, at places that count through it, by a choice between what is written
    and the rest."""
    shapes = {name: shape for name, (_, shape) in program.signatures.items()}
    counted = {item.name: item for item in program.items if isinstance(item, Tensor) and not loads(item.body)}

    def written(item: Item) -> Item:
        if not isinstance(item, Extern) or item.function != "scatter" or item.rows.constant != 1:
            return item
        (result,), (data, name, updates) = item.results, item.operands
        places = counted.get(name)
        begin = _block_begin(places, result.shape) if places is not None and shapes[data] == result.shape else None
        if begin is None or places is None or shapes[updates] != (*places.shape, *result.shape[len(begin) :]):
            return item
        axes = tuple(Axis(f"i{n}", extent) for n, extent in enumerate(result.shape))
        at = tuple(axis.dim for axis in axes)
        inside = tuple(i - first for i, first in zip(at, begin, strict=False))
        edges = (edge for i, count in zip(inside, places.shape, strict=True) for edge in (i, count - 1 - i))
        condition = functools.reduce(lambda x, y: binary("and", x, y), map(at_least_zero, edges))
        new = load(updates, result.dtype, (*inside, *at[len(begin) :]))
        return Tensor(
            result.name, result.dtype, axes, select(condition, new, load(data, result.dtype, at)), item.origin
        )

    return _with_items(program, tuple(map(written, program.items)))


def _block_begin(places: Tensor, shape: tuple[Dim, ...]) -> tuple[Dim, ...] | None:
    """The indices of the first element of a block along the first axes of a value, where the places, linear ones, are
    those of a block that certainly lies inside."""
    body = places.body
    begin = body.dim if isinstance(body, Index) else as_dim(int(body.value)) if isinstance(body, Const) else None
    if begin is None or len(places.axes) > len(shape) or any(size is ZERO for size in shape):
        return None
    for n, axis in enumerate(places.axes):
        step = product(shape[n + 1 :])
        if axis.extent is ONE:
            begin = begin.substitute({axis: ZERO})
        elif begin.coefficient(axis) is step:
            begin = begin - step * axis.dim
    if atoms_of(begin) & set(places.axes):
        return None
    found: list[Dim] = []
    for n, axis in enumerate(places.axes):
        step = product(shape[n + 1 :])
        first = floordiv(begin, step)
        begin = begin - first * step
        if not nonnegative(first) or not nonnegative(shape[n] - axis.extent - first):
            return None
        found.append(first)
    return tuple(found) if found and begin is ZERO else None


def _join_parts(program: TensorProgram) -> TensorProgram:
    """Replaces parts of one value that have changed places by one load of it, where the algebra knows one."""
    parts: dict[str, Tensor] = {}
    for item in program.items:
        if isinstance(item, Tensor) and isinstance(item.body, Load) and not item.body.guards:
            terms = (monomial for i in item.body.indices for monomial, _ in i.terms)
            if all(isinstance(atom, Axis) for monomial in terms for atom in monomial):
                parts[item.name] = replace(item, body=_inlined(item.body, parts))

    def joined(item: Item) -> Item:
        if not isinstance(item, Tensor) or not isinstance(item.body, Select):
            return item
        sides = (item.body.x, item.body.y)
        if not all(isinstance(side, Load) and side.tensor in parts and not side.guards for side in sides):
            return item
        body = simplify(_inlined(item.body, parts))
        return replace(item, body=body) if isinstance(body, Load) else item

    return _with_items(program, tuple(map(joined, program.items)))


def _forward_copies(program: TensorProgram) -> TensorProgram:
    """Replaces loads of a copy by loads of its source. A copy of an input or a constant that is an output is kept,
    since nothing else would write the output."""
    signatures = program.signatures
    computed = {name for item in program.items for name in item_outputs(item)}
    source: dict[str, str] = {}
    for item in program.items:
        if isinstance(item, Tensor) and isinstance(item.body, Load):
            body = item.body
            plain = not body.guards and body.indices == tuple(axis.dim for axis in item.axes)
            if plain and signatures[body.tensor][1] == item.shape:
                source[item.name] = source.get(body.tensor, body.tensor)
    if not source:
        return program
    renamed = _rename(program, source)
    outputs = tuple(
        (public, source[value] if source.get(value) in computed else value) for public, value in program.outputs
    )
    return renamed if outputs == program.outputs else replace(renamed, outputs=outputs)


def _rename(program: TensorProgram, names: Mapping[str, str]) -> TensorProgram:
    """Replaces loads of names, and the graph values that they stand for."""

    def rename(node: Load) -> Expr | None:
        if node.tensor not in names:
            return None
        return load(names[node.tensor], node.dtype, node.indices, node.guards, node.fill)

    def renamed(item: Item) -> Item:
        if not isinstance(item, Extern):
            return _map_bodies(item, lambda body: substitute_loads(body, rename))
        operands = tuple(names.get(name, name) for name in item.operands)
        return item if operands == item.operands else replace(item, operands=operands)

    changed = _with_items(program, tuple(map(renamed, program.items)))
    moved = {names[name]: value for name, value in program.values.items() if name in names}
    values = {**moved, **program.values}
    return changed if values == program.values else replace(changed, values=values)


def _merge_constants(program: TensorProgram) -> TensorProgram:
    first: dict[object, str] = {}
    same: dict[str, str] = {}
    kept: list[Constant] = []
    for constant in program.constants:
        name = first.setdefault(_constant_key(constant), constant.name)
        if name == constant.name:
            kept.append(constant)
        else:
            same[constant.name] = name
    if not same:
        return program
    outputs = tuple((public, same.get(value, value)) for public, value in program.outputs)
    return replace(_rename(program, same), constants=tuple(kept), outputs=outputs)


def _constant_key(constant: Constant) -> object:
    if math.prod(constant.shape) * constant.dtype.bytes > MERGE_BYTES:
        return (constant.dtype, constant.shape, constant.read)
    digest = _digests.get(constant)
    if digest is None:
        _digests[constant] = digest = hashlib.sha256(np.ascontiguousarray(constant.read()).tobytes()).digest()
    return (constant.dtype, constant.shape, digest)


def _merge_tensors(program: TensorProgram) -> TensorProgram:
    """Merges tensors with the same body up to renaming of axes, with the origins of all."""
    first: dict[object, Tensor] = {}
    same: dict[str, str] = {}
    origins: dict[str, tuple[str, ...]] = {}
    for item in program.items:
        if not isinstance(item, Tensor):
            continue
        body = canonical_body(item.axes, _renamed(item.body, same))
        kept = first.setdefault((item.dtype, item.shape, body), item)
        if kept is not item:
            same[item.name] = kept.name
            origins[kept.name] = tuple(dict.fromkeys((*origins.get(kept.name, kept.origin), *item.origin)))
    if not same:
        return program
    renamed = _rename(program, same)
    items = tuple(
        replace(item, origin=origins[item.name]) if isinstance(item, Tensor) and item.name in origins else item
        for item in renamed.items
        if not (isinstance(item, Tensor) and item.name in same)
    )
    outputs = tuple((public, same.get(value, value)) for public, value in program.outputs)
    return replace(renamed, items=items, outputs=outputs)


def _renamed(body: Expr, names: Mapping[str, str]) -> Expr:
    if not names:
        return body
    return substitute_loads(
        body,
        lambda node: (
            load(names[node.tensor], node.dtype, node.indices, node.guards, node.fill) if node.tensor in names else None
        ),
    )


def _canonical_axis(kind: str, position: int, extent: Dim) -> Axis:
    axes = current.get().axes
    found = axes.get((kind, position, extent))
    return axes.setdefault((kind, position, extent), Axis(f"{kind}{position}", extent)) if found is None else found


def canonical_body(axes: tuple[Axis, ...], body: Expr) -> Expr:
    """The body over shared axes i0, i1, .. and reduced axes r0, r1, ..: one object for equivalent bodies.

    For comparison only: such bodies must not be nested in each other, as they share axes."""
    mapping: dict[Atom, Dim] = {
        axis: _canonical_axis("i", position, axis.extent).dim for position, axis in enumerate(axes)
    }
    count = 0

    def rewrite(node: Expr) -> Expr | None:
        nonlocal count
        if not isinstance(node, Reduce):
            return None
        shared = tuple(_canonical_axis("r", count + i, axis.extent) for i, axis in enumerate(node.axes))
        count += len(shared)
        renaming: dict[Atom, Dim] = {old: new.dim for old, new in zip(node.axes, shared, strict=True)}
        return reduce(node.kind, shared, substitute(node.body, renaming))

    return transform(substitute(body, mapping), rewrite)


def _remove_dead(program: TensorProgram) -> TensorProgram:
    used = {value for _, value in program.outputs}
    items: list[Item] = []
    for item in reversed(program.items):
        live = _live_scan(item, used) if isinstance(item, Scan) else item
        if not used.intersection(item_outputs(live)):
            continue
        items.append(live)
        used.update(item_inputs(live))
    constants = tuple(constant for constant in program.constants if constant.name in used)
    if tuple(reversed(items)) == program.items and constants == program.constants:
        return program
    return replace(program, items=tuple(reversed(items)), constants=constants)


def _live_scan(scan: Scan, used: set[str]) -> Scan:
    """The scan without unused outputs, and without states and steps that are dead then."""
    stacked = tuple(pair for pair in scan.stacked if pair[0] in used)
    final = tuple(pair for pair in scan.final if pair[0] in used)
    states = {state.name: state for state in scan.states}
    steps = {step.name: step for step in scan.steps}
    live: set[str] = set()
    pending = [name for _, name in (*stacked, *final)]
    while pending:
        name = pending.pop()
        if name in live:
            continue
        live.add(name)
        if name in states:
            pending.append(states[name].update)
        elif name in steps:
            pending.extend(item_inputs(steps[name]))
    if (stacked, final) == (scan.stacked, scan.final) and live.issuperset((*states, *steps)):
        return scan
    return replace(
        scan,
        states=tuple(state for state in scan.states if state.name in live),
        steps=tuple(step for step in scan.steps if step.name in live),
        stacked=stacked,
        final=final,
    )

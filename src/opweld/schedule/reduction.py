"""The template of contractions and windows: a register tile of rows x lanes, accumulated over the reduced axes.

    grid   (axes of both operands..., lane tiles, other rows..., row tiles), or lane tiles last
    tile   lanes: the axis that the packed operand and the result run along; rows: an axis of the other operand
    body   declare accumulators; loop over the reduced axes; accumulate; store epilogue(accumulators)

A packed operand that fits the second-level cache is passed over for every row tile, whose operand and result are then
walked once, front to back. Of a larger one, a block stays in cache while all rows pass over it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from opweld.fuse.region import Kind
from opweld.place.widths import row_height, vectors_of
from opweld.schedule.lanes import tile_at
from opweld.schedule.nest import Nest, by_stride
from opweld.schedule.tile import Accumulate, Declare, Loop, Statement, Store, Tile
from opweld.target import Target
from opweld.tensor.dim import ONE, ZERO, Atom, Axis, Dim, atoms_of, ceildiv, mod, nonnegative, product
from opweld.tensor.expr import (
    Expr,
    Reduce,
    const,
    dims_of,
    load,
    loads,
    substitute,
    transform,
    walk,
)
from opweld.tensor.semantics import neutral

UNROLL = 7
"""A window axis of at most this extent is written out, so that taps of neighbouring rows share their loads. Not so in a
contraction: its registers are full of accumulators."""


LONG = 8
"""Rows that a tile should have at least."""


@dataclass(frozen=True, eq=False)
class Plan:
    """Which axis plays which part, and how wide and high the register tile is."""

    lane: Axis
    width: int
    row: Axis | None
    height: int


def schedule_reduction(
    nest: Nest, buffer: str, kind: Kind, target: Target
) -> tuple[tuple[Axis, ...], tuple[Statement, ...]]:
    """Grid axes and statements of a contraction or window nest."""
    node = next(n for n in walk(nest.body) if isinstance(n, Reduce))
    plan = _plan(nest, node, kind, target)
    window = kind is Kind.WINDOW
    others = [axis for axis in nest.axes if axis not in (plan.lane, plan.row)]
    beside = [axis for axis in others if _with_lane(node, axis, plan.lane)]
    shared = [axis for axis in beside if _without_lane(node, axis, plan.lane)]
    rows = [axis for axis in others if axis not in beside]
    lane_counter = Axis(plan.lane.name + "t", ceildiv(plan.lane.extent, plan.width))
    lanes = [*(axis for axis in beside if axis not in shared), lane_counter]
    row_counter = None
    if plan.row is not None:
        row_counter = Axis(plan.row.name + "t", ceildiv(plan.row.extent, plan.height))
        rows.append(row_counter)
    grid = [*shared, *rows, *lanes] if _fits_cache(node, plan, lanes, target) else [*shared, *lanes, *rows]

    def lane_body(lane: Dim) -> tuple[Statement, ...]:
        if plan.row is None or row_counter is None:
            return _accumulate(nest, node, buffer, {plan.lane: lane}, window)
        row = plan.row
        return (
            tile_at(
                row,
                "row",
                plan.height,
                row_counter.dim,
                lambda index: _accumulate(nest, node, buffer, {plan.lane: lane, row: index}, window),
            ),
        )

    body = (tile_at(plan.lane, "lane", plan.width, lane_counter.dim, lane_body),)
    trivial: dict[Atom, Dim] = {axis: ZERO for axis in grid if axis.extent is ONE}
    kept = tuple(axis for axis in grid if axis.extent is not ONE)
    return kept, substitute_statements(body, trivial) if trivial else body


def _plan(nest: Nest, node: Reduce, kind: Kind, target: Target) -> Plan:
    lanes = target.vector_lanes_f32
    lane = _lane(nest, node, kind)
    candidates = [
        axis for axis in nest.axes if axis is not lane and (kind is Kind.WINDOW or not _with_lane(node, axis, lane))
    ]
    row = max(candidates, key=lambda a: _row_score(nest, node, a), default=None)
    if kind is Kind.CONTRACTION:
        rows = product(axis.extent for axis in candidates).constant
        vectors = vectors_of(lane.extent.constant, rows, target)
        height = row_height(vectors, row.extent.constant, target) if row is not None else 1
    else:
        extent = lane.extent.constant
        vectors = 2 if extent is None else min(2, -(-extent // lanes))
        height = min(row.extent.constant or 4, 4) if row is not None else 1
    if row is not None and height == 1 and row.extent.constant == 1:
        row = None
    return Plan(lane, vectors * lanes, row, height)


def _fits_cache(node: Reduce, plan: Plan, lanes: Sequence[Axis], target: Target) -> bool:
    """Whether the whole operand that lanes run along stays in a quarter of the second-level cache."""
    elements = product(axis.extent for axis in (*node.axes, *lanes)) * plan.width
    return elements.constant is None or elements.constant * node.dtype.bytes <= target.l2_bytes // 4


def _lane(nest: Nest, node: Reduce, kind: Kind) -> Axis:
    """The axis along which the result is contiguous, if one operand alone runs along it; see `place.pack`."""
    best: tuple[tuple[int, ...], Axis] | None = None
    for axis in nest.axes:
        strides = [site.indices[0].coefficient(axis) for site in loads(node.body)]
        running = [s for s in strides if s is None or s.terms]
        if kind is Kind.CONTRACTION and len(running) != 1:
            continue
        unit = sum(s is ONE for s in running) - sum(s is not ONE for s in running)
        score = (unit, int(nest.store.coefficient(axis) is ONE), axis.extent.constant or 1 << 20)
        if best is None or score > best[0]:
            best = (score, axis)
    if best is None:
        return nest.axes[-1] if nest.axes else Axis("one", ONE)
    return best[1]


def _with_lane(node: Reduce, axis: Axis, lane: Axis) -> bool:
    """Whether an operand that runs along the lanes also runs along the axis."""
    return any(
        any(d.depends_on(axis) for d in dims_of(site)) and any(d.depends_on(lane) for d in dims_of(site))
        for site in loads(node.body)
    )


def _without_lane(node: Reduce, axis: Axis, lane: Axis) -> bool:
    """Whether an operand that is the same in all lanes runs along the axis."""
    return any(
        any(d.depends_on(axis) for d in dims_of(site)) and not any(d.depends_on(lane) for d in dims_of(site))
        for site in loads(node.body)
    )


def _row_score(nest: Nest, node: Reduce, axis: Axis) -> tuple[bool, bool, int, int]:
    """How well an axis serves as rows: one along which a window slides shares loads between rows; one that is known to
    be long fills the tile, while a dynamic one is often a batch of one. Of equals the innermost in memory is best."""
    extent = axis.extent.constant
    return (
        _slides(node, axis),
        extent is not None and extent >= LONG,
        extent if extent is not None else 1 << 20,
        nest.axes.index(axis),
    )


def _slides(node: Reduce, axis: Axis) -> bool:
    """Whether neighbours on the axis read overlapping windows: its step is less than a reduced axis's span."""
    for site in loads(node.body):
        address = site.indices[0]
        step = address.coefficient(axis)
        if step is None or not step.terms:
            continue
        for reduced in node.axes:
            stride = address.coefficient(reduced)
            if stride is None or not stride.terms:
                continue
            step, stride = _magnitude(step), _magnitude(stride)
            if mod(step, stride) is ZERO and nonnegative(stride * reduced.extent - step - 1):
                return True
    return False


def _magnitude(stride: Dim) -> Dim:
    return stride if nonnegative(stride) else -stride


def _accumulate(
    nest: Nest, node: Reduce, buffer: str, mapping: dict[Atom, Dim], written_out: bool
) -> tuple[Statement, ...]:
    over = tuple(
        a
        for dim in mapping.values()
        for a in sorted(atoms_of(dim), key=lambda a: a.key)
        if isinstance(a, Axis) and _is_tile(a)
    )
    loops = loop_order(node, mapping)
    dtype = node.dtype
    inner = accumulate_over(loops, "acc", node.kind, substitute(node.body, mapping), written_out)
    result = transform(
        substitute(nest.body, mapping),
        lambda n: load("acc", dtype, ()) if isinstance(n, Reduce) else None,
    )
    declare = Declare("acc", dtype, over, initial_of(node))
    return (declare, *inner, Store(buffer, nest.store.substitute(mapping), result))


def initial_of(node: Reduce) -> Expr:
    """What an accumulator of the reduction starts with."""
    return const(0 if node.kind.startswith("arg") else neutral(node.kind, node.dtype.numpy), node.dtype)


def _is_tile(atom: Atom) -> bool:
    return isinstance(atom, Axis) and atom.name.endswith(("v", "r"))


def loop_order(node: Reduce, mapping: dict[Atom, Dim]) -> tuple[Axis, ...]:
    """Reduced axes as the operand without lanes walks through memory, widest step first."""
    sites = loads(node.body)
    lanes = [a for dim in mapping.values() for a in atoms_of(dim) if isinstance(a, Axis) and a.name.endswith("v")]
    walked = [s for s in sites if not any(d.depends_on(a) for a in lanes for d in dims_of(s))] or sites
    address = walked[0].indices[0] if walked else ZERO
    return by_stride(node.axes, address)


def accumulate_over(
    loops: tuple[Axis, ...], name: str, kind: str, value: Expr, written_out: bool
) -> tuple[Statement, ...]:
    """Loops around one accumulation; a short innermost axis is written out when asked for."""
    if not loops:
        return (Accumulate(name, kind, value),)
    axis, rest = loops[0], loops[1:]
    extent = axis.extent.constant
    if not rest and written_out and extent is not None and extent <= UNROLL:
        return tuple(Accumulate(name, kind, substitute(value, {axis: _at(position)})) for position in range(extent))
    return (Loop(axis, accumulate_over(rest, name, kind, value, written_out)),)


def _at(position: int) -> Dim:
    return ZERO + position


def substitute_statements(body: tuple[Statement, ...], mapping: dict[Atom, Dim]) -> tuple[Statement, ...]:
    """Replaces axes in statements at any depth."""
    result: list[Statement] = []
    for s in body:
        if isinstance(s, Loop):
            upper = None if s.upper is None else s.upper.substitute(mapping)
            lower = s.lower.substitute(mapping)
            result.append(replace(s, body=substitute_statements(s.body, mapping), lower=lower, upper=upper))
        elif isinstance(s, Tile):
            limit = None if s.limit is None else s.limit.substitute(mapping)
            new = substitute_statements(s.body, mapping)
            result.append(replace(s, base=s.base.substitute(mapping), limit=limit, body=new))
        elif isinstance(s, Store):
            guards = tuple(g.substitute(mapping) for g in s.guards)
            result.append(
                replace(s, offset=s.offset.substitute(mapping), value=substitute(s.value, mapping), guards=guards)
            )
        elif isinstance(s, Accumulate):
            position = None if s.position is None else s.position.substitute(mapping)
            result.append(replace(s, value=substitute(s.value, mapping), position=position))
        elif isinstance(s, Declare):
            result.append(replace(s, initial=substitute(s.initial, mapping)))
        elif hasattr(s, "value"):
            result.append(replace(s, value=substitute(s.value, mapping)))  # type: ignore[union-attr]
        else:
            result.append(s)
    return tuple(result)

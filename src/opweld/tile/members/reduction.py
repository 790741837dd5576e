"""The template of contractions and windows: a register tile of rows x lanes, accumulated over the reduced axes.

    grid   (axes of both operands..., lane tiles, other rows..., row tiles), or lane tiles last, or spans of rows
    tile   lanes: the vectorised axis of the packed operand and the result; rows: an axis of the other operand
    body   declare accumulators; loop over the reduced axes; accumulate; store epilogue(accumulators)

A packed operand that fits into a quarter of the second-level cache is read for every row tile, whose operand and result
are then streamed once. Of a larger one, a block stays in cache while all rows are multiplied by it. A recurrence that
reads a large one at each step reads it in serpentine order, so that what the cache still holds comes first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from opweld.fuse.region import Kind, axes_in
from opweld.schedule.choice import Choice
from opweld.schedule.cost import (
    ROOM,
    Product,
    best_height,
    contraction,
    has_matrix_unit,
    matrix_contraction,
    most_rows,
    most_rows_of,
    passes,
)
from opweld.schedule.expected import Expected
from opweld.schedule.schedule import NO_AXIS, ReductionSchedule, WindowSchedule
from opweld.schedule.verify import ORDERS, orders
from opweld.target import Target
from opweld.tensor.dim import ONE, ZERO, Atom, Axis, Dim, as_dim, ceildiv, minimum, mod, product
from opweld.tensor.expr import (
    Binary,
    Index,
    Reduce,
    binary,
    dims_of,
    load,
    loads,
    substitute,
    transform,
    walk,
)
from opweld.tensor.operators import WORDS
from opweld.tile.lanes import tile_at
from opweld.tile.members.grid import Grid, overlap, with_lane, without_lane
from opweld.tile.members.map import axis_name, axis_of
from opweld.tile.members.matrix import matrix_heights, matrix_refusal, schedule_matrix
from opweld.tile.members.sums import (
    accumulate_over,
    flat_position,
    in_blocks,
    initial_of,
    loop_order,
    reduction_of,
    start_of,
)
from opweld.tile.nest import Nest
from opweld.tile.tile import Accumulate, Declare, Loop, Scratch, Statement, Store, substitute_statements

WRITTEN = 7
"""The largest extent of a window axis that is unrolled, so that taps of adjacent rows share their loads. Not for
contractions, whose registers are full of accumulators."""

WRITTEN_MOST = 64
"""The most taps that can be unrolled, since each is a statement."""

LONGER = 4
"""The ratio of the row axis to all other axes (but the lanes) above which cores divide it."""

HELD = 4
"""Registers left free by a tile of a pair, for constants of both epilogues."""

CROWDED = 1.2
"""The relative time of a tile without these free registers, since accumulators are spilled (measured)."""

SPILLED = 4
"""How many products of a block there are at least for each row, where the sums of all blocks do not fit the registers
beside those of one: in place of a product by the scale for each of these, each row loads and stores its sum once."""

HIGHER = 1e-3
"""The relative bonus for a taller tile at equal predicted time."""

WINDOW_ROWS = 4
"""The preferred rows of a window's tile: adjacent rows share loads, and more rows need more registers than they save
loads."""


# ---------------------------------------------------------------------------------------------------------- the choice


def choose_reduction(
    nest: Nest,
    kind: Kind,
    vectors: int,
    choice: Choice,
    recurrent: bool = False,
    paired: bool = False,
    alone: bool = False,
) -> ReductionSchedule:
    """Chooses how a contraction or window nest is computed, through the ledger. Its lanes were chosen with storage.

    paired: it shares its kernel with another contraction. alone: its grid is the kernel's, divided among cores."""
    node = reduction_of(nest)
    lane = axis_name(nest, nest.lane)
    row = _choose_row(nest, node, kind, vectors, choice)
    wanted, why = _wanted_order(nest, node, kind, row, vectors, choice, recurrent)
    taps = "loop"
    loops = loop_order(node, () if nest.lane is None else (nest.lane,))
    if kind is Kind.CONTRACTION and _counts_fields(node, loops):
        why = "shifts that bring the fields of a word to its lowest bits are numbers"
        taps = choice.preferred("schedule.taps", ("loop", "written"), "written", why)
    spanned = kind is Kind.CONTRACTION and alone and row is not None and nest.lane is not None

    def made(height: int, unit: str) -> ReductionSchedule:
        """See `Make`."""
        span = 0
        if spanned and wanted == "rows" and row is not None and nest.lane is not None:
            prices = _spans(nest, node, nest.lane, row, height, vectors, choice)
            span = int(min(prices, key=prices.__getitem__))
        scales = _wanted_scales(nest, node, vectors, height, choice.target)[0]
        return ReductionSchedule(lane, vectors, axis_name(nest, row), height, wanted, span, taps, scales, unit)

    unit = "vector" if row is None else _choose_unit(nest, node, row, vectors, choice, made)
    height = 1 if row is None else _choose_height(nest, node, kind, row, vectors, choice, paired, unit, made)
    order = _choose_order(nest, wanted, why, choice, recurrent)
    span = 0
    if spanned and order == "rows" and row is not None and nest.lane is not None:
        span = _choose_span(nest, node, nest.lane, row, height, vectors, choice)
    if kind is Kind.WINDOW and node.axes:
        inner = loops[-1].extent
        taken = inner.constant or WRITTEN_MOST + 1
        failed: dict[str, int | str] = {} if taken <= WRITTEN_MOST else {"taps": str(inner), "most": WRITTEN_MOST}
        wanted, reason = "written", "taps of neighbouring rows share their loads"
        if taken > WRITTEN:
            wanted, reason = "loop", f"{inner} taps need more registers than they save loads"
        taps = choice.preferred("schedule.taps", ("loop", "written"), wanted, reason, failed)
    scales = "products"
    if (found := _wanted_scales(nest, node, vectors, height, choice.target))[1]:
        scales = choice.preferred("schedule.scales", ("products", "sums"), *found)
    form = WindowSchedule if kind is Kind.WINDOW else ReductionSchedule
    return form(lane, vectors, axis_name(nest, row), height, order, span, taps, scales, unit)


def _counts_fields(node: Reduce, loops: Sequence[Axis]) -> bool:
    """Whether the innermost loop counts fields of the same words: bits are shifted by what it tells."""
    return bool(loops) and any(isinstance(n, Index) and n.dim.depends_on(loops[-1]) for n in walk(node.body))


def _wanted_scales(nest: Nest, node: Reduce, vectors: int, height: int, target: Target) -> tuple[str, str]:
    """(what is multiplied by the scale of a block: its products, or their sum; why). No reason: there are no blocks."""
    found = None if nest.lane is None else in_blocks(node, loop_order(node, (nest.lane,)))
    if found is None:
        return "products", ""
    needed, most = (2 * height + 1) * vectors + 1, target.registers(node.dtype)
    length = product(axis.extent for axis in found.inner).constant
    if needed > most and (length is None or length < SPILLED * height):
        why = f"{height} rows of sums of blocks and of all need {needed} registers, {most} are there"
        return "products", f"{why}, and blocks of {length} are short"
    return "sums", "what is the same for a block of what is summed multiplies the sum of the block"


def _choose_row(nest: Nest, node: Reduce, kind: Kind, vectors: int, choice: Choice) -> Axis | None:
    """The axis whose adjacent rows share the vectorised operand. An axis along which windows overlap shares loads as
    well; at equal cost the innermost in memory is best. Rows that share nothing, as those of different products of a
    batch, gain nothing."""
    if not nest.axes:
        return None
    lane = nest.lane
    # The innermost taps of a window are unrolled, so that rows share its loads.
    inner = node.axes if kind is Kind.CONTRACTION else loop_order(node, () if lane is None else (lane,))[-1:]
    prices: dict[str, float] = {}
    alone: list[Axis] = []
    for axis in nest.axes:
        if axis is lane:
            continue
        if kind is Kind.CONTRACTION and lane is not None and with_lane(node, axis, lane):
            alone.append(axis)
            continue
        shape = _product(nest, node, axis, choice.expected, choice.target)
        heights = (
            range(1, most_rows(vectors, node.dtype, choice.target) + 1) if kind is Kind.CONTRACTION else (WINDOW_ROWS,)
        )
        seconds = min(contraction(shape, vectors, height).seconds for height in heights)
        seconds *= 1.0 if overlap(node, axis, inner) else 1.25
        prices[axis_name(nest, axis)] = seconds * (1 - 0.001 * nest.axes.index(axis))
    none = contraction(_product(nest, node, Axis(NO_AXIS, ONE), choice.expected, choice.target), vectors, 1).seconds
    reason = "rows along any axis share no operand" if alone else "there is no axis but that of the lanes"
    if prices:
        none, reason = 2 * max(prices.values()), "its rows fill the register tile, and share loads"
    prices = {NO_AXIS: none, **prices, **{axis_name(nest, axis): 1.001 * none for axis in alone}}
    failed = {} if lane is None else {axis_name(nest, lane): "the lanes run along it"}
    name = choice.cheapest("schedule.row", prices, reason, failed)
    return None if name == NO_AXIS else axis_of(nest, name)


def _product(nest: Nest, node: Reduce, row: Axis, expected: Expected, target: Target) -> Product:
    lane = 1 if nest.lane is None else expected(nest.lane.extent)
    rows = expected(row.extent)
    total = expected.product(axis.extent for axis in nest.axes)
    reduced = expected.product(axis.extent for axis in node.axes)
    repeats = max(1, total // max(1, lane * rows))
    dot = node.body.op if isinstance(node.body, Binary) and node.body.op in WORDS else ""
    pieces = row.extent.constant is None
    return Product(lane, rows, reduced, repeats, node.dtype, target, pieces=pieces, dot=dot)


def _sizes(nest: Nest) -> list[Dim]:
    return [axis.extent for axis in nest.axes]


Make: TypeAlias = Callable[[int, str], ReductionSchedule]
"""Makes the schedule with tiles of so many rows, whose sums are held in this unit."""


def _choose_unit(nest: Nest, node: Reduce, row: Axis, vectors: int, choice: Choice, made: Make) -> str:
    """Where the sums of a tile are held. Nothing is asked where the target has no matrix unit for them."""
    shape = _product(nest, node, row, choice.expected, choice.target)
    if nest.lane is None or not has_matrix_unit(shape.dot, choice.target):
        return "vector"
    refusal = "it shares its kernel"
    if choice.price is not None:
        refusal = matrix_refusal(nest, row, vectors * choice.target.vector_lanes_f32, choice.target)
    failed = {"matrix": refusal} if refusal else {}
    heights = {"vector": best_height(shape, vectors)}
    if not refusal:
        heights["matrix"] = matrix_heights(row, vectors)[-1]

    def seconds(expected: Expected) -> dict[str, float]:
        shape = _product(nest, node, row, expected, choice.target)
        found = {"vector": contraction(shape, vectors, heights["vector"]).seconds}
        return found if refusal else found | {"matrix": matrix_contraction(shape, vectors, heights["matrix"])}

    bounds = choice.expected.weighed(_sizes(nest), seconds)
    prices = choice.predicted(bounds, lambda name: made(heights[name], name), lambda name: 1.0)
    reason = refusal or "an instruction of the matrix unit sums words of 16 rows by 16 lanes"
    return choice.cheapest("schedule.unit", prices, reason, failed)


def _choose_height(
    nest: Nest,
    node: Reduce,
    kind: Kind,
    row: Axis,
    vectors: int,
    choice: Choice,
    paired: bool,
    unit: str,
    made: Make,
) -> int:
    """Rows of the register tile."""
    if unit == "matrix":

        def in_matrix(expected: Expected) -> dict[str, float]:
            shape = _product(nest, node, row, expected, choice.target)
            return {str(h): matrix_contraction(shape, vectors, h) for h in matrix_heights(row, vectors)}

        bounds = choice.expected.weighed(_sizes(nest), in_matrix)
        prices = choice.predicted(bounds, lambda name: made(int(name), unit), lambda name: 1 - HIGHER * int(name))
        return int(choice.cheapest("schedule.height", prices, "the registers of the matrix unit hold 16 rows each"))
    lanes, extent = None if nest.lane is None else nest.lane.extent.constant, row.extent.constant
    highest = most_rows_of(lanes, vectors, node.dtype, choice.target)
    most = highest if extent is None else min(highest, extent)
    above = f"a tile of {vectors} vectors has at most {highest} rows"
    failed = {str(highest + 1): above} if most == highest else {}
    if kind is Kind.WINDOW:
        reason = f"neighbouring rows share the operand's loads, more than {WINDOW_ROWS} need too many registers"
        heights = [*(str(height) for height in range(1, most + 1)), *failed]
        return int(choice.preferred("schedule.height", heights, str(min(most, WINDOW_ROWS)), reason, failed))
    crowded = choice.target.registers(node.dtype) - HELD

    def seconds(expected: Expected) -> dict[str, float]:
        shape = _product(nest, node, row, expected, choice.target)
        found: dict[str, float] = {}
        for height in range(1, most + 1):
            found[str(height)] = contraction(shape, vectors, height).seconds
            if paired and height > 1 and (height + 1) * vectors + 1 > crowded:
                found[str(height)] *= CROWDED
        return found

    bounds = choice.expected.weighed(_sizes(nest), seconds)
    # At equal cost the tallest tile: it reads the vectorised operand the least often.
    prices = choice.predicted(bounds, lambda name: made(int(name), unit), lambda name: 1 - HIGHER * int(name))
    reason = "accumulators fill the registers, and few tiles are partial"
    return int(choice.cheapest("schedule.height", prices, reason, failed))


def _wanted_order(
    nest: Nest, node: Reduce, kind: Kind, row: Axis | None, vectors: int, choice: Choice, recurrent: bool
) -> tuple[str, str]:
    """(order, reason). Measured: if the weights of a contraction fit, cores that read all of them for each row tile
    share no results.

    A window reads again what the row tile before it read: rows come last, unless they are so long that cores should
    divide them. Data shared by cores, two windows at a boundary, comes from each other's caches."""
    if nest.lane is None:
        return "rows", "nothing runs along lanes"
    beside = [axis for axis in nest.axes if axis not in (nest.lane, row) and with_lane(node, axis, nest.lane)]
    own = [a for a in beside if not without_lane(node, a, nest.lane)] if kind is Kind.CONTRACTION else []
    width = vectors * choice.target.vector_lanes_f32
    elements = product((*(a.extent for a in (*node.axes, *own)), ceildiv(nest.lane.extent, width) * width))
    room = int(ROOM * choice.target.l2_bytes)
    moved = choice.expected(elements) * _bytes_along(node, nest.lane)
    wanted = "lanes" if moved <= room else "turns" if recurrent and moved > 2 * room else "rows"
    reason = f"{moved:,} bytes of operand along the lanes, {room:,} stay in a quarter of the second-level cache"
    if kind is Kind.WINDOW and row is not None:
        along, across = choice.expected(row.extent), choice.expected.product(axis.extent for axis in beside)
        wanted = "lanes" if along > LONGER * across else "rows"
        reason = f"{along} along the rows, {across} across: cores cut the longer, and share little of what they read"
    return wanted, reason


def _bytes_along(node: Reduce, lane: Axis) -> int:
    """Bytes of an element of the vectorised operand in memory: of the load with the most axes among those with the
    lane axis."""
    sites = [site for site in loads(node.body) if any(dim.depends_on(lane) for dim in dims_of(site))]
    most = max(sites, key=lambda site: len(axes_in(site)), default=None)
    return node.dtype.bytes if most is None else most.dtype.bytes


def _choose_order(nest: Nest, wanted: str, reason: str, choice: Choice, recurrent: bool) -> str:
    if nest.lane is None:
        return "rows"
    again = "no recurrence reads the operand again"
    failed = {name: again for name in ORDERS if name not in orders(recurrent)}
    return choice.preferred("schedule.order", ORDERS, wanted, reason, failed)


def _choose_span(nest: Nest, node: Reduce, lane: Axis, row: Axis, height: int, vectors: int, choice: Choice) -> int:
    prices = _spans(nest, node, lane, row, height, vectors, choice)
    reason = "the data that an iteration reuses stays in the second-level cache"
    return int(choice.cheapest("schedule.span", prices, reason))


def _spans(
    nest: Nest, node: Reduce, lane: Axis, row: Axis, height: int, vectors: int, choice: Choice
) -> dict[str, float]:
    """Seconds by span. Rows that do not fit into the second-level cache beside weights are reloaded for each block of
    these. With spans of rows, the weights are reloaded; they are prefetched, which rows are not. The figure is the
    waiting time of one core in seconds."""
    target, expected = choice.target, choice.expected
    each = node.dtype.bytes
    grid = Grid.of(nest, node, lane, row, height, vectors * target.vector_lanes_f32)
    total = expected(grid.rows[0].extent)
    columns = expected.product(axis.extent for axis in grid.lanes)
    reduced = expected.product(axis.extent for axis in node.axes)
    panel = reduced * each * vectors * target.vector_lanes_f32
    # Adjacent rows read the same elements if windows overlap.
    apart = [axis for axis in node.axes if not any(overlap(node, own, (axis,)) for own in grid.of_rows)]
    operand = (
        expected.product(axis.extent for axis in apart) * each * expected.product(axis.extent for axis in grid.of_rows)
    )
    shape = _product(nest, node, row, choice.expected, choice.target)
    arithmetic = contraction(shape, vectors, height).seconds
    prices: dict[str, float] = {}
    for blocks in (1, target.cores, 2 * target.cores):
        span = -(-total // blocks)
        if blocks > total or str(span) in prices:
            continue
        # The last span is smaller; cores do not take over started work of others.
        waiting = arithmetic * ((blocks * span / total) - 1) / 2
        prices["0" if blocks == 1 else str(span)] = passes(operand, panel, columns, blocks, target) + waiting
    return prices


# -------------------------------------------------------------------------------------------------------- the template


def schedule_reduction(
    nest: Nest, buffer: str, schedule: ReductionSchedule, target: Target, time: Axis | None = None
) -> tuple[tuple[Axis, ...], tuple[Statement, ...], tuple[Scratch, ...]]:
    """Grid axes, statements and scratch of a contraction or window nest; `time` is the time axis of an enclosing
    recurrence."""
    node = reduction_of(nest)
    written, blocks = schedule.taps == "written", schedule.scales == "sums"
    if not nest.axes:
        return (), _accumulate(nest, node, buffer, {}, (), loop_order(node, ()), written, blocks), ()
    lane = axis_of(nest, schedule.lane)
    row = None if schedule.row == NO_AXIS else axis_of(nest, schedule.row)
    width = schedule.vectors * target.vector_lanes_f32
    at = Grid.of(nest, node, lane, row, schedule.height, width)
    lane_counter, row_counter = at.lanes[-1], None if row is None else at.rows[-1]
    grid = at.axes(schedule.order)
    loops = loop_order(node, (lane,))

    def lane_body(lane_index: Dim, lane_axis: Axis) -> tuple[Statement, ...]:
        here: dict[Atom, Dim] = {lane: lane_index}
        if row is None or row_counter is None:
            return _accumulate(nest, node, buffer, here, (lane_axis,), loops, written, blocks)
        counted = row

        def row_body(row_index: Dim, row_axis: Axis) -> tuple[Statement, ...]:
            place = {**here, counted: row_index}
            return _accumulate(nest, node, buffer, place, (lane_axis, row_axis), loops, written, blocks)

        return (tile_at(row, "row", schedule.height, row_counter.dim, row_body, nest.limits.get(row)),)

    body = (tile_at(lane, "lane", width, lane_counter.dim, lane_body),)
    scratch: tuple[Scratch, ...] = ()
    if schedule.unit == "matrix":
        assert row is not None and row_counter is not None, "`verify_reduction` wants a row"
        body, scratch = schedule_matrix(nest, buffer, schedule, target, lane_counter.dim, row_counter.dim)
    places: dict[Atom, Dim] = {axis: ZERO for axis in grid if axis.extent is ONE}
    if schedule.order == "turns" and time is not None:
        odd = mod(time.dim, as_dim(2))
        places |= {a: a.dim + odd * (a.extent - 1 - a.dim * 2) for a in at.lanes if a.extent is not ONE}
    body = substitute_statements(body, places)
    if schedule.span and at.rows[0].extent is not ONE:
        block, body = _spanned(at.rows, schedule.span, body)
        grid = [*at.shared, block, *at.lanes]
        body = substitute_statements(body, {block: ZERO} if block.extent is ONE else {})
    return tuple(axis for axis in grid if axis.extent is not ONE), body, scratch


def _spanned(rows: Sequence[Axis], span: int, body: tuple[Statement, ...]) -> tuple[Axis, tuple[Statement, ...]]:
    """The axis of spans of rows, and a loop over one span."""
    slowest, *others = rows
    for axis in reversed(others):
        body = body if axis.extent is ONE else (Loop(axis, body),)
    block, inner = Axis(slowest.name + "b", ceildiv(slowest.extent, span)), Axis(slowest.name + "s", span)
    body = substitute_statements(body, {slowest: span * block.dim + inner.dim})
    whole = block.extent * span is slowest.extent
    return block, (Loop(inner, body, upper=None if whole else minimum(span, slowest.extent - span * block.dim)),)


def _accumulate(
    nest: Nest,
    node: Reduce,
    buffer: str,
    at: dict[Atom, Dim],
    over: tuple[Axis, ...],
    loops: tuple[Axis, ...],
    written: bool,
    blocks: bool,
) -> tuple[Statement, ...]:
    found = in_blocks(node, loops) if blocks else None
    if found is None:
        inner = accumulate_over(loops, "acc", node.kind, substitute(node.body, at), written, flat_position(node))
    else:
        part = accumulate_over(found.inner, "part", "sum", substitute(found.value, at), written)
        scaled = binary("mul", load("part", node.dtype, ()), substitute(found.scale, at))
        inner = (Declare("part", node.dtype, over, initial_of(node)), *part, Accumulate("acc", "sum", scaled))
        for axis in reversed(found.outer):
            inner = (Loop(axis, inner),)
    initial, total = start_of(nest.body, node)
    result = transform(
        substitute(transform(nest.body, lambda n: load("acc", node.dtype, ()) if n is total else None), at),
        lambda n: load("acc", node.dtype, ()) if isinstance(n, Reduce) else None,
    )
    declare = Declare("acc", node.dtype, over, substitute(initial, at))
    return (declare, *inner, Store(buffer, nest.store.substitute(at), result))

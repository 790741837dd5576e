"""The template of elementwise work: lanes along one axis of the result, all other axes in the grid."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

from opweld.errors import OptionError
from opweld.schedule.choice import Choice
from opweld.schedule.cost import (
    EXPENSIVE,
    GATHER,
    ITERATION,
    SCATTER,
    TRIP,
    core_of,
    load_cycles,
    square_cycles,
    store_cycles,
)
from opweld.schedule.schedule import NO_AXIS, WIDEST, MapSchedule
from opweld.target import Target
from opweld.tensor.dim import ONE, Atom, Axis, Dim, ceildiv
from opweld.tensor.expr import Binary, Load, Unary, load, loads, substitute, transform, walk
from opweld.tensor.operators import is_expensive
from opweld.tile.lanes import chunked, tile_at, tiles, vectors_for
from opweld.tile.nest import Nest
from opweld.tile.squares import is_square
from opweld.tile.tile import Declare, Loop, Statement, Store

CHUNKS = (16, 64)
"""Candidate numbers of lane tiles of a grid iteration along a long axis."""

LONG = 1 << 16
"""The least assumed size of a lane axis of unknown size: a long one in a single iteration would leave cores
idle."""


def choose_map(nest: Nest, choice: Choice, serial: bool = False) -> MapSchedule:
    """Chooses how an elementwise nest is computed, through the ledger. `serial`: by one thread."""
    lane = _choose_lane(nest, choice)
    square = None if lane is None else _choose_square(nest, lane, choice)
    fill = 1 if lane is None or square else vectors_for(choice.expected.known(lane.extent), choice.target)
    vectors = int(
        choice.preferred(
            "schedule.vectors",
            [str(count) for count in range(1, WIDEST + 1)],
            str(fill),
            "independent vectors hide the latency of loads and functions",
        )
    )
    chunk, inner = (0, 0) if serial else _choose_grain(nest, lane, square, vectors, choice)
    return MapSchedule(axis_name(nest, lane), vectors, chunk, inner, axis_name(nest, square))


def axis_name(nest: Nest, axis: Axis | None) -> str:
    """The name of an axis of a nest in schedules: its own name; for lanes, that of the axis for which storage was
    chosen."""
    return NO_AXIS if axis is None else nest.lane_name if axis is nest.lane else axis.name


def axis_names(nest: Nest) -> list[str]:
    """The names of all axes of a nest."""
    return [axis_name(nest, axis) for axis in nest.axes]


def axis_of(nest: Nest, name: str) -> Axis:
    """The axis that a schedule names; a new one of extent one for `one`. Raises OptionError for another."""
    if name == NO_AXIS:
        return Axis("one", ONE)
    found = next((axis for axis in nest.axes if axis_name(nest, axis) == name), None)
    if found is None:
        names = ", ".join(axis_names(nest)) or NO_AXIS
        raise OptionError(f"schedule: no axis {name!r}, only {names}")
    return found


def _choose_lane(nest: Nest, choice: Choice) -> Axis | None:
    if not nest.axes:
        return None
    hertz = core_of(choice.target).hertz
    prices = {axis_name(nest, axis): _vector_cycles(nest, axis, choice) / hertz for axis in reversed(nest.axes)}
    name = choice.cheapest("schedule.lane", prices, "most operands and the result are contiguous along it")
    return axis_of(nest, name)


def _vector_cycles(nest: Nest, axis: Axis, choice: Choice) -> float:
    """Cycles of memory accesses with lanes along the axis: contiguous ones by vectors, others one by one. Unused lanes
    cost nothing if values exceed the first-level cache (measured on AVX-512). At nearly equal cost the innermost axis
    is best: scattering to lanes 1 KiB apart took twice as long (measured)."""
    extent = max(1, choice.expected(axis.extent))
    elements = choice.expected.product(a.extent for a in nest.axes)
    lanes = choice.target.vector_lanes_f32
    vectors = elements / extent * -(-extent // lanes)
    storing = store_cycles(nest.store.coefficient(axis), lanes, nest.body.dtype)
    cycles = TRIP * vectors + min(vectors * storing, SCATTER * elements)
    for site in loads(nest.body):
        stride = site.indices[0].coefficient(axis)
        cycles += min(vectors * load_cycles(stride, lanes), GATHER * elements)
    return cycles * (1 - 0.02 * nest.axes.index(axis))


def _choose_square(nest: Nest, lane: Axis, choice: Choice) -> Axis | None:
    """The axis of squares, where what lanes would gather lies next to each other along another one."""
    lanes = choice.target.vector_lanes_f32
    elements = choice.expected.product(a.extent for a in nest.axes)
    prices: dict[str, float] = {}
    for axis in nest.axes:
        count = sum(_is_gathered(site, lane, axis, lanes) for site in loads(nest.body)) if axis is not lane else 0
        if not count:
            continue
        # Beside whole squares, elements are gathered.
        whole = math.prod(e // lanes * lanes / max(1, e) for e in (choice.expected(a.extent) for a in (axis, lane)))
        cycles = whole * square_cycles(lanes) / lanes + (1 - whole) * GATHER
        prices.setdefault(NO_AXIS, count * elements * GATHER / core_of(choice.target).hertz)
        prices[axis_name(nest, axis)] = count * elements * cycles / core_of(choice.target).hertz
    if not prices:
        return None
    reason = "elements that lie next to each other along it are loaded together, and transposed in registers"
    name = choice.cheapest("schedule.row", prices, reason)
    return None if name == NO_AXIS else axis_of(nest, name)


def _is_gathered(site: Load, lane: Axis, axis: Axis, lanes: int) -> bool:
    """Whether a load that lanes along one axis would gather is contiguous along another one."""
    if not is_square(site, axis, lane):
        return False
    return load_cycles(site.indices[0].coefficient(lane), lanes) >= GATHER * lanes


def _squares(square: Axis | None, lanes: int) -> Axis | None:
    """The axis that counts squares."""
    return None if square is None else Axis(square.name + "t", ceildiv(square.extent, lanes))


def _outer(nest: Nest, lane: Axis | None, square: Axis | None, squares: Axis | None) -> list[Axis]:
    """All axes but that of the lanes, with the one that counts squares in place of theirs."""
    return [squares if squares is not None and axis is square else axis for axis in nest.axes if axis is not lane]


def _choose_grain(nest: Nest, lane: Axis | None, square: Axis | None, vectors: int, choice: Choice) -> tuple[int, int]:
    """(chunk, inner): small iterations have overhead, few iterations leave cores idle."""
    lanes = choice.target.vector_lanes_f32
    outer = _outer(nest, lane, square, _squares(square, lanes))
    extent = 1 if lane is None else max(1, choice.expected(lane.extent))
    if lane is not None and choice.expected.known(lane.extent) is None:
        extent = max(extent, LONG)
    tile_count = -(-extent // (lanes * vectors))
    expensive = sum(isinstance(n, Unary | Binary) and is_expensive(n.op) for n in walk(nest.body))
    tile = vectors * (1 + len(loads(nest.body)) + EXPENSIVE * expensive) * (1 if square is None else lanes)
    outside = choice.expected.product(axis.extent for axis in outer)
    whole = float(tile * tile_count * outside)

    def price(iterations: float) -> float:
        cores = choice.target.cores
        return (
            (iterations * ITERATION + whole * (1 + cores / max(1.0, iterations))) / cores / core_of(choice.target).hertz
        )

    long = square is None and lane is not None and (lane.extent.constant is None or tile_count > CHUNKS[0])
    chunks = {"0": price(outside)}
    if long:
        chunks |= {str(count): price(outside * -(-tile_count // count)) for count in CHUNKS}
    chunk = int(choice.cheapest("schedule.chunk", chunks, "iterations are long enough, and enough for all cores"))
    inners = {"0": price(outside * (1 if not chunk else -(-tile_count // chunk)))}
    if not chunk:
        for count in range(1, len(outer)):
            inners[str(count)] = price(choice.expected.product(axis.extent for axis in outer[:-count]))
    inner = int(choice.cheapest("schedule.inner", inners, "iterations are long enough, and enough for all cores"))
    return chunk, inner


def schedule_map(
    nest: Nest, buffer: str, schedule: MapSchedule, target: Target
) -> tuple[tuple[Axis, ...], tuple[Statement, ...]]:
    """Grid axes and statements of an elementwise nest."""
    lane = axis_of(nest, schedule.lane)
    square = None if schedule.square == NO_AXIS else axis_of(nest, schedule.square)
    lanes = target.vector_lanes_f32
    squares = _squares(square, lanes)
    outer = _outer(nest, lane, square, squares)
    width = lanes * schedule.vectors

    def tile(index: Dim, axis: Axis) -> tuple[Statement, ...]:
        if square is not None and squares is not None:
            rows = partial(_square_rows, nest, buffer, lane, square, lanes, index, axis)
            return (tile_at(square, "row", lanes, squares.dim, rows),)
        return (Store(buffer, nest.store.substitute({lane: index}), substitute(nest.body, {lane: index})),)

    if schedule.chunk:
        chunk, body = chunked(lane, width, schedule.chunk, tile)
        return (*outer, chunk), body
    body = tiles(lane, "lane", width, tile)
    for axis in list(_taken(outer, schedule.inner)):
        body = (Loop(axis, body),)
    return tuple(outer), body


def _square_rows(
    nest: Nest, buffer: str, lane: Axis, square: Axis, lanes: int, at_lane: Dim, over: Axis, at_row: Dim, row: Axis
) -> tuple[Statement, ...]:
    """The rows of a tile: what is transposed is loaded into registers over rows and lanes."""
    at: dict[Atom, Dim] = {lane: at_lane, square: at_row}
    sites = [site for site in loads(nest.body) if _is_gathered(site, lane, square, lanes)]
    names = {site: load(f"square{number}", site.dtype, ()) for number, site in enumerate(dict.fromkeys(sites))}
    declared = [
        Declare(f"square{number}", site.dtype, (over, row), substitute(site, at)) for number, site in enumerate(names)
    ]
    body = transform(nest.body, lambda node: names.get(node) if isinstance(node, Load) else None)
    return (*declared, Store(buffer, nest.store.substitute(at), substitute(body, at)))


def _taken(outer: list[Axis], count: int) -> Iterator[Axis]:
    """Removes axes from the end, innermost first."""
    for _ in range(count):
        yield outer.pop()

"""The template of convolutions by Winograd's algorithm, see `place.winograd`: some tiles at a time, with intermediate
values in scratch.

grid     (groups of lanes, other axes of the result..., blocks of tiles)
first    for each tile of the block: 4 x 4 elements of every input channel, transformed: [16][tiles][channels]
second   16 products with the transformed weights: register tiles of tiles x lanes, as a contraction's
third    for each tile: 16 sums of every output channel, transformed: 2 x 2 results, the epilogue, the store
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from opweld.fuse.region import Member as RegionMember
from opweld.fuse.region import reductions
from opweld.place.halo import inside_halo
from opweld.place.lanes import Lanes
from opweld.place.storage import Storage
from opweld.place.winograd import COUNTS, GROUPS, Taps, tiled, tiles_along
from opweld.schedule.choice import Choice
from opweld.schedule.cost import LINE, POINTS, most_rows_of, winograd
from opweld.schedule.schedule import ReductionSchedule
from opweld.target import Target
from opweld.tensor.dim import ONE, ZERO, Atom, Axis, Dim, as_dim, ceildiv, floordiv, minimum, mod
from opweld.tensor.expr import Expr, Reduce, binary, const, load, substitute, transform
from opweld.tensor.program import TensorProgram, unused
from opweld.tile.lanes import Body, tile_at, tiles
from opweld.tile.nest import resolve
from opweld.tile.tile import Accumulate, Declare, Let, Loop, Scratch, Statement, Store


@dataclass(frozen=True, eq=False)
class Winograd:
    """A convolution of a program with the storage of what it reads and writes, ready for a schedule."""

    member: RegionMember
    lanes: Lanes
    taps: Taps
    storages: Mapping[str, Storage]
    shapes: Mapping[str, tuple[Dim, ...]]
    program: TensorProgram

    @property
    def lane(self) -> Axis:
        """The axis of the output channels."""
        assert self.lanes.axis is not None
        return self.lanes.axis

    @property
    def outer(self) -> tuple[Axis, ...]:
        """The axes of the result that are not tiled."""
        held = (self.taps.y, self.taps.x, self.lane)
        return tuple(axis for axis in self.member.tensor.axes if axis not in held and axis.extent is not ONE)

    @property
    def tiles(self) -> Dim:
        """The number of tiles of an image."""
        return tiles_along(self.taps.y) * tiles_along(self.taps.x)


# ---------------------------------------------------------------------------------------------------------- the choice


def choose_winograd(work: Winograd, choice: Choice) -> ReductionSchedule:
    """Chooses the number of tiles of an iteration, the groups of lanes, and the rows of register tiles of the
    products."""
    held, vectors = work.program.constant_bytes, work.lanes.vectors
    shape = tiled(work.member.tensor, work.lane, vectors, work.taps, held, choice.expected, choice.target)
    prices = {(count, groups): winograd(shape, count, groups).seconds for count in COUNTS for groups in GROUPS}
    counts = {str(count): min(prices[count, groups] for groups in GROUPS) for count in COUNTS}
    reason = f"of {shape.tiles} tiles, what is transformed stays in the cache, and there is work for all cores"
    count = int(choice.cheapest("schedule.tiles", counts, reason))
    sharing = {str(groups): prices[count, groups] for groups in GROUPS}
    reason = "each core reads the weights of its lanes; the data is transformed for each group"
    groups = int(choice.cheapest("schedule.groups", sharing, reason))
    most = most_rows_of(work.lane.extent.constant, work.lanes.vectors, shape.dtype, choice.target)
    highest = min(count, most)
    heights = {str(n): winograd(shape, count, groups, n).seconds * (1 - 1e-4 * n) for n in range(1, highest + 1)}
    height = int(choice.cheapest("schedule.height", heights, "accumulators fill the registers, and few are partial"))
    lane, vectors = work.lane.name, work.lanes.vectors
    return ReductionSchedule(lane, vectors, height=height, algorithm="winograd", tiles=count, groups=groups)


# -------------------------------------------------------------------------------------------------------- the template


def schedule_winograd(
    work: Winograd, schedule: ReductionSchedule, target: Target
) -> tuple[tuple[Axis, ...], tuple[Statement, ...], tuple[Scratch, ...]]:
    """Grid axes, statements of a block of tiles, and its scratch."""
    return _Template(work, schedule, target).made()


class _Template:
    def __init__(self, work: Winograd, schedule: ReductionSchedule, target: Target) -> None:
        self._work = work
        self._schedule = schedule
        self._lanes = target.vector_lanes_f32
        tensor, taps, count = work.member.tensor, work.taps, schedule.tiles
        self._dtype = reductions(tensor.body)[0].dtype
        self._count = count
        self._block = Axis("block", ceildiv(work.tiles, count))
        self._tile = Axis("m", count)
        start = ZERO if self._block.extent is ONE else count * self._block.dim
        left = work.tiles - start
        self._bound = None if work.tiles.constant is not None and work.tiles.constant % count == 0 else left
        number = start + self._tile.dim
        self._y, self._x = 2 * floordiv(number, tiles_along(taps.x)), 2 * mod(number, tiles_along(taps.x))
        self._single: dict[Atom, Dim] = {axis: ZERO for axis in tensor.axes if axis.extent is ONE}
        self._channels = taps.channel.extent
        self._points = Axis("p", POINTS)
        # Lanes of a group: whole register tiles.
        self._vectors = schedule.vectors
        all_tiles = ceildiv(work.lane.extent, self._lanes * self._vectors)
        self._each_group = ceildiv(all_tiles, minimum(schedule.groups, all_tiles))
        self._group = Axis("group", ceildiv(all_tiles, self._each_group))
        self._first = ZERO if self._group.extent is ONE else self._group.dim * self._each_group
        self._held = self._each_group * (self._lanes * self._vectors)
        read, sums = (self._at(POINTS, ZERO, ZERO, columns) for columns in (self._channels, self._held))
        self._read = Scratch(unused(f"{tensor.name}_read", self._work.storages), self._dtype, read)
        self._sums = Scratch(unused(f"{tensor.name}_sums", self._work.storages), self._dtype, sums)

    def made(self) -> tuple[tuple[Axis, ...], tuple[Statement, ...], tuple[Scratch, ...]]:
        body = (*self._each(self._transformed()), *self._products(), *self._each(self._results()))
        grid = tuple(axis for axis in (self._group, *self._work.outer, self._block) if axis.extent is not ONE)
        return grid, body, (self._read, self._sums)

    def _each(self, body: tuple[Statement, ...]) -> tuple[Statement, ...]:
        """A loop over the tiles of the block."""
        upper = None if self._bound is None else minimum(self._count, self._bound)
        return (Loop(self._tile, body, upper=upper),)

    def _over_lanes(self, vectors: int, body: Body) -> tuple[Statement, ...]:
        """Lane tiles of a number of vectors over the lanes of the group."""
        width, axis = self._lanes * vectors, self._work.lane
        if self._group.extent is ONE:
            return tiles(axis, "lane", width, body)
        each, first = (tiles_ * (self._vectors // vectors) for tiles_ in (self._each_group, self._first))
        counter = Axis(axis.name + "t", each)
        upper = minimum(each, ceildiv(axis.extent, width) - first)
        return (Loop(counter, (tile_at(axis, "lane", width, first + counter.dim, body),), upper=upper),)

    # ----------------------------------------------------------------------------------------------------- first

    def _transformed(self) -> tuple[Statement, ...]:
        """B d B' of a tile, channel by channel, into scratch."""

        def body(channel: Dim, _: Axis) -> tuple[Statement, ...]:
            made: list[Statement] = []
            read = {
                (i, j): self._let(made, f"d{i}{j}", self._element(i, j, channel)) for i in range(4) for j in range(4)
            }
            half = {(i, j): self._let(made, f"h{i}{j}", _input(i, [read[r, j] for r in range(4)])) for i, j in read}
            for i, j in read:
                place = self._at(4 * i + j, self._tile.dim, channel, self._channels)
                made.append(Store(self._read.name, place, _input(j, [half[i, c] for c in range(4)])))
            return tuple(made)

        return tiles(self._work.taps.channel, "lane", self._lanes, body)

    def _let(self, made: list[Statement], name: str, value: Expr) -> Expr:
        made.append(Let(name, value))
        return load(name, self._dtype, ())

    def _element(self, i: int, j: int, channel: Dim) -> Expr:
        """The element of a tile in row i and column j; the last ones are beyond the edge if sizes are odd."""
        taps, node = self._work.taps, self._work.lanes.across
        assert node is not None
        at: dict[Atom, Dim] = {
            **self._single, taps.y: self._y, taps.x: self._x, taps.ky: as_dim(i), taps.kx: as_dim(j),
            taps.channel: channel,
        }  # fmt: skip
        storages, shapes = self._work.storages, self._work.shapes
        guards = () if inside_halo(node, storages[node.tensor], shapes[node.tensor]) else node.guards
        guards = tuple(guard.substitute(at) for guard in guards)
        for axis, first, tap in ((taps.y, self._y, i), (taps.x, self._x, j)):
            if tap == 3 and not _even(axis.extent):
                guards = (*guards, axis.extent - 2 - first)
        place = storages[node.tensor].address([dim.substitute(at) for dim in node.indices])
        fill = node.fill if node.fill is not None else const(0, node.dtype)
        return load(storages[node.tensor].root, node.dtype, (place,), guards, fill if guards else None)

    def _at(self, point: Dim | int, tile: Dim, channel: Dim, channels: Dim) -> Dim:
        """The address of an element in scratch: [points][tiles][channels], with an additional line after each point, to
        avoid set conflicts of an element's 16 points in the first-level cache."""
        return as_dim(point) * (self._count * channels + LINE // self._dtype.bytes) + tile * channels + channel

    # ---------------------------------------------------------------------------------------------------- second

    def _products(self) -> tuple[Statement, ...]:
        """For each point: tiles x lanes, summed over the channels."""
        work, schedule = self._work, self._schedule
        channel, point = Axis("c", self._channels), self._points.dim
        weights = work.storages[work.lanes.winograd]

        def lane_body(lane: Dim, lanes: Axis) -> tuple[Statement, ...]:
            def row_body(row: Dim, rows: Axis) -> tuple[Statement, ...]:
                read = load(self._read.name, self._dtype, (self._at(point, row, channel.dim, self._channels),))
                weight = load(weights.root, self._dtype, (weights.address((point, lane, channel.dim)),))
                return (
                    Declare("acc", self._dtype, (lanes, rows), const(0, self._dtype)),
                    Loop(channel, (Accumulate("acc", "sum", binary("mul", read, weight)),)),
                    Store(self._sums.name, self._sum_at(point, row, lane), load("acc", self._dtype, ())),
                )

            counter = Axis("mt", ceildiv(self._count, schedule.height))
            limit = None if self._bound is None else minimum(self._count, self._bound)
            if limit is None and self._count % schedule.height:
                limit = as_dim(self._count)
            tile = tile_at(self._tile, "row", schedule.height, counter.dim, row_body, limit)
            upper = None if limit is None else ceildiv(limit, schedule.height)
            rows: Statement = Loop(counter, (tile,), upper=upper)
            if counter.extent is ONE:
                rows = tile_at(self._tile, "row", schedule.height, ZERO, row_body, limit)
            # Points inside of lanes, so that weights are read sequentially.
            return (Loop(self._points, (rows,)),)

        return self._over_lanes(schedule.vectors, lane_body)

    # ----------------------------------------------------------------------------------------------------- third

    def _results(self) -> tuple[Statement, ...]:
        """A m A' of a tile, lane by lane, and the epilogue."""

        def body(lane: Dim, _: Axis) -> tuple[Statement, ...]:
            made: list[Statement] = []
            sums = {(i, j): self._let(made, f"m{i}{j}", self._sum(4 * i + j, lane)) for i in range(4) for j in range(4)}
            half = {
                (a, j): self._let(made, f"s{a}{j}", _output(a, [sums[i, j] for i in range(4)]))
                for a in range(2)
                for j in range(4)
            }
            for a in range(2):
                for b in range(2):
                    value = self._let(made, f"y{a}{b}", _output(b, [half[a, j] for j in range(4)]))
                    made.append(self._store(a, b, lane, value))
            return tuple(made)

        return self._over_lanes(1, body)

    def _sum(self, point: int, lane: Dim) -> Expr:
        return load(self._sums.name, self._dtype, (self._sum_at(as_dim(point), self._tile.dim, lane),))

    def _sum_at(self, point: Dim, tile: Dim, lane: Dim) -> Dim:
        return self._at(point, tile, lane - self._first * (self._lanes * self._vectors), self._held)

    def _store(self, a: int, b: int, lane: Dim, value: Expr) -> Statement:
        """Stores one of the four results, unless it is beyond the edge."""
        work, taps, tensor = self._work, self._work.taps, self._work.member.tensor
        at: dict[Atom, Dim] = {**self._single, taps.y: self._y + a, taps.x: self._x + b, work.lane: lane}
        # Loads are replaced by addresses before the result gets a name that a value may have too.
        body = resolve(substitute(tensor.body, at), work.storages, work.shapes)
        body = transform(body, lambda node: value if isinstance(node, Reduce) else None)
        storage = work.storages[tensor.name]
        place = storage.address([dim.substitute(at) for dim in work.member.place])
        ends = ((taps.y, self._y, a), (taps.x, self._x, b))
        guards = tuple(axis.extent - 2 - first for axis, first, past in ends if past and not _even(axis.extent))
        return Store(storage.root, place, body, guards)


def _even(extent: Dim) -> bool:
    return mod(extent, as_dim(2)) is ZERO


def _input(number: int, d: Sequence[Expr]) -> Expr:
    """A row of B times d."""
    if number == 0:
        return binary("sub", d[0], d[2])
    if number == 1:
        return binary("add", d[1], d[2])
    return binary("sub", d[2], d[1]) if number == 2 else binary("sub", d[1], d[3])


def _output(number: int, m: Sequence[Expr]) -> Expr:
    """A row of A times m."""
    if number == 0:
        return binary("add", binary("add", m[0], m[1]), m[2])
    return binary("sub", binary("sub", m[1], m[2]), m[3])

"""The template of rowwise regions: passes over a row that stays in cache.

Lanes run along the columns if those are contiguous in memory; each pass then reads the row vector by vector, and a
reduction ends in one value for all lanes. If the contiguous axis is kept (pooling over channels-last images), lanes run
along it, and a pass loops over the columns with one row in each lane.

A member of the region is one of: a reduction (a pass of its own), a value of the row (computed once), a value of each
column. The last kind is stored if other kernels need it, kept in scratch if it is expensive and read by more than one
pass, and otherwise recomputed wherever it is read. Independent reductions share a pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from opweld.fuse.region import reductions
from opweld.fuse.rows import RowSpace
from opweld.place.storage import Storage, dense
from opweld.schedule.choice import Choice
from opweld.schedule.cost import core_of, load_cycles, store_cycles
from opweld.schedule.schedule import WIDEST, RowSchedule
from opweld.target import Target
from opweld.tensor.axes import by_stride
from opweld.tensor.dim import ONE, ZERO, Atom, Axis, Dim, ceildiv, product
from opweld.tensor.expr import (
    Binary,
    Expr,
    Load,
    Reduce,
    Unary,
    fresh_reductions,
    load,
    loads,
    reduce,
    substitute,
    substitute_loads,
    transform,
    walk,
)
from opweld.tensor.operators import is_expensive
from opweld.tensor.program import Tensor, unused
from opweld.tile.lanes import tile_at, tiles, vectors_for
from opweld.tile.members.sums import flat_position, summed_in_parts
from opweld.tile.nest import resolve
from opweld.tile.tile import Accumulate, Collapse, Let, Loop, Scratch, Statement, Store, Tile

SHARED = 2
"""The most reductions that share a pass: each has as many accumulators as the pass has vectors."""


@dataclass(frozen=True, eq=False)
class RowwiseMember:
    """The canonical axes of a row space, and the axes of its members in terms of them.

    Attributes:
        rows: axes of the loops over rows. columns: axes of a row.
        places: for each member, the canonical axis of each of its axes, None for one of extent one.
        dims: the expression of a canonical row that is not a loop axis.
    """

    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    places: dict[str, tuple[Axis | None, ...]]
    dims: Mapping[Axis, Dim]

    @staticmethod
    def of(
        space: RowSpace, given: Mapping[int, Dim] | None = None, over: tuple[Axis, ...] | None = None
    ) -> RowwiseMember:
        """New canonical axes for a row space; in a block, `given` are the expressions of rows, and `over` the
        loop axes."""
        rows = tuple(Axis(f"r{i}", extent) for i, extent in enumerate(space.rows))
        columns = tuple(Axis(f"c{i}", extent) for i, extent in enumerate(space.columns))
        axis_of = {("row", i): a for i, a in enumerate(rows)} | {("column", i): a for i, a in enumerate(columns)}
        places = {
            name: tuple(None if place is None else axis_of[place] for place in found)
            for name, found in space.places.items()
        }
        dims = {axis: given[n] for n, axis in enumerate(rows)} if given is not None else dict[Axis, Dim]()
        return RowwiseMember(rows if over is None else over, columns, places, dims)

    def dim(self, axis: Axis | None) -> Dim:
        """The index expression of a canonical axis."""
        return ZERO if axis is None else self.dims.get(axis, axis.dim)

    def named(self, name: str) -> Axis:
        """The axis of a schedule's name."""
        return next(axis for axis in (*self.rows, *self.columns) if axis.name == name)

    def mapping(self, tensor: Tensor) -> dict[Atom, Dim]:
        """The tensor's axes in terms of canonical ones."""
        places = self.places[tensor.name]
        return {a: self.dim(p) for a, p in zip(tensor.axes, places, strict=True)}


@dataclass(frozen=True, eq=False)
class RowWork:
    """The work on a row: the tensors in order, which of them are stored, and the storage of all."""

    tensors: tuple[Tensor, ...]
    outputs: tuple[str, ...]
    rows: RowwiseMember
    storages: Mapping[str, Storage]
    shapes: Mapping[str, Sequence[Dim]]

    def passes_that_read(self, tensor: Tensor) -> set[str]:
        """Members that read the tensor, directly or through recomputed members."""
        found: set[str] = set()
        names = {tensor.name}
        for member in self.tensors:
            if any(node.tensor in names for node in loads(member.body)):
                found.add(member.name)
                if not reductions(member.body) and member.name not in self.outputs:
                    names.add(member.name)
        return found

    def per_column(self, tensor: Tensor) -> bool:
        """Whether the tensor has a value for each column, not one a row."""
        return any(axis in self.rows.columns for axis in self.rows.places[tensor.name])


# ---------------------------------------------------------------------------------------------------------- the choice


def choose_rows(work: RowWork, choice: Choice, columns_only: bool = False) -> RowSchedule:
    """Chooses how a row is computed, through the ledger. `columns_only`: lanes may not run along a kept axis."""
    axes = (*work.rows.columns[::-1], *(() if columns_only else work.rows.rows))
    hertz = core_of(choice.target).hertz
    prices = {axis.name: _lane_cycles(work, axis, choice) / hertz for axis in axes}
    reason = "operands and results are contiguous along it"
    lane = work.rows.named(choice.cheapest("schedule.lane", prices, reason))
    fill = str(vectors_for(choice.expected.known(lane.extent), choice.target))
    reason = "independent vectors hide the latency of loads and functions"
    counts = [str(count) for count in range(1, WIDEST + 1)]
    vectors = int(choice.preferred("schedule.vectors", counts, fill, reason))
    kept: list[int] = []
    for position, tensor in enumerate(work.tensors):
        readers = len(work.passes_that_read(tensor))
        if reductions(tensor.body) or not work.per_column(tensor) or tensor.name in work.outputs or readers < 2:
            continue
        failed: dict[str, int | str] = {}
        if lane not in work.rows.columns:
            # Scratch would be a row for each lane, too large for the cache.
            failed["lanes"] = "run along a kept axis"
        expensive = any(isinstance(node, Unary | Binary) and is_expensive(node.op) for node in walk(tensor.body))
        wanted = "scratch" if expensive and not failed else "again"
        reason = (
            "expensive, and read by several passes" if expensive else "computing it again costs no more than loading it"
        )
        about = choice.about(tensor.name).part(f"tensor {position}")
        if about.preferred("schedule.keep", ("again", "scratch"), wanted, reason, failed) == "scratch":
            kept.append(position)
    return RowSchedule(lane.name, vectors, tuple(kept))


def _lane_cycles(work: RowWork, axis: Axis, choice: Choice) -> float:
    """Cycles of loads and stores with lanes along the axis, and of horizontal reductions."""
    lanes = choice.target.vector_lanes_f32
    rows = choice.expected.product(a.extent for a in work.rows.rows)
    columns = choice.expected.product(a.extent for a in work.rows.columns)
    extent = max(1, choice.expected(axis.extent))
    vectors = rows * columns / extent * -(-extent // lanes)
    cycles = 0.0
    for tensor in work.tensors:
        mapping = work.rows.mapping(tensor)
        for node in reductions(tensor.body):
            mapping |= {a: c.dim for a, c in zip(node.axes, work.rows.columns, strict=False)}
        sites = [s for s in loads(tensor.body) if s.tensor in work.storages and s.tensor not in work.rows.places]
        for site in sites:
            stride = work.storages[site.tensor].address(site.indices).substitute(mapping).coefficient(axis)
            cycles += vectors * load_cycles(stride, lanes)
        if tensor.name in work.outputs and work.per_column(tensor):
            places = [work.rows.dim(place) for place in work.rows.places[tensor.name]]
            stride = work.storages[tensor.name].address(places).coefficient(axis)
            cycles += vectors * store_cycles(stride, lanes, tensor.dtype)
        if reductions(tensor.body) and axis in work.rows.columns:
            cycles += 10 * rows
    return cycles


# -------------------------------------------------------------------------------------------------------- the template


def schedule_rows(
    work: RowWork, schedule: RowSchedule, target: Target, prefix: str = ""
) -> tuple[tuple[Axis, ...], tuple[Statement, ...], tuple[Scratch, ...]]:
    """Grid axes, statements and scratch of row-wise work. `prefix` makes names unique in a kernel."""
    return Passes(work, schedule, target, prefix).run()


class Passes:
    """The passes over a row, member by member."""

    def __init__(self, work: RowWork, schedule: RowSchedule, target: Target, prefix: str) -> None:
        self._work = work
        self._space = work.rows
        self._lane = work.rows.named(schedule.lane)
        self.width = target.vector_lanes_f32 * schedule.vectors
        self._kept = schedule.kept
        self._prefix = prefix
        self._storages = work.storages
        read = {node.tensor for tensor in work.tensors for node in loads(tensor.body)}
        self._read = {name: work.storages[name] for name in read if name in work.storages}
        self._members = {tensor.name: tensor for tensor in work.tensors}
        self._scratch: list[Scratch] = []
        self._stored: dict[str, Storage] = {}
        self._scalars: dict[str, str] = {}
        self._passed: set[str] = set()

    def reduced(self, tensor: Tensor) -> Expr:
        """The operand of a tensor's reduction, at a column of the current row."""
        return self._finished(reductions(self._canonical(tensor))[0].body, {})

    def run(self) -> tuple[tuple[Axis, ...], tuple[Statement, ...], tuple[Scratch, ...]]:
        """Grid axes, statements and scratch; see `schedule_rows`."""
        lane = self._lane
        if lane in self._space.columns:
            body: list[Statement] = []
            for position, tensor in enumerate(self._work.tensors):
                body += self._member(position, tensor, {}, ())
            return self._space.rows, tuple(body), tuple(self._scratch)

        def tile(index: Dim, axis: Axis) -> tuple[Statement, ...]:
            made: list[Statement] = []
            for position, tensor in enumerate(self._work.tensors):
                made += self._member(position, tensor, {lane: index}, (axis,))
            return tuple(made)

        counter = Axis(lane.name + "t", ceildiv(lane.extent, self.width))
        outer = tuple(axis for axis in self._space.rows if axis is not lane)
        if counter.extent is ONE:
            return outer, (tile_at(lane, "lane", self.width, ZERO, tile),), tuple(self._scratch)
        return (*outer, counter), (tile_at(lane, "lane", self.width, counter.dim, tile),), tuple(self._scratch)

    def _unused(self, name: str) -> str:
        """The name of a register or of scratch, which no value has: those of inputs are the model's."""
        return self._named(self._prefix + name)

    def _named(self, name: str) -> str:
        return unused(name, self._storages)

    # ------------------------------------------------------------------------------------------------- members

    def _member(self, position: int, tensor: Tensor, at: dict[Atom, Dim], over: tuple[Axis, ...]) -> list[Statement]:
        """The passes of one member. With lanes along a kept axis, `at` is its index, `over` the tile."""
        places = self._space.places[tensor.name]
        statements: list[Statement] = []
        body = self._canonical(tensor)
        for node in reductions(body):
            name = self._unused(f"r{position}_{len(statements)}")
            if name not in self._passed:
                statements += self._reduction({name: node, **self._beside(position, node)}, at, over)
            body = transform(body, lambda n, node=node, name=name: load(name, node.dtype, ()) if n is node else None)
        if not self._work.per_column(tensor):
            name = self._unused(f"v{position}")
            self._scalars[tensor.name] = name
            statements.append(Let(name, self._finished(body, at)))
            if tensor.name in self._work.outputs:
                address = self._address(self._storages[tensor.name], places).substitute(at)
                statements.append(Store(self._storages[tensor.name].root, address, load(name, tensor.dtype, ())))
            return statements
        if tensor.name in self._work.outputs:
            statements += self._store_pass(tensor, body, self._storages[tensor.name], at)
            self._stored[tensor.name] = self._storages[tensor.name]
        elif position in self._kept:
            statements += self._keep_in_scratch(position, tensor, body)
        return statements

    def _canonical(self, tensor: Tensor) -> Expr:
        """The body over the canonical rows and columns."""
        body = substitute(tensor.body, self._space.mapping(tensor))

        def rewrite(node: Expr) -> Expr | None:
            if not isinstance(node, Reduce):
                return None
            own = self._reduced_places(tensor, node)
            return _reduce_over(node, own, substitute(node.body, {a: self._space.dim(b) for a, b in own.items()}))

        return transform(body, rewrite)

    def _reduced_places(self, tensor: Tensor, node: Reduce) -> dict[Axis, Axis]:
        """The canonical column of each reduced axis: from the members that it loads, else by position."""
        known: dict[Axis, Axis] = {}
        for site in loads(node.body):
            if site.tensor not in self._space.places:
                continue
            for dim, place in zip(site.indices, self._space.places[site.tensor], strict=True):
                atom = dim.atom
                if isinstance(atom, Axis) and atom in node.axes and place is not None:
                    known[atom] = place
        free = [column for column in self._space.columns if column not in known.values()]
        for axis in node.axes:
            if axis not in known:
                match = next(column for column in free if column.extent is axis.extent)
                known[axis] = match
                free.remove(match)
        return known

    def _finished(self, body: Expr, lane: dict[Atom, Dim]) -> Expr:
        """Loads of members become registers, stored values or what they are; others become addresses."""
        body = resolve(self._expanded(body), {**self._read, **self._stored}, self._work.shapes)
        return substitute(body, lane) if lane else body

    def _expanded(self, body: Expr) -> Expr:
        """Inlines members that are neither in a register nor in memory."""

        def element(node: Load) -> Expr | None:
            if node.tensor in self._scalars:
                return load(self._scalars[node.tensor], node.dtype, ())
            if node.tensor in self._stored or node.tensor not in self._members:
                return None
            source = self._members[node.tensor]
            mapping: dict[Atom, Dim] = dict(zip(source.axes, node.indices, strict=True))
            return self._expanded(substitute(fresh_reductions(source.body), mapping))

        return substitute_loads(body, element)

    def _beside(self, position: int, node: Reduce) -> dict[str, Reduce]:
        """Later reductions, by name, whose operands are available already: they share the pass."""
        found: dict[str, Reduce] = {}
        columns = self._column_order(node)
        for later, tensor in enumerate(self._work.tensors[position + 1 :], position + 1):
            if not reductions(tensor.body) or not self._is_ready(tensor, set()):
                continue
            own = reductions(self._canonical(tensor))
            if len(own) == 1 and self._column_order(own[0]) == columns and len(found) + 1 < SHARED:
                found[self._unused(f"r{later}_0")] = own[0]
        self._passed.update(found)
        return found

    def _is_ready(self, tensor: Tensor, seen: set[str]) -> bool:
        """Whether all that a member's body reads is in a register, in memory, or computed from such values."""
        for node in loads(tensor.body):
            source = self._members.get(node.tensor)
            if source is None or node.tensor in (*self._scalars, *self._stored, *seen):
                continue
            kept = self._work.tensors.index(source) in self._kept or node.tensor in self._work.outputs
            if kept or reductions(source.body) or not self._is_ready(source, seen):
                return False
            if not self._work.per_column(source):
                return False
            seen.add(node.tensor)
        return True

    def _reduction(self, nodes: Mapping[str, Reduce], at: dict[Atom, Dim], over: tuple[Axis, ...]) -> list[Statement]:
        """A pass over the columns that reduces all of these, by name."""
        columns = self._column_order(next(iter(nodes.values())))
        terms = [
            (node.kind, self._finished(node.body, at if over else {}), flat_position(node)) for node in nodes.values()
        ]
        if over:

            def values(names: Sequence[str]) -> tuple[Statement, ...]:
                return tuple(Accumulate(name, *term) for name, term in zip(names, terms, strict=True))

            return list(summed_in_parts(nodes, columns, over, self._named, values, lambda parts: parts))
        across, lanes = self._lane, Axis(self._lane.name + "l", self.width)
        counter = Axis(across.name + "t", ceildiv(across.extent, self.width))
        loops = [axis for axis in columns if axis is not across]
        counted = counter.extent.constant
        loops += [] if counted in (None, 1) else [counter]

        def tile(names: Sequence[str]) -> tuple[Statement, ...]:
            made = lane_tile(across, counter, lanes, [(n, *term) for n, term in zip(names, terms, strict=True)])
            # A row of unknown length is mostly short, and the lanes divide it already: parts of it would cost 3 to 12%.
            return (Loop(counter, (made,)),) if counted is None else (made,)

        def added(parts: tuple[Statement, ...]) -> tuple[Statement, ...]:
            return (Tile(lanes, "lane", ZERO, parts),)

        made = summed_in_parts(nodes, loops, (lanes,), self._named, tile, added)
        return [*made, *(Collapse(name, node.kind) for name, node in nodes.items())]

    def _column_order(self, node: Reduce) -> tuple[Axis, ...]:
        if node.kind.startswith("arg"):
            return node.axes
        sites = [s for s in loads(node.body) if s.tensor in self._storages]
        if not sites:
            return node.axes
        return by_stride(node.axes, self._storages[sites[0].tensor].address(sites[0].indices))

    def _store_pass(self, tensor: Tensor, body: Expr, storage: Storage, at: dict[Atom, Dim]) -> list[Statement]:
        places = self._space.places[tensor.name]
        value = self._finished(body, {})
        address = self._address(storage, places)
        columns = by_stride(self._columns_in(places), address)
        if at:
            inner: tuple[Statement, ...] = (Store(storage.root, address.substitute(at), substitute(value, at)),)
            for axis in reversed(columns):
                inner = (Loop(axis, inner),)
            return list(inner)
        across = self._lane

        def tile(index: Dim, axis: Axis) -> tuple[Statement, ...]:
            here: dict[Atom, Dim] = {across: index}
            return (Store(storage.root, address.substitute(here), substitute(value, here)),)

        inner = tiles(across, "lane", self.width, tile)
        for axis in reversed([a for a in columns if a is not across]):
            inner = (Loop(axis, inner),)
        return list(inner)

    def _address(self, storage: Storage, places: tuple[Axis | None, ...]) -> Dim:
        return storage.address([self._space.dim(axis) for axis in places])

    def _keep_in_scratch(self, position: int, tensor: Tensor, body: Expr) -> list[Statement]:
        name = self._unused(f"row{position}")
        places = self._space.places[tensor.name]
        columns = self._columns_in(places)
        self._scratch.append(Scratch(name, tensor.dtype, product(axis.extent for axis in columns)))
        shape = tuple(ONE if place is None or place not in columns else place.extent for place in places)
        kept = dense(name, tensor.dtype, shape, _order_of(places, self._lane))
        made = self._store_pass(tensor, body, kept, {})
        self._stored[tensor.name] = kept
        return made

    def _columns_in(self, places: tuple[Axis | None, ...]) -> tuple[Axis, ...]:
        return tuple(axis for axis in places if axis is not None and axis in self._space.columns)


def _order_of(places: tuple[Axis | None, ...], lane: Axis) -> tuple[int, ...]:
    natural = range(len(places))
    return tuple(sorted(natural, key=lambda p: places[p] is lane))


def _reduce_over(node: Reduce, places: dict[Axis, Axis], body: Expr) -> Expr:
    return reduce(node.kind, tuple(places[axis] for axis in node.axes), body)


def lane_tile(axis: Axis, counter: Axis, lanes: Axis, terms: Sequence[tuple[str, str, Expr, Dim | None]]) -> Tile:
    """The lane tile number `counter`, whose axis is that of the accumulators' declaration, with (accumulator, kind,
    value, position) for each."""
    limit = None if lanes.extent * counter.extent is axis.extent else axis.extent
    base = ZERO if counter.extent is ONE else lanes.extent * counter.dim
    at: dict[Atom, Dim] = {axis: base + lanes.dim}
    made = tuple(
        Accumulate(name, kind, substitute(value, at), None if flat is None else flat.substitute(at))
        for name, kind, value, flat in terms
    )
    return Tile(lanes, "lane", base, made, limit)


def lane_tiles_over(
    axis: Axis, width: int, lanes: Axis, terms: Sequence[tuple[str, str, Expr, Dim | None]]
) -> tuple[Statement, ...]:
    """The loop of such lane tiles over a whole axis."""
    counter = Axis(axis.name + "t", ceildiv(axis.extent, width))
    tile = lane_tile(axis, counter, lanes, terms)
    return (tile,) if counter.extent is ONE else (Loop(counter, (tile,)),)

"""The template of rowwise regions: passes over a row that stays in cache.

Lanes run along the columns when those are contiguous in memory, and each pass then walks the row vector by vector, a
reduction ending in one value for all lanes. When the contiguous axis is kept (pooling over channels-last images), lanes
run along it, and a pass loops over the columns with one row in each lane.

A member of the region is one of: a reduction (a pass of its own), a value of the row (computed once), a value of each
column. The last kind is stored if anyone else needs it, kept in scratch if it is dear and read by more than one pass,
and otherwise computed again wherever it is read.
"""

from __future__ import annotations

from dataclasses import dataclass

from opweld.fuse.region import Region, reductions
from opweld.fuse.rows import RowSpace
from opweld.place.placed import Placed
from opweld.place.storage import Storage, dense
from opweld.schedule.lanes import lane_tiles, tile_at
from opweld.schedule.map import vectors_for
from opweld.schedule.nest import by_stride, resolve
from opweld.schedule.reduction import initial_of
from opweld.schedule.tile import Accumulate, Collapse, Declare, Let, Loop, Scratch, Statement, Store, Tile
from opweld.target import Target
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
from opweld.tensor.program import Tensor

DEAR = frozenset(
    ("exp", "log", "log1p", "tanh", "sigmoid", "erf", "sin", "cos", "pow", "softplus", "sqrt", "rsqrt", "div")
)
"""Operators that cost more than a load."""


@dataclass(frozen=True, eq=False)
class Rows:
    """The canonical axes of a region and how its members lie on them."""

    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    lane: Axis
    places: dict[str, tuple[Axis | None, ...]]

    @property
    def lanes_along_columns(self) -> bool:
        """Whether a vector holds columns of one row, not one column of many rows."""
        return self.lane in self.columns


def schedule_rows(
    region: Region, placed: Placed, storages: dict[str, Storage], shapes: dict[str, tuple[Dim, ...]], target: Target
) -> tuple[tuple[Axis, ...], tuple[Statement, ...], tuple[Scratch, ...]]:
    """Grid axes, statements and scratch of a rowwise region."""
    return _Builder(region, storages, shapes, target).run()


class _Builder:
    def __init__(
        self, region: Region, storages: dict[str, Storage], shapes: dict[str, tuple[Dim, ...]], target: Target
    ) -> None:
        self._region = region
        self._storages = storages
        self._shapes = shapes
        self._target = target
        self._members = {tensor.name: tensor for tensor in region.tensors}
        self._scratch: list[Scratch] = []
        self._stored: dict[str, Storage] = {}
        self._scalars: dict[str, str] = {}
        self._space = _space(region, storages)

    def run(self) -> tuple[tuple[Axis, ...], tuple[Statement, ...], tuple[Scratch, ...]]:
        space = self._space
        if space.lanes_along_columns:
            body: list[Statement] = []
            for position, tensor in enumerate(self._region.tensors):
                body += self._member(position, tensor, {})
            return space.rows, tuple(body), tuple(self._scratch)
        lane = space.lane
        width = self._target.vector_lanes_f32 * vectors_for(lane.extent.constant, self._target)
        counter = Axis(lane.name + "t", ceildiv(lane.extent, width))

        def tile(index: Dim) -> tuple[Statement, ...]:
            made: list[Statement] = []
            for position, tensor in enumerate(self._region.tensors):
                made += self._member(position, tensor, {lane: index})
            return tuple(made)

        outer = tuple(axis for axis in space.rows if axis is not lane)
        if counter.extent is ONE:
            return outer, (tile_at(lane, "lane", width, ZERO, tile),), tuple(self._scratch)
        return (*outer, counter), (tile_at(lane, "lane", width, counter.dim, tile),), tuple(self._scratch)

    # ------------------------------------------------------------------------------------------------- members

    def _member(self, position: int, tensor: Tensor, lane: dict[Atom, Dim]) -> list[Statement]:
        places = self._space.places[tensor.name]
        per_column = any(axis in self._space.columns for axis in places)
        statements: list[Statement] = []
        body = self._canonical(tensor)
        for node in reductions(body):
            name = f"r{position}_{len(statements)}"
            statements += self._reduction(name, node, lane)
            body = transform(body, lambda n, node=node, name=name: load(name, node.dtype, ()) if n is node else None)
        if not per_column:
            name = f"v{position}"
            self._scalars[tensor.name] = name
            statements.append(Let(name, self._finished(body, lane)))
            if tensor.name in self._region.outputs:
                address = self._address(self._storages[tensor.name], places).substitute(lane)
                statements.append(Store(self._storages[tensor.name].root, address, load(name, tensor.dtype, ())))
            return statements
        if tensor.name in self._region.outputs:
            statements += self._store_pass(tensor, body, self._storages[tensor.name], lane)
            self._stored[tensor.name] = self._storages[tensor.name]
        elif self._is_dear(tensor) and len(self._passes_that_read(tensor)) > 1:
            statements += self._keep_in_scratch(position, tensor, body, lane)
        return statements

    def _canonical(self, tensor: Tensor) -> Expr:
        """The body over the canonical rows and columns."""
        mapping: dict[Atom, Dim] = {}
        for axis, place in zip(tensor.axes, self._space.places[tensor.name], strict=True):
            mapping[axis] = ZERO if place is None else place.dim
        body = substitute(tensor.body, mapping)

        def rewrite(node: Expr) -> Expr | None:
            if not isinstance(node, Reduce):
                return None
            own = self._reduced_places(tensor, node)
            return _reduce_over(node, own, substitute(node.body, {a: b.dim for a, b in own.items()}))

        return transform(body, rewrite)

    def _reduced_places(self, tensor: Tensor, node: Reduce) -> dict[Axis, Axis]:
        """Which canonical column each reduced axis is: as the members it loads lie, else by position."""
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
        body = resolve(self._expanded(body), self._storages | self._stored, self._shapes)
        return substitute(body, lane) if lane else body

    def _expanded(self, body: Expr) -> Expr:
        """Members that are neither in a register nor in memory are computed where they are loaded."""

        def element(node: Load) -> Expr | None:
            if node.tensor in self._scalars:
                return load(self._scalars[node.tensor], node.dtype, ())
            if node.tensor in self._stored or node.tensor not in self._members:
                return None
            source = self._members[node.tensor]
            mapping: dict[Atom, Dim] = dict(zip(source.axes, node.indices, strict=True))
            return self._expanded(substitute(fresh_reductions(source.body), mapping))

        return substitute_loads(body, element)

    def _reduction(self, name: str, node: Reduce, lane: dict[Atom, Dim]) -> list[Statement]:
        space = self._space
        initial = initial_of(node)
        flat: Dim | None = None
        if node.kind.startswith("arg"):
            flat = ZERO
            for axis in node.axes:
                flat = flat * axis.extent + axis.dim
        columns = self._column_order(node)
        if not space.lanes_along_columns:
            over = tuple(
                a
                for dim in lane.values()
                for m, _ in dim.terms
                for a in m
                if isinstance(a, Axis) and a.name.endswith("v")
            )
            value = self._finished(node.body, lane)
            inner: tuple[Statement, ...] = (Accumulate(name, node.kind, value, flat),)
            for axis in reversed(columns):
                inner = (Loop(axis, inner),)
            return [Declare(name, node.dtype, over, initial), *inner]
        value = self._finished(node.body, {})
        across = space.lane
        width = self._width(across)
        lanes = Axis(across.name + "v", width)
        tiles = lane_tiles_over(across, width, lanes, name, node.kind, value, flat)
        inner = tiles
        for axis in reversed([a for a in columns if a is not across]):
            inner = (Loop(axis, inner),)
        return [Declare(name, node.dtype, (lanes,), initial), *inner, Collapse(name, node.kind)]

    def _column_order(self, node: Reduce) -> tuple[Axis, ...]:
        if node.kind.startswith("arg"):
            return node.axes
        sites = [s for s in loads(node.body) if s.tensor in self._storages]
        if not sites:
            return node.axes
        return by_stride(node.axes, self._storages[sites[0].tensor].address(sites[0].indices))

    def _width(self, axis: Axis) -> int:
        return self._target.vector_lanes_f32 * vectors_for(axis.extent.constant, self._target)

    def _store_pass(self, tensor: Tensor, body: Expr, storage: Storage, lane: dict[Atom, Dim]) -> list[Statement]:
        places = self._space.places[tensor.name]
        value = self._finished(body, {})
        address = self._address(storage, places)
        columns = by_stride(self._columns_in(places), address)
        if not self._space.lanes_along_columns:
            inner: tuple[Statement, ...] = (Store(storage.root, address.substitute(lane), substitute(value, lane)),)
            for axis in reversed(columns):
                inner = (Loop(axis, inner),)
            return list(inner)
        across = self._space.lane

        def tile(index: Dim) -> tuple[Statement, ...]:
            at: dict[Atom, Dim] = {across: index}
            return (Store(storage.root, address.substitute(at), substitute(value, at)),)

        inner = lane_tiles(across, self._width(across), tile)
        for axis in reversed([a for a in columns if a is not across]):
            inner = (Loop(axis, inner),)
        return list(inner)

    def _address(self, storage: Storage, places: tuple[Axis | None, ...]) -> Dim:
        return storage.address([ZERO if axis is None else axis.dim for axis in places])

    def _is_dear(self, tensor: Tensor) -> bool:
        return any(isinstance(node, Unary | Binary) and node.op in DEAR for node in walk(tensor.body))

    def _passes_that_read(self, tensor: Tensor) -> set[str]:
        """Members that read the tensor, directly or through members that are computed again."""
        found: set[str] = set()
        names = {tensor.name}
        for member in self._region.tensors:
            if any(node.tensor in names for node in loads(member.body)):
                found.add(member.name)
                if not reductions(member.body) and member.name not in self._region.outputs:
                    names.add(member.name)
        return found

    def _keep_in_scratch(self, position: int, tensor: Tensor, body: Expr, lane: dict[Atom, Dim]) -> list[Statement]:
        """A row of scratch. With lanes along a kept axis there would be a row for each lane, too much for the cache:
        the value is computed again instead."""
        if lane:
            return []
        name = f"row{position}"
        places = self._space.places[tensor.name]
        columns = self._columns_in(places)
        self._scratch.append(Scratch(name, tensor.dtype, product(axis.extent for axis in columns)))
        shape = tuple(ONE if place is None or place not in columns else place.extent for place in places)
        kept = dense(name, tensor.dtype, shape, _order_of(places, self._space.lane))
        made = self._store_pass(tensor, body, kept, lane)
        self._stored[tensor.name] = kept
        return made

    def _columns_in(self, places: tuple[Axis | None, ...]) -> tuple[Axis, ...]:
        return tuple(axis for axis in places if axis is not None and axis in self._space.columns)


def _order_of(places: tuple[Axis | None, ...], lane: Axis) -> tuple[int, ...]:
    natural = range(len(places))
    return tuple(sorted(natural, key=lambda p: places[p] is lane))


def _reduce_over(node: Reduce, places: dict[Axis, Axis], body: Expr) -> Expr:
    return reduce(node.kind, tuple(places[axis] for axis in node.axes), body)


def lane_tiles_over(
    axis: Axis, width: int, lanes: Axis, name: str, kind: str, value: Expr, flat: Dim | None
) -> tuple[Statement, ...]:
    """Lane tiles whose axis is the one that an accumulator was declared over."""
    count = ceildiv(axis.extent, width)
    limit = None if count * width is axis.extent else axis.extent
    counter = Axis(axis.name + "t", count)
    base = ZERO if count is ONE else width * counter.dim
    at: dict[Atom, Dim] = {axis: base + lanes.dim}
    position = None if flat is None else flat.substitute(at)
    tile = Tile(lanes, "lane", base, (Accumulate(name, kind, substitute(value, at), position),), limit)
    return (tile,) if count is ONE else (Loop(counter, (tile,)),)


def _space(region: Region, storages: dict[str, Storage]) -> Rows:
    """Canonical axes: those of the first reduction; every member's axes are matched to them through its loads."""
    first = next(tensor for tensor in region.tensors if reductions(tensor.body))
    space = RowSpace.of(first)
    position = region.tensors.index(first)
    for source in reversed(region.tensors[:position]):
        space.add_producer(source)
    for tensor in region.tensors[position + 1 :]:
        space.add(tensor)
    rows = tuple(Axis(f"r{i}", extent) for i, extent in enumerate(space.rows))
    columns = tuple(Axis(f"c{i}", extent) for i, extent in enumerate(space.columns))
    axis_of = {("row", i): axis for i, axis in enumerate(rows)} | {("column", i): a for i, a in enumerate(columns)}
    places = {
        name: tuple(None if place is None else axis_of[place] for place in found)
        for name, found in space.places.items()
    }
    return Rows(rows, columns, _lane(first, rows, columns, places, storages), places)


def _lane(
    first: Tensor,
    rows: tuple[Axis, ...],
    columns: tuple[Axis, ...],
    places: dict[str, tuple[Axis | None, ...]],
    storages: dict[str, Storage],
) -> Axis:
    """The axis that most loads of the first reduction walk contiguously; the last column when there is none."""
    reduce = reductions(first.body)[0]
    mapping: dict[Atom, Dim] = {
        axis: place.dim for axis, place in zip(first.axes, places[first.name], strict=True) if place is not None
    }
    mapping |= {axis: column.dim for axis, column in zip(reduce.axes, columns, strict=True)}
    votes: dict[Axis, int] = {}
    for node in loads(reduce.body):
        storage = storages.get(node.tensor)
        if storage is None:
            continue
        address = storage.address(node.indices).substitute(mapping)
        for axis in (*columns, *rows):
            stride = address.coefficient(axis)
            if stride is ONE:
                votes[axis] = votes.get(axis, 0) + 1
    return max(votes, key=lambda a: votes[a]) if votes else columns[-1]

"""Regions to tile programs: one template for each kind, and the small kernels that storage needs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from opweld.fuse.region import Kind, Region, reductions
from opweld.place.pieces import pieces_of
from opweld.place.placed import Placed
from opweld.place.storage import Storage, Term, slice_of
from opweld.schedule.lanes import lane_tiles
from opweld.schedule.map import schedule_map, vectors_for
from opweld.schedule.nest import nest_of
from opweld.schedule.reduction import schedule_reduction
from opweld.schedule.rowwise import schedule_rows
from opweld.schedule.scan import schedule_scan
from opweld.schedule.tile import (
    Accumulate,
    Buffer,
    Declare,
    Kernel,
    Let,
    Loop,
    Scratch,
    Statement,
    Store,
    Tile,
)
from opweld.target import Target
from opweld.tensor.cost import Count, flops, size_in_bytes
from opweld.tensor.dim import ONE, ZERO, Axis, Dim, Symbol, as_dim, floordiv, symbols_of
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Expr, Load, const, dims_of, substitute, walk
from opweld.tensor.program import Tensor


@dataclass(frozen=True, eq=False)
class Scheduled:
    """A kernel, what it does (`count`), the bytes it must move, and an estimate of its nanoseconds on one core."""

    kernel: Kernel
    count: Count
    bytes: Dim
    work: Dim
    serial: bool = False


def schedule(placed: Placed, target: Target) -> list[Scheduled]:
    """The kernels of a placed program, in order."""
    shapes = {name: shape for name, (_, shape) in placed.program.signatures.items()}
    for region in placed.regions:
        if region.indices is None:
            shapes |= {tensor.name: tensor.shape for tensor in region.tensors}
    for name, constant in placed.constants.items():
        shapes[name] = tuple(map(as_dim, constant.shape))
    dtypes = {storage.root: storage.dtype for storage in placed.storages.values()}
    scheduler = _Scheduler(placed, shapes, dtypes, target)
    result: list[Scheduled] = []
    for region in placed.regions:
        result += scheduler.region(region)
    return result


@dataclass(eq=False)
class _Scheduler:
    placed: Placed
    shapes: dict[str, tuple[Dim, ...]]
    dtypes: dict[str, DType]
    target: Target
    number: int = 0

    def region(self, region: Region) -> list[Scheduled]:
        storages = dict(self.placed.storages)
        made: list[Scheduled] = []
        for name in region.outputs:
            storage = storages[name]
            if storage.padded and storage.root == name:
                made.append(self._halo(region, storage, self.shapes[name]))
        if region.kind is Kind.SCAN:
            assert region.scan is not None
            body, scratch = schedule_scan(region.scan, storages, self.shapes, self.placed.constants, self.target)
            made.append(self._kernel(region, "scan", (), body, scratch, flops(region.scan), serial=True))
        elif region.kind is Kind.ROWWISE:
            grid, body, scratch = schedule_rows(region, self.placed, storages, self.shapes, self.target)
            made.append(self._kernel(region, "rows", grid, body, scratch, _flops(region.tensors)))
        else:
            made += self._single(region, storages)
        return made

    def _single(self, region: Region, storages: dict[str, Storage]) -> list[Scheduled]:
        tensor = region.tensors[0]
        if region.kind is Kind.MAP:
            parts = self._parts(tensor, storages)
            if parts is not None:
                return [self._map(region, part, storage, storages) for part, storage in parts]
            return [self._map(region, tensor, storages[tensor.name], storages)]
        nest = nest_of(tensor.axes, region.place, tensor.body, storages[tensor.name], storages, self.shapes)
        if not reductions(nest.body):
            return [self._map(region, tensor, storages[tensor.name], storages)]
        root = storages[tensor.name].root
        grid, body = schedule_reduction(nest, root, region.kind, self.target)
        return [self._kernel(region, region.kind.value, grid, body, (), _flops(region.tensors))]

    def _map(self, region: Region, tensor: Tensor, storage: Storage, storages: dict[str, Storage]) -> Scheduled:
        indices = tuple(axis.dim for axis in tensor.axes)
        nest = nest_of(tensor.axes, indices, tensor.body, storage, storages, self.shapes)
        grid, body = schedule_map(nest, storage.root, self.target)
        return self._kernel(region, "map", grid, body, (), flops(tensor))

    def _parts(self, tensor: Tensor, storages: dict[str, Storage]) -> list[tuple[Tensor, Storage]] | None:
        """A concatenation copies part by part, and not at all what is written in place already."""
        pieces = pieces_of(tensor)
        if pieces is None:
            return None
        whole = storages[tensor.name]
        made: list[tuple[Tensor, Storage]] = []
        for part in pieces.parts:
            axes = list(tensor.axes)
            axes[pieces.axis] = Axis(axes[pieces.axis].name, part.end - part.start)
            target = slice_of(whole, pieces.axis, part.start)
            body = substitute(part.load, {tensor.axes[pieces.axis]: axes[pieces.axis].dim + part.start})
            if part.whole and storages[part.source] == target:
                continue
            made.append((Tensor(tensor.name, tensor.dtype, tuple(axes), body, tensor.origin), target))
        return made

    def _halo(self, region: Region, storage: Storage, shape: tuple[Dim, ...]) -> Scheduled:
        """Fills the padding around a value, each side of each axis in turn."""
        statements: list[Statement] = []
        value = const(storage.fill, storage.dtype)
        axes = [term.axis for term in sorted(storage.terms, key=lambda t: t.axis)]
        for position, (low, high) in enumerate(storage.halo):
            for start, extent in ((as_dim(-low), low), (shape[position], high)):
                if not extent:
                    continue
                # Axes after this one run over their padding too, so that corners are covered once.
                own: list[Axis] = []
                indices: list[Dim] = [ZERO] * len(shape)
                for axis in axes:
                    before, after = storage.halo[axis]
                    if axis == position:
                        own.append(Axis(f"i{axis}", extent))
                        indices[axis] = own[-1].dim + start
                    elif axis > position:
                        own.append(Axis(f"i{axis}", shape[axis] + before + after))
                        indices[axis] = own[-1].dim - before
                    else:
                        own.append(Axis(f"i{axis}", shape[axis]))
                        indices[axis] = own[-1].dim
                address = storage.address(indices)
                place = tuple(axis.dim for axis in own)
                nest = nest_of(own, place, value, _flat(storage, own, address), {}, {})
                statements += _serial(nest.axes, nest.store, storage.root, value, self.target)
        return self._kernel(region, "halo", (), tuple(statements), (), Count(), serial=True)

    def _kernel(
        self,
        region: Region,
        kind: str,
        grid: Iterable[Axis],
        body: tuple[Statement, ...],
        scratch: tuple[Scratch, ...],
        count: Count,
        serial: bool = False,
    ) -> Scheduled:
        local = {block.name for block in scratch}
        read, written = memory_of(body)
        names = [n for n in dict.fromkeys((*read, *written)) if n not in local]
        buffers = tuple(
            Buffer(n, self.dtypes[n], "update" if n in read and n in written else "write" if n in written else "read")
            for n in names
        )
        grid = tuple(grid)
        sizes = _symbols((*grid_dims(grid), *(block.elements for block in scratch)), body)
        self.number += 1
        kernel = Kernel(f"k{self.number}_{kind}", buffers, sizes, grid, body, scratch, region.origin)
        moved = sum((self._bytes(name) for name in (*region.inputs, *region.outputs)), ZERO)
        return Scheduled(kernel, count, moved, _work(count, moved, self.target), serial)

    def _bytes(self, name: str) -> Dim:
        """Bytes of a value, its padding not counted."""
        return size_in_bytes(self.placed.storages[name].dtype, self.shapes[name])


def _flat(storage: Storage, own: list[Axis], address: Dim) -> Storage:
    terms: list[Term] = []
    for position, axis in enumerate(own):
        stride = address.coefficient(axis)
        assert stride is not None
        terms.append(Term(position, stride))
        address = address.without(axis)
    return Storage(storage.root, storage.dtype, tuple(terms), address, storage.elements)


def _serial(axes: tuple[Axis, ...], store: Dim, buffer: str, value: Expr, target: Target) -> tuple[Statement, ...]:
    lane = next((axis for axis in reversed(axes) if store.coefficient(axis) is ONE), None) or Axis("one", ONE)
    width = target.vector_lanes_f32 * vectors_for(lane.extent.constant, target)
    body = lane_tiles(lane, width, lambda index: (Store(buffer, store.substitute({lane: index}), value),))
    for axis in reversed([axis for axis in axes if axis is not lane]):
        body = (Loop(axis, body),)
    return body


def _flops(tensors: Iterable[Tensor]) -> Count:
    return sum((flops(tensor) for tensor in tensors), Count())


def _work(count: Count, moved: Dim, target: Target) -> Dim:
    """About half of a core's peak for arithmetic, ten gigabytes a second for memory, half a nanosecond a function."""
    rate = 3 * target.vector_lanes_f32
    return floordiv(count.flops, rate) + floordiv(moved, 10) + floordiv(count.special, 2) + 100


def grid_dims(grid: Iterable[Axis]) -> tuple[Dim, ...]:
    """The extents of the grid axes."""
    return tuple(axis.extent for axis in grid)


def statements_of(body: Iterable[Statement]) -> Iterable[Statement]:
    """Every statement at any depth, outer ones first."""
    for statement in body:
        yield statement
        if isinstance(statement, Loop | Tile):
            yield from statements_of(statement.body)


def expressions_of(statement: Statement) -> tuple[Expr, ...]:
    """The expressions of one statement, not of those inside it."""
    if isinstance(statement, Declare):
        return (statement.initial,)
    if isinstance(statement, Accumulate | Let | Store):
        return (statement.value,)
    return ()


def dims_of_statement(statement: Statement) -> tuple[Dim, ...]:
    """The polynomials of one statement, those of its expressions included."""
    own: tuple[Dim, ...] = ()
    if isinstance(statement, Loop):
        own = (statement.lower, statement.end)
    elif isinstance(statement, Tile):
        own = (statement.base,) if statement.limit is None else (statement.base, statement.limit)
    elif isinstance(statement, Store):
        own = (statement.offset, *statement.guards)
    elif isinstance(statement, Accumulate) and statement.position is not None:
        own = (statement.position,)
    return (*own, *(dim for root in expressions_of(statement) for node in walk(root) for dim in dims_of(node)))


def memory_of(body: tuple[Statement, ...]) -> tuple[dict[str, None], dict[str, None]]:
    """The names of memory read and written, in order."""
    read: dict[str, None] = {}
    written: dict[str, None] = {}
    for statement in statements_of(body):
        for root in expressions_of(statement):
            for node in walk(root):
                if isinstance(node, Load) and node.indices:
                    read[node.tensor] = None
        if isinstance(statement, Store):
            written[statement.buffer] = None
    return read, written


def _symbols(dims: Iterable[Dim], body: tuple[Statement, ...]) -> tuple[Symbol, ...]:
    found: set[Symbol] = set()
    for dim in (*dims, *(d for s in statements_of(body) for d in dims_of_statement(s))):
        found |= symbols_of(dim)
    return tuple(sorted(found, key=lambda s: s.name))

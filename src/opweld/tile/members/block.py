"""The members of a row block: computed in turn for some rows at a time, with intermediate values in scratch.

    grid       the rows' axes; of one of them, blocks
    first      a contraction into scratch: the block's rows x all columns
    rows       for each row of the block, passes over its columns, the result in scratch
    last       a contraction of the rows in scratch

softmax(q k^T) v is such a block: values of the size of the scores never leave the cache. A value in scratch has its
usual address minus the start of the block. In a producer-consumer pair (`fuse/pairs.py`) the first member is a
contraction, a window or elementwise, and the last any member that reads it; values between register tiles have the
layout of the producer's lanes. If the last member is a window over the rows, the first computes the rows that the block
needs, so that adjacent blocks compute some rows twice.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

from opweld.fuse.live import Live, Values, live_columns
from opweld.fuse.online import softmax_of
from opweld.fuse.pair_prices import PairPrices
from opweld.fuse.region import Block, Kind, Reach, Region, reductions
from opweld.fuse.region import Member as RegionMember
from opweld.place.lanes import Lanes, lane_position
from opweld.place.storage import Storage, Term, apart
from opweld.schedule.choice import Choice
from opweld.schedule.cost import Product, best_height, contraction, core_of, level_rate, traffic
from opweld.target import Target
from opweld.tensor.dim import ONE, ZERO, Atom, Axis, Dim, as_dim, ceildiv, floordiv, maximum, minimum
from opweld.tensor.dtype import DType
from opweld.tensor.expr import substitute
from opweld.tensor.program import Tensor, TensorProgram, unused
from opweld.tile.member import KernelBody, MapMember, Member, ReductionMember, RowMember
from opweld.tile.members.rowwise import RowwiseMember, RowWork
from opweld.tile.nest import nest_of
from opweld.tile.tile import Loop, Scratch, Statement

HEIGHTS = (1, 4, 6, 8, 12, 14, 16, 24, 28, 32, 48, 56, 64, 96, 128)
"""Candidate numbers of rows of a block."""
COLUMNS = (64, 128, 256, 512, 1024)
"""Candidate numbers of columns of a softmax at a time."""
STATES = 60
"""Cycles of a row for each block of columns: two exponentials, two reductions across lanes."""


@dataclass(frozen=True)
class BlockTiling:
    """How a block is tiled: the rows of a grid iteration, the columns at a time (0 for all), and the columns that are
    live where masked ones are skipped."""

    rows: int = 0
    columns: int = 0
    live: Live | None = None

    @property
    def masked(self) -> str:
        """The schedule's field about masked columns."""
        return "computed" if self.live is None else "skipped"


def choose_block(region: Region, values: Values, program: TensorProgram, choice: Choice) -> BlockTiling:
    """Chooses how a block is divided; `values` are the program's.

    More rows read the other operands less often; fewer leave work for all cores and keep intermediate values in the
    cache, as do fewer columns, each block of which reads the results once more."""
    block = region.block
    assert block is not None
    if region.is_pair:
        return _choose_pair(region, program, choice)
    shape = _Shape.of(region, choice)
    extent = block.space.rows[block.row]
    heights = [h for h in HEIGHTS if h == 1 or extent.constant is None or h <= extent.constant]
    softmax, why = (
        softmax_of(region.members[1]) if len(region.members) == 3 else (None, "no contraction makes its rows")
    )
    (*_, columns) = block.space.columns
    legal = [c for c in COLUMNS if softmax is not None and (columns.constant is None or c < columns.constant)]
    why = why or f"a row has {columns} columns"
    usable = legal if choice.ledger.allows("schedule.columns") else []
    live = live_columns(softmax, block.space, values) if legal and softmax is not None else why
    skips = choice.ledger.allows("schedule.masked")

    def seconds(height: int, count: int) -> float:
        part = _part(live, block, height, count, choice) if count and isinstance(live, Live) and skips else 1.0
        return shape.seconds(height, count, part)

    least = {height: min(seconds(height, c) for c in (0, *usable)) for height in heights}
    reason = "the rows stay in the cache, operands are read seldom, and there is work for all cores"
    rows = int(choice.cheapest("schedule.block", {str(h): price for h, price in least.items()}, reason))
    prices = {str(c): seconds(rows, c) for c in (0, *legal)}
    reason = "scores and shares stay in the nearest cache" if legal else "whole rows are reduced at once"
    count = int(choice.cheapest("schedule.columns", prices, reason, {} if legal else {str(COLUMNS[0]): why}))
    if isinstance(live, Live) and not count:
        live = "whole rows are reduced at once"
    masked = {"computed": shape.seconds(rows, count)}
    if isinstance(live, Live):
        masked["skipped"] = shape.seconds(rows, count, _part(live, block, rows, count, choice))
        reason = "no row of a block sees them: their shares are 0"
        skips = choice.cheapest("schedule.masked", masked, reason) == "skipped"
        return BlockTiling(rows, count, live if skips else None)
    choice.cheapest("schedule.masked", masked, live, {"skipped": live})
    return BlockTiling(rows, count)


def _choose_pair(region: Region, program: TensorProgram, choice: Choice) -> BlockTiling:
    """Chooses how a pair is divided: by rows only, since it has no softmax."""
    found = PairPrices.of(region, program, choice.expected, choice.target)
    reason = "intermediate values stay in the cache, operands are read seldom, and there is work for all cores"
    prices = {str(height): found.seconds(height) for height in found.heights}
    rows = int(choice.cheapest("schedule.block", prices, reason))
    why = "there is no softmax between its members"
    price = prices[str(rows)]
    choice.cheapest("schedule.columns", {"0": price}, "whole rows are summed at once", {str(COLUMNS[0]): why})
    choice.cheapest("schedule.masked", {"computed": price}, why, {"skipped": why})
    return BlockTiling(rows)


def whole_columns(extent: Dim, columns: int) -> tuple[Dim, Dim]:
    """The number of full blocks of columns, and the remaining columns; a single one would not be a reduction."""
    count = floordiv(extent, columns)
    if count is not ZERO and (extent - count * columns).constant == 1:
        count = count - 1
    return count, extent - count * columns


def _part(live: Live, block: Block, height: int, columns: int, choice: Choice) -> float:
    """The fraction of columns that masks leave for blocks of this size; remainders count as live."""
    expected = choice.expected
    total, rest = (int(size) for size in whole_columns(as_dim(expected(live.columns)), columns))
    extents = [expected(extent) for extent in block.space.rows]
    seen = live.visited(extents, block.row, height, columns, total, expected)
    return (seen * columns + rest) / max(1, total * columns + rest)


@dataclass(frozen=True)
class _Shape:
    """The figures of a block for prices: the `rows` of the blocked axis, the iterations `outside`, the `columns` of a
    row, and the reduced and free sizes of the contractions before and after."""

    rows: int
    outside: int
    columns: int
    reduced: int
    results: int
    dtype: DType
    target: Target

    @staticmethod
    def of(region: Region, choice: Choice) -> _Shape:
        """The figures of a region, at the expected sizes."""
        block = region.block
        assert block is not None
        expected, space = choice.expected, block.space
        outside = expected.product(size for n, size in enumerate(space.rows) if n != block.row)
        first = region.members[0].tensors[-1]
        made = len(region.members) == 3
        reduced = expected.product(a.extent for node in reductions(first.body) for a in node.axes) if made else 0
        last, own = region.members[-1].tensor, block.rows[-1]
        results = expected.product(axis.extent for axis in last.axes if axis not in own)
        rows, columns = expected(space.rows[block.row]), expected.product(space.columns)
        return _Shape(max(1, rows), max(1, outside), columns, reduced, results, last.dtype, choice.target)

    def seconds(self, height: int, columns: int, part: float = 1.0) -> float:
        """Seconds of all blocks of this many rows, on one core; columns: at a time, 0 for all; part: live fraction."""
        core, each = core_of(self.target), self.dtype.bytes
        work = Product(self.columns, height, self.reduced, 1, self.dtype, self.target)
        after = Product(self.results, height, self.columns, 1, self.dtype, self.target)
        products = sum(contraction(w, 2, best_height(w, 2)).seconds for w in (work, after) if w.reduced)
        # Both other operands pass once for each block of rows, from the smallest level that holds them.
        operands = each * self.columns * (self.reduced + self.results)
        moved = traffic(operands, self.target)
        # Scores are written, read by two passes; softmax results are written, read by the sum and by the contraction.
        held = 2 * each * height * (columns or self.columns)
        between = 0.0
        if held > self.target.l1_bytes:
            between = 6 * each * height * self.columns / level_rate(2 * held, self.target)
        times = -(-self.columns // columns) if columns else 0
        vectors = -(-self.results // self.target.lanes(self.dtype))
        states = times * height * (STATES + 3 * vectors) / core.hertz
        blocks = -(-self.rows // height)
        # The last iterations leave some cores idle.
        waiting = 1 + self.target.cores / (2 * blocks * self.outside)
        return part * blocks * (products + moved + between + states) * waiting


@dataclass(frozen=True, eq=False)
class Frame:
    """The iterations of a block.

    Attributes:
        grid: row axes, with one divided into blocks. inner: the rows of a block, from row `start` on.
        bound: the end of a block's rows, None if blocks are full.
        rows: each row of the space as an expression.
    """

    grid: tuple[Axis, ...]
    inner: Axis
    start: Dim
    bound: Dim | None
    rows: tuple[Dim, ...]

    @staticmethod
    def of(block: Block, height: int) -> Frame:
        """The frame of iterations of `height` rows."""
        extent = block.space.rows[block.row]
        counter, inner = Axis("block", ceildiv(extent, height)), Axis("m", height)
        grid = tuple(counter if n == block.row else Axis(f"g{n}", size) for n, size in enumerate(block.space.rows))
        single: dict[Atom, Dim] = {axis: ZERO for axis in (*grid, inner) if axis.extent is ONE}
        start = (height * counter.dim).substitute(single)
        rows = tuple((axis.dim if axis is not counter else start + inner.dim).substitute(single) for axis in grid)
        whole = extent.constant is not None and extent.constant % height == 0
        bound = None if whole else minimum(height, extent - start)
        return Frame(tuple(axis for axis in grid if axis.extent is not ONE), inner, start, bound, rows)

    def under(self, block: Block, height: int, extent: Dim) -> Frame:
        """The rows of the first member, of which there are `extent`, that `height` rows of the others need."""
        reach = block.reach
        if reach == Reach():
            return self
        inner = Axis("f", reach.rows(height))
        start = self.start * reach.step - reach.before
        if reach.before:
            start = maximum(0, start)
        row = start + (ZERO if inner.extent is ONE else inner.dim)
        rows = tuple(row if n == block.row else own for n, own in enumerate(self.rows))
        return Frame(self.grid, inner, start, minimum(inner.extent, extent - start), rows)

    @property
    def limits(self) -> dict[Axis, Dim]:
        """The limits of a nest over the rows of a block."""
        return {} if self.bound is None else {self.inner: self.bound}

    def at(self, own: Mapping[Axis, int]) -> dict[Atom, Dim]:
        """The axes of a member in terms of the rows, by the position of each."""
        return {axis: self.rows[position] for axis, position in own.items()}

    def looped(self, made: KernelBody) -> tuple[Statement, ...]:
        """The statements of a member for the rows of a block."""
        body = made.body
        for axis in reversed(made.grid):
            body = (Loop(axis, body, upper=self.bound if axis is self.inner else None),)
        return body

    def each_row(self, body: tuple[Statement, ...]) -> tuple[Statement, ...]:
        """A loop over the rows of the block, for members that do not loop over them."""
        return body if self.inner.extent is ONE else (Loop(self.inner, body, upper=self.bound),)


@dataclass(frozen=True, eq=False)
class RowBlock:
    """The members of a block, composed to one kernel. `first`: the rows of the first one."""

    frame: Frame
    first: Frame
    members: tuple[Member, ...]
    scratch: tuple[Scratch, ...]

    def compose(self, made: Sequence[KernelBody]) -> KernelBody:
        """One iteration of the grid: each member for the rows of its block."""
        body: list[Statement] = []
        for number, (member, item) in enumerate(zip(self.members, made, strict=True)):
            frame = self.frame if number else self.first
            own = frame.looped(item)
            body += frame.each_row(own) if isinstance(member, MapMember) else own
        return KernelBody(
            self.frame.grid, tuple(body), (*self.scratch, *(piece for item in made for piece in item.scratch))
        )


def block_of(
    region: Region,
    height: int,
    storages: Mapping[str, Storage],
    shapes: Mapping[str, tuple[Dim, ...]],
    lanes: Mapping[str, Lanes],
) -> RowBlock:
    """The members of a region whose iterations compute `height` rows."""
    block = region.block
    assert block is not None
    frame = Frame.of(block, height)
    under = frame.under(block, height, _made(region))
    local, scratch = dict(storages), list[Scratch]()
    for tensor in _between(region):
        last = lane_position(region.members[0], lanes[tensor.name]) if region.of_tiles else None
        here = under if tensor is region.members[0].tensors[-1] else frame
        rows = int(here.inner.extent)
        storage = window(tensor, block, rows, block.space.columns, here.start, storages, last=last)
        local[tensor.name] = storage
        scratch.append(Scratch(storage.root, tensor.dtype, storage.elements))

    def one(member: RegionMember, own: Mapping[Axis, int], here: Frame) -> Member:
        at, tensor = here.at(own), member.tensor
        others = tuple(axis for axis in tensor.axes if axis not in own)
        place, body = tuple(dim.substitute(at) for dim in member.place), substitute(tensor.body, at)
        storage = local[tensor.name]
        if member.kind is Kind.MAP:
            nest = nest_of(others, place, body, storage, local, shapes)
            return MapMember(nest, storage.root, (tensor.name,), serial=True)
        lane = lanes[tensor.name]
        nest = nest_of((here.inner, *others), place, body, storage, local, shapes, lane.axis, here.limits)
        return ReductionMember(nest, storage.root, member.kind, lane.vectors, (tensor.name,), paired=region.of_tiles)

    members: list[Member] = []
    for member, own in zip(region.members, block.rows, strict=True):
        if member.kind is not Kind.ROWWISE:
            members.append(one(member, own, frame if members else under))
            continue
        outputs = tuple(tensor.name for tensor in member.tensors if tensor.name in local)
        rows = RowwiseMember.of(block.space, dict(enumerate(frame.rows)), (frame.inner,))
        work = RowWork(member.tensors, outputs, rows, local, shapes)
        members.append(RowMember(work, (member.tensors[-1].name,), columns_only=True))
    return RowBlock(frame, under, tuple(members), tuple(scratch))


def _made(region: Region) -> Dim:
    """The number of rows of the first member along the blocked axis."""
    block = region.block
    assert block is not None
    own = next((axis for axis, row in block.rows[0].items() if row == block.row), None)
    return block.space.rows[block.row] if own is None else own.extent


def _between(region: Region) -> list[Tensor]:
    """The values that are only passed between members, in scratch."""
    found: list[Tensor] = []
    for number, member in enumerate(region.members):
        later = Region(region.members[number + 1 :], ()).inputs
        found += [tensor for tensor in member.tensors if tensor.name in later and tensor.name not in region.outputs]
    return found


def window(
    tensor: Tensor,
    block: Block,
    height: int,
    columns: Sequence[Dim],
    start: Dim,
    taken: Container[str],
    first: Dim = ZERO,
    last: int | None = None,
) -> Storage:
    """Scratch for the rows of one block, [rows][columns], or for this many columns from the first on. Rows and columns
    keep their indices in the value. `taken`: names that are those of other memory; `last`: the innermost axis of the
    value, if not its last one."""
    places = block.space.places[tensor.name]
    terms: list[Term] = []
    stride = ONE
    order = [axis for axis in range(len(places)) if axis != last] + ([] if last is None else [last])
    for axis in reversed(order):
        place = places[axis]
        if place is not None and place[0] == "column":
            terms.append(Term(axis, stride))
            stride = stride * columns[place[1]]
    stride = apart(stride, tensor.dtype)
    terms.append(Term(places.index(("row", block.row)), stride))
    ordered = tuple(sorted(terms, key=lambda term: term.axis))
    offset = -start * stride - first
    return Storage(unused(f"{tensor.name}_rows", taken), tensor.dtype, ordered, offset, stride * as_dim(height))

"""The members of a block of rows: computed one after the other for some rows at a time, what lies between in scratch.

    grid       the rows' axes; of one of them, blocks
    first      a contraction into scratch: the rows of the block x all columns
    rows       for each row of the block, passes over its columns, the result in scratch
    last       a contraction of the rows in scratch

softmax(q k^T) v is such a block: no value of the size of the scores ever leaves the cache. A value in scratch has the
address that it would have in memory, less where the block begins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from opweld.fuse.region import Block, Kind, Region
from opweld.fuse.region import Member as RegionMember
from opweld.place.lanes import Lanes
from opweld.place.storage import Storage, Term
from opweld.schedule.choice import Choice
from opweld.schedule.cost import Product, best_height, contraction, core_of
from opweld.tensor.dim import ONE, ZERO, Atom, Axis, Dim, as_dim, ceildiv, minimum
from opweld.tensor.expr import substitute
from opweld.tensor.program import Tensor
from opweld.tile.member import Made, Member, ReductionMember, RowMember
from opweld.tile.members.rowwise import Rows, RowWork
from opweld.tile.nest import nest_of
from opweld.tile.tile import Loop, Scratch, Statement

HEIGHTS = (1, 4, 6, 8, 12, 14, 16, 24, 28, 32, 48, 64)
"""Rows of a block that are worth a thought."""


def choose_block(region: Region, choice: Choice) -> int:
    """How many rows an iteration computes: more read the other operands less often, fewer leave work for all cores and
    keep what lies between the members in the cache."""
    block = region.block
    assert block is not None
    extent = block.space.rows[block.row]
    rows = max(1, choice.expected(extent))
    outside = choice.expected.product(size for n, size in enumerate(block.space.rows) if n != block.row)
    columns = max(1, choice.expected.product(block.space.columns))
    target = choice.target
    core = core_of(target)
    dtype = region.members[0].tensors[-1].dtype
    prices: dict[str, float] = {}
    for height in HEIGHTS:
        if height > 1 and extent.constant is not None and height > extent.constant:
            continue
        blocks = -(-rows // height)
        work = Product(columns, height, columns, 1, dtype, target)
        seconds = contraction(work, 2, best_height(work, 2)).seconds
        # Both other operands pass through the second-level cache once for each block.
        seconds += 2 * dtype.bytes * columns * target.vector_bytes / core.l2_bytes / core.hertz
        if 2 * dtype.bytes * height * columns > target.l2_bytes // 2:
            seconds *= 1.5
        # The last iterations leave cores without work.
        prices[str(height)] = blocks * seconds * (1 + target.cores / (2 * blocks * max(1, outside)))
    reason = "the rows stay in the cache, operands are read seldom, and there is work for all cores"
    return int(choice.cheapest("schedule.block", prices, reason))


@dataclass(frozen=True, eq=False)
class RowBlock:
    """The members of a block, and how their statements become one kernel. Iterations of `row` end at `bound`."""

    grid: tuple[Axis, ...]
    row: Axis
    bound: Dim | None
    members: tuple[Member, ...]
    scratch: tuple[Scratch, ...]

    def compose(self, made: Sequence[Made]) -> Made:
        """One iteration of the grid: each member for the rows of its block."""
        body: list[Statement] = []
        for item in made:
            inner = item.body
            for axis in reversed(item.grid):
                inner = (Loop(axis, inner, upper=self.bound if axis is self.row else None),)
            body += inner
        scratch = (*self.scratch, *(piece for item in made for piece in item.scratch))
        return Made(tuple(axis for axis in self.grid if axis.extent is not ONE), tuple(body), scratch)


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
    extent = block.space.rows[block.row]
    counter, inner = Axis("block", ceildiv(extent, height)), Axis("m", height)
    grid = tuple(counter if n == block.row else Axis(f"g{n}", size) for n, size in enumerate(block.space.rows))
    single: dict[Atom, Dim] = {axis: ZERO for axis in (*grid, inner) if axis.extent is ONE}
    start = (height * counter.dim).substitute(single)
    rows = [(axis.dim if axis is not counter else start + inner.dim).substitute(single) for axis in grid]
    whole = extent.constant is not None and extent.constant % height == 0
    bound = None if whole else minimum(height, extent - start)

    local, scratch = dict(storages), list[Scratch]()
    for tensor in _between(region):
        storage = _window(tensor, block, height, start)
        local[tensor.name] = storage
        scratch.append(Scratch(storage.root, tensor.dtype, storage.elements))

    def reduction(member: RegionMember, own: Mapping[Axis, int]) -> Member:
        at: dict[Atom, Dim] = {axis: rows[position] for axis, position in own.items()}
        tensor, lane = member.tensor, lanes[member.tensor.name]
        axes = (inner, *(axis for axis in tensor.axes if axis not in own))
        place = tuple(dim.substitute(at) for dim in member.place)
        storage = local[tensor.name]
        nest = nest_of(axes, place, substitute(tensor.body, at), storage, local, shapes, lane.axis)
        if bound is not None:
            nest = replace(nest, limits={inner: bound})
        return ReductionMember(nest, storage.root, member.kind, lane.vectors, tensor.name)

    members: list[Member] = []
    for member, own in zip(region.members, block.rows, strict=True):
        if member.kind is not Kind.ROWWISE:
            members.append(reduction(member, own))
            continue
        outputs = tuple(tensor.name for tensor in member.tensors if tensor.name in local)
        work = RowWork(member.tensors, outputs, Rows.of(block.space, dict(enumerate(rows)), (inner,)), local, shapes)
        members.append(RowMember(work, member.tensors[-1].name, columns_only=True))
    return RowBlock(grid, inner, bound, tuple(members), tuple(scratch))


def _between(region: Region) -> list[Tensor]:
    """The values that one member makes and another reads."""
    found: list[Tensor] = []
    for number, member in enumerate(region.members):
        later = Region(region.members[number + 1 :], ()).inputs
        found += [tensor for tensor in member.tensors if tensor.name in later]
    return found


def _window(tensor: Tensor, block: Block, height: int, start: Dim) -> Storage:
    """Scratch for the rows of one block, [rows][columns]; a row keeps the index that it has in the value."""
    places = block.space.places[tensor.name]
    terms: list[Term] = []
    stride = ONE
    for axis in reversed(range(len(places))):
        place = places[axis]
        if place is not None and place[0] == "column":
            terms.append(Term(axis, stride))
            stride = stride * block.space.columns[place[1]]
    terms.append(Term(places.index(("row", block.row)), stride))
    ordered = tuple(sorted(terms, key=lambda term: term.axis))
    return Storage(f"{tensor.name}_rows", tensor.dtype, ordered, -start * stride, stride * as_dim(height))

"""Attention over blocks of columns: the members of a block, over blocks of columns with running states.

    grid     the rows' axes; one of them in blocks
    begin    initialise the result and the states
    columns  a loop over blocks of columns, without masked ones, then the remainder:
        scores     a contraction into scratch: the rows of the block x these columns
        shares     the online softmax, see `online`
        product    the result by its scale, and a contraction of the shares with these columns
    finish   the result by the sum of the shares, and the epilogue

Scores and shares of a block of columns stay in the first-level cache for rows of any length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from opweld.fuse.online import Softmax, softmax_of
from opweld.fuse.region import Block, Region, reductions
from opweld.place.lanes import Lanes
from opweld.place.storage import Storage, dense
from opweld.tensor.axes import replace_reduced
from opweld.tensor.dim import ONE, ZERO, Axis, Dim, as_dim, ceildiv, floordiv, minimum
from opweld.tensor.expr import Expr, Reduce, binary, const, load, loads, substitute, substitute_loads, transform
from opweld.tensor.program import Tensor
from opweld.tile.member import KernelBody, MapMember, Member, ReductionMember
from opweld.tile.members.block import BlockTiling, Frame, whole_columns, window
from opweld.tile.members.online import SoftmaxMember, States
from opweld.tile.members.rowwise import RowwiseMember, RowWork
from opweld.tile.nest import nest_of
from opweld.tile.tile import Loop, Scratch


@dataclass(frozen=True, eq=False)
class OnlineBlock:
    """The members, composed to one kernel: three for a block of columns, in a loop over `columns` from `first` to
    `end`, if there is one; three for the remainder, if there may be one; and those that initialise and
    finish."""

    frame: Frame
    columns: Axis | None
    first: Dim
    end: Dim
    members: tuple[Member, ...]
    states: States
    scratch: tuple[Scratch, ...]

    def compose(self, made: Sequence[KernelBody]) -> KernelBody:
        """One iteration of the grid."""
        *parts, begin, finish = map(self.frame.looped, made)
        body = [*self.frame.each_row(self.states.begin()), *self.frame.each_row(begin)]
        if self.columns is not None:
            whole = tuple(statement for part in parts[:3] for statement in part)
            upper = None if self.end is self.columns.extent else self.end
            body += whole if _once(self.first, self.end) else [Loop(self.columns, whole, self.first, upper)]
            parts = parts[3:]
        body += [statement for part in parts for statement in part]
        body += self.frame.each_row(finish)
        scratch = (*self.scratch, *(piece for item in made for piece in item.scratch))
        return KernelBody(self.frame.grid, tuple(body), scratch)


def _once(first: Dim, end: Dim) -> bool:
    """Whether there is only the block of columns at zero, which needs no loop."""
    return first is ZERO and end is ONE


def online_block_of(
    region: Region,
    tiling: BlockTiling,
    storages: Mapping[str, Storage],
    shapes: Mapping[str, tuple[Dim, ...]],
    lanes: Mapping[str, Lanes],
) -> OnlineBlock:
    """The members of a region with blocks of columns. The region must be a softmax between two contractions."""
    return _Builder(region, tiling, storages, shapes, lanes).build()


class _Builder:
    def __init__(
        self,
        region: Region,
        tiling: BlockTiling,
        storages: Mapping[str, Storage],
        shapes: Mapping[str, tuple[Dim, ...]],
        lanes: Mapping[str, Lanes],
    ) -> None:
        block = region.block
        assert block is not None
        self._block: Block = block
        self._first, self._middle, self._last = region.members
        softmax, _ = softmax_of(self._middle)
        assert softmax is not None, f"{region.outputs} is no softmax between contractions"
        self._softmax: Softmax = softmax
        self._tiling, self._columns, self._height = tiling, tiling.columns, tiling.rows
        self._storages, self._shapes, self._lanes = storages, shapes, lanes
        self._frame = Frame.of(block, tiling.rows)
        row = ZERO if self._frame.inner.extent is ONE else self._frame.inner.dim
        result = self._last.tensor
        prefix = f"{result.name}_"
        while any(name.startswith(prefix) for name in storages):  # names of inputs may collide
            prefix += "_"
        self._states = States(softmax.shares.dtype, row, tiling.rows, prefix)
        own = block.rows[2]
        self._others = tuple(axis for axis in result.axes if axis not in own and axis.extent is not ONE)
        node = reductions(result.body)[0]
        shape = (as_dim(tiling.rows), *(axis.extent for axis in self._others))
        self._sums = dense(f"{prefix}result", node.dtype, shape)
        self._here = (row, *(axis.dim for axis in self._others))

    def build(self) -> OnlineBlock:
        (extent,) = self._block.space.columns
        count, rest = whole_columns(extent, self._columns)
        counter = None if count is ZERO else Axis("columns", count)
        members: list[Member] = []
        seen = ZERO, count
        if counter is not None:
            seen = self._seen(count)
            number = ZERO if _once(*seen) else counter.dim
            members += self._part(number * self._columns, as_dim(self._columns), ())
        if rest is not ZERO:
            members += self._part(count * self._columns, rest, ("rest",))
        members += [self._begin(), self._finish()]
        widest = rest if counter is None else as_dim(max(self._columns, rest.constant or 0))
        windows = [self._window(tensor, ZERO, widest) for tensor in (self._first.tensor, self._softmax.shares)]
        scratch = [Scratch(found.root, found.dtype, found.elements) for found in (*windows, self._sums)]
        return OnlineBlock(self._frame, counter, *seen, tuple(members), self._states, (*scratch, *self._states.scratch))

    def _seen(self, count: Dim) -> tuple[Dim, Dim]:
        """The live blocks of `count` columns of a block of rows: the first, and the end."""
        if self._tiling.live is None:
            return ZERO, count
        start = self._frame.start
        first, end = self._tiling.live.within(self._frame.rows, self._block.row, start, start + self._height - 1)
        return floordiv(first, self._columns), minimum(count, ceildiv(end, self._columns))

    def _window(self, tensor: Tensor, first: Dim, extent: Dim) -> Storage:
        found = window(tensor, self._block, self._height, (extent,), self._frame.start, self._storages, first)
        return replace(found, root=f"{self._states.prefix}{'scores' if tensor is self._first.tensor else 'shares'}")

    def _part(self, first: Dim, extent: Dim, part: tuple[str, ...]) -> list[Member]:
        """The members for `extent` columns from `first` on."""
        local = dict(self._storages)
        for tensor in (self._first.tensor, self._softmax.shares):
            local[tensor.name] = self._window(tensor, first, extent)
        return [
            self._scores(first, extent, local, part),
            self._shares(first, extent, local, part),
            self._product(first, extent, local, part),
        ]

    def _scores(self, first: Dim, extent: Dim, local: Mapping[str, Storage], part: tuple[str, ...]) -> Member:
        member, own, tensor = self._first, self._block.rows[0], self._first.tensor
        column = self._column_of(tensor.name, member.place)
        some = Axis(column.name, extent)
        at = self._frame.at(own) | {column: first + (ZERO if some.extent is ONE else some.dim)}
        axes = (self._frame.inner, *(some if axis is column else axis for axis in tensor.axes if axis not in own))
        lane = self._lanes[tensor.name]
        place = tuple(dim.substitute(at) for dim in member.place)
        along = some if lane.axis is column else lane.axis
        body, storage = substitute(tensor.body, at), local[tensor.name]
        nest = nest_of(axes, place, body, storage, local, self._shapes, along, self._frame.limits)
        return ReductionMember(nest, local[tensor.name].root, member.kind, lane.vectors, (tensor.name, *part))

    def _column_of(self, value: str, indices: Sequence[Dim]) -> Axis:
        """The column axis of a contraction, from the indices at which it accesses a row's value."""
        places = self._block.space.places[value]
        (found,) = (dim.atom for dim, place in zip(indices, places, strict=True) if place == ("column", 0))
        assert isinstance(found, Axis)
        return found

    def _shares(self, first: Dim, extent: Dim, local: Mapping[str, Storage], part: tuple[str, ...]) -> Member:
        space = replace(self._block.space, columns=(extent,))
        rows = RowwiseMember.of(space, dict(enumerate(self._frame.rows)), (self._frame.inner,))
        (column,) = rows.columns
        rows = replace(rows, dims={**rows.dims, column: first + column.dim})
        work = RowWork(self._middle.tensors, (self._softmax.shares.name,), rows, local, self._shapes)
        return SoftmaxMember(work, self._softmax, self._states, (self._middle.tensors[-1].name, *part))

    def _product(self, first: Dim, extent: Dim, local: Mapping[str, Storage], part: tuple[str, ...]) -> Member:
        member, own, tensor = self._last, self._block.rows[2], self._last.tensor
        node = reductions(tensor.body)[0]
        (site,) = (s for s in loads(node.body) if s.tensor == self._middle.tensors[-1].name)
        column = self._column_of(site.tensor, site.indices)
        some = Axis(column.name, extent)
        summed = replace_reduced(node, (column,), (some,), {column: first + some.dim})
        # Unnormalised shares are used; the division by their sum comes last.
        quotient = site.tensor
        summed = substitute_loads(summed, lambda n: self._share(n.indices) if n.tensor == quotient else None)
        body = binary(
            "add", binary("mul", self._result, self._states.read("scale")), substitute(summed, self._frame.at(own))
        )
        axes = (self._frame.inner, *self._others)
        lane = self._lanes[tensor.name]
        nest = nest_of(axes, self._here, body, self._sums, local, self._shapes, lane.axis, self._frame.limits)
        return ReductionMember(nest, self._sums.root, member.kind, lane.vectors, (tensor.name, *part))

    def _share(self, indices: tuple[Dim, ...]) -> Expr:
        """A share at the indices of the result of the softmax."""
        places, shares = self._block.space.places, self._softmax.shares
        at = dict(zip(places[self._middle.tensors[-1].name], indices, strict=True))
        return load(shares.name, shares.dtype, tuple(ZERO if p is None else at[p] for p in places[shares.name]))

    @property
    def _result(self) -> Expr:
        """The running result of a row."""
        return load(self._sums.root, self._sums.dtype, (self._sums.address(self._here),))

    def _begin(self) -> Member:
        """Initialises the result."""
        nest = nest_of(self._others, self._here, const(0.0, self._sums.dtype), self._sums, self._storages, self._shapes)
        return MapMember(nest, self._sums.root, (self._last.tensor.name, "begin"), serial=True)

    def _finish(self) -> Member:
        """Normalises the result and applies the epilogue."""
        member, tensor = self._last, self._last.tensor
        at = self._frame.at(self._block.rows[2])
        result = self._states.finished(self._result, self._softmax)
        body = transform(substitute(tensor.body, at), lambda n: result if isinstance(n, Reduce) else None)
        storage = self._storages[tensor.name]
        place = tuple(dim.substitute(at) for dim in member.place)
        lane = self._lanes[tensor.name]
        nest = nest_of(self._others, place, body, storage, self._storages, self._shapes, lane.axis)
        return MapMember(nest, storage.root, (tensor.name, "finish"), serial=True)

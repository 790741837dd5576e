"""Pairs: a contraction joins the contraction or window whose results it sums over.

    inner = window(x, taps);  result = inner weights              a depthwise convolution and the 1 x 1 behind it
    inner = gelu(x weights);  result = inner other weights        the two products of an MLP

Apart, what lies between is written and read as a whole. Together, an iteration computes some rows of both, and what
lies between stays in the cache. That pays where it is large beside the weights, which every iteration reads again.
"""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace

from opweld.fuse.blocks import refusal, users_of
from opweld.fuse.region import Block, Kind, Member, Region, Regions, axes_in, factors, has_lanes, reductions, slides
from opweld.fuse.rows import RowSpace
from opweld.ledger import Alternative, Ledger
from opweld.schedule.cost import (
    GATHER,
    ITERATION,
    LAUNCH,
    Product,
    best_height,
    contraction,
    core_of,
    level_rate,
    padded,
    traffic,
)
from opweld.schedule.expected import LENGTH, Expected
from opweld.target import Target
from opweld.tensor.dim import Axis, Dim, product
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Load, dims_of, loads, walk
from opweld.tensor.program import TensorProgram

HEIGHTS = (1, 2, 3, 4, 6, 7, 8, 12, 14, 16, 24, 28, 32, 48, 56, 64, 96, 128)
"""Rows of a pair that are worth a thought."""
SURE = 0.97
"""A pair that is predicted to take a larger part of the time of two kernels may as well take longer."""
FEW = 8
"""Rows that there may be where nobody knows how many."""


def join_pairs(regions: Regions, expected: Expected, target: Target, ledger: Ledger) -> Regions:
    """The regions with pairs joined where that is predicted to be faster, each a decision in the ledger.

    The contraction that is computed last chooses first."""
    by_output = {name: region for region in regions.regions for name in region.outputs}
    users = users_of(regions)
    kept = {value for _, value in regions.program.outputs}
    gone: set[Region] = set()
    made: dict[Region, Region] = {}
    for last in reversed(regions.regions):
        site = _operand(last, by_output)
        if site is None:
            continue
        first = by_output[site.tensor]
        begins: dict[str, int | str] = {"contraction": "it begins another block"} if last in gone else {}
        failed = begins or refusal(last, site, first, users, kept)
        found = None if failed else _pair(first, site, last)
        if isinstance(found, str):
            failed["rows"] = found
        pair = found if isinstance(found, Region) else None
        if _decide(first, last, pair, failed, regions.program, expected, target, ledger) and pair is not None:
            gone |= {first, last}
            made[last] = pair
    result = tuple(made.get(region, region) for region in regions.regions if region in made or region not in gone)
    return replace(regions, regions=result)


def _operand(last: Region, by_output: dict[str, Region]) -> Load | None:
    """The factor of a contraction that another one, or a window, makes."""
    if last.kind is not Kind.CONTRACTION:
        return None
    for node in factors(reductions(last.members[0].tensor.body)[0]) or ():
        first = by_output.get(node.tensor)
        if first is not None and first.kind in (Kind.CONTRACTION, Kind.WINDOW) and first.outputs == (node.tensor,):
            return node
    return None


def _decide(
    first: Region,
    last: Region,
    pair: Region | None,
    failed: dict[str, int | str],
    program: TensorProgram,
    expected: Expected,
    target: Target,
    ledger: Ledger,
) -> bool:
    alternatives, reason = [Alternative("separate"), Alternative("block")], "a kernel of its own"
    wanted = "separate"
    if pair is not None:
        prices = Prices.of(pair, program, expected, target)
        together = min(map(prices.seconds, prices.heights))
        alternatives = [
            Alternative("separate", bytes=prices.moved, seconds=prices.apart),
            Alternative("block", bytes=0, seconds=together),
        ]
        reason = "what lies between stays in the cache, and weights are read for each block of rows"
        wanted = "block" if together < SURE * prices.apart else "separate"
    choice = ledger.decide(
        rule="fuse.block",
        site=tuple(dict.fromkeys((*first.origin, *last.origin))),
        subject=(first.outputs[0], last.outputs[0]),
        alternatives=alternatives,
        prefer=wanted,
        reason=reason,
        failed=failed,
    )
    return choice == "block"


# ------------------------------------------------------------------------------------------------------------ matching


def _pair(first: Region, site: Load, last: Region) -> Region | str:
    """Both as one block, or what does not fit."""
    member, tensor = first.members[0], last.members[0].tensor
    reduce = reductions(tensor.body)[0]
    if first.kind is Kind.CONTRACTION and slides(reductions(member.tensor.body)[0], set(member.tensor.axes)):
        return f"neighbours in {site.tensor} share what they read"
    common: list[tuple[Axis, Axis]] = []
    columns: list[Axis] = []
    seen: set[Axis] = set()
    read = list(zip(site.indices, member.place, strict=True))
    for dim, own in read:
        axis, made = dim.atom, own.atom
        if _single(dim) and _single(own):
            continue
        if not isinstance(axis, Axis) or not isinstance(made, Axis):
            return f"{last.outputs[0]} reads {site.tensor} at {dim}, which is made at {own}"
        if axis.extent is not made.extent:
            return f"{last.outputs[0]} reads {axis.extent} of the {made.extent} elements of {site.tensor} along an axis"
        if axis in seen or made in seen:
            return f"{last.outputs[0]} reads a diagonal of {site.tensor}"
        seen |= {axis, made}
        if axis in reduce.axes:
            columns.append(axis)
        else:
            common.append((axis, made))
    whole = {axis for axis in member.tensor.axes if axis.extent.constant != 1} <= seen
    if site.guards or not whole or set(columns) != set(reduce.axes):
        return f"{last.outputs[0]} does not sum over whole rows of {site.tensor}"
    if not common:
        return f"{site.tensor} has one row"
    # What slides is computed for whole lines at a time: neighbours on a line share what they read.
    held = common[-1:] if len(common) > 1 and first.kind is Kind.WINDOW else []
    rows = common[: len(common) - len(held)]
    row = len(rows) - 1
    if not all(_straight(region, axis) for region, axis in ((last, rows[row][0]), (first, rows[row][1]))):
        return "addresses are no straight lines along the rows"
    own_rows = tuple({pair[part]: n for n, pair in enumerate(rows)} for part in (1, 0))
    for one, axes in zip((member, last.members[0]), own_rows, strict=True):
        if not has_lanes(one, axes):
            return f"along the columns of {one.tensor.name} lie both of its factors, and lanes along none"
    numbers = {axis: ("row", n) for n, (axis, _) in enumerate(rows)}
    numbers |= {axis: ("column", n) for n, axis in enumerate((*(axis for axis, _ in held), *columns))}
    space = RowSpace(
        tuple(axis.extent for axis, _ in rows), tuple(axis.extent for axis in (*(axis for axis, _ in held), *columns))
    )
    space.places[site.tensor] = tuple(numbers[dim.atom] if isinstance(dim.atom, Axis) else None for dim, _ in read)
    return Region((member, last.members[0]), last.outputs, block=Block(space, row, own_rows))


def _single(dim: Dim) -> bool:
    """Whether an index is 0, as those of axes of extent one are."""
    return dim.constant == 0 or (isinstance(dim.atom, Axis) and dim.atom.extent.constant == 1)


def _straight(region: Region, axis: Axis) -> bool:
    """Whether addresses are straight lines along an axis."""
    member = region.members[0]
    dims = [*member.place, *(dim for node in walk(member.tensor.body) for dim in dims_of(node))]
    return all(dim.coefficient(axis) is not None for dim in dims)


# -------------------------------------------------------------------------------------------------------------- prices


@dataclass(frozen=True)
class Prices:
    """What a pair takes. Of a size that nobody knows few may come, and cores then want work, or many: that counts in
    which the pair does worse."""

    cases: tuple[Pair, ...]

    @staticmethod
    def of(region: Region, program: TensorProgram, expected: Expected, target: Target) -> Prices:
        """Of a block of two."""
        few, many = (Pair.of(region, program, expected, target, unknown) for unknown in (FEW, LENGTH))
        return Prices((many,) if few == many else (many, few))

    @property
    def heights(self) -> list[int]:
        """Rows of a block that are worth a thought."""
        most = min(case.rows for case in self.cases)
        return [height for height in HEIGHTS if height <= most]

    @property
    def apart(self) -> float:
        """Seconds of two kernels."""
        return self.cases[0].apart()

    @property
    def moved(self) -> int:
        """Bytes that two kernels write and read between them."""
        (case, *_) = self.cases
        return 2 * case.dtype.bytes * case.all_rows * case.columns

    def seconds(self, height: int) -> float:
        """Of blocks of so many rows."""
        return self.apart * max(case.seconds(height) / case.apart() for case in self.cases)


@dataclass(frozen=True)
class Pair:
    """A pair in numbers.

    Attributes:
        rows: that blocks are made of. certain: whether that is known. outside: how many times all of them are there.
        held: elements of each row that the contraction does not sum over. columns: those that it sums over.
        reduced: what the first one sums over. results: what comes out for each row. slides: the first one is a window.
        turned: the result is the caller's, where neighbours belong to different rows: lanes run along them, and what
            lies between is gathered.
        again: bytes that every block reads, weights mostly. weights: bytes of all of the model, which passed through
            the caches since these were read.
    """

    rows: int
    certain: bool
    outside: int
    held: int
    columns: int
    reduced: int
    results: int
    slides: bool
    turned: bool
    again: int
    weights: int
    dtype: DType
    target: Target

    @staticmethod
    def of(region: Region, program: TensorProgram, expected: Expected, target: Target, unknown: int) -> Pair:
        """Of a block of two, for expected sizes; `unknown` for each that nobody knows."""
        block, (first, last) = region.block, region.members
        assert block is not None
        summed = reductions(last.tensor.body)[0].axes
        columns = expected.product(axis.extent for axis in summed)
        (site,) = (node for node in loads(last.tensor.body) if node.tensor == first.tensor.name)
        shared = {dim.atom for dim in site.indices}
        held = [axis.extent for axis in last.tensor.axes if axis in shared and axis not in block.rows[1]]
        outside = expected.product(size for n, size in enumerate(block.space.rows) if n != block.row)
        weights = sum(constant.dtype.bytes * math.prod(constant.shape) for constant in program.constants)
        return Pair(
            _size(block.space.rows[block.row : block.row + 1], expected, unknown),
            expected.known(block.space.rows[block.row]) is not None,
            outside,
            _size(held, expected, unknown),
            columns,
            expected.product(axis.extent for axis in reductions(first.tensor.body)[0].axes),
            expected.product(axis.extent for axis in last.tensor.axes if axis not in shared),
            first.kind is Kind.WINDOW,
            _turned(last, shared, region.outputs[0] in {value for _, value in program.outputs}),
            sum(_read_again(m, rows, expected) for m, rows in zip(region.members, block.rows, strict=True)),
            weights,
            last.tensor.dtype,
            target,
        )

    @property
    def all_rows(self) -> int:
        """Rows of the contraction."""
        return self.rows * self.outside * self.held

    def seconds(self, height: int) -> float:
        """Of blocks of so many rows, on all cores."""
        rows, cores = height * self.held, self.target.cores
        blocks = -(-self.rows // height) * self.outside
        size = self.dtype.bytes * rows * self.columns
        between = 0.0 if 2 * size <= self.target.l1_bytes else 2 * size / level_rate(2 * size, self.target)
        each = max(self._arithmetic(rows), traffic(self.again, self.target)) + between
        if self.turned:
            each += GATHER * rows * self.columns / core_of(self.target).hertz
        # Of a number of blocks that nobody knows, cores wait for half of the last turn.
        turns = -(-blocks // cores) if self.certain else (blocks + (cores - 1) / 2) / cores
        # Each core brings all weights, once.
        far = self.again / level_rate(max(self.weights, self.again), self.target)
        return LAUNCH + turns * (each + ITERATION / core_of(self.target).hertz) + far

    def apart(self) -> float:
        """Of two kernels."""
        cores = self.target.cores
        size = self.dtype.bytes * self.all_rows * self.columns
        far = self.again / level_rate(max(self.weights, self.again), self.target)
        return 2 * LAUNCH + (self._arithmetic(self.all_rows) + 2 * traffic(size, self.target) + far) / cores

    def _arithmetic(self, rows: int) -> float:
        """Seconds of both for so many rows on one core."""
        after = Product(self.results, rows, self.columns, 1, self.dtype, self.target)
        seconds = contraction(after, 2, best_height(after, 2)).seconds
        if not self.slides:
            before = Product(self.columns, rows, self.reduced, 1, self.dtype, self.target)
            return seconds + contraction(before, 2, best_height(before, 2)).seconds
        core, lanes = core_of(self.target), self.target.vector_lanes_f32
        vectors = rows * padded(self.columns, lanes) / lanes
        return seconds + vectors * (self.reduced / core.products + 1 / core.stores) / core.hertz


def _read_again(member: Member, rows: Container[Axis], expected: Expected) -> int:
    """Bytes of the factors of a contraction that all rows share: what is of one row is read with it."""
    pair = factors(reductions(member.tensor.body)[0])
    if member.kind is not Kind.CONTRACTION or pair is None:
        return 0
    shared = [node for node in pair if not any(axis in rows for axis in axes_in(node))]
    return sum(node.dtype.bytes * expected.product(axis.extent for axis in axes_in(node)) for node in shared)


def _turned(last: Member, shared: Container[object], fixed: bool) -> bool:
    """Whether neighbours of a result that lies as the caller wants it belong to different rows."""
    long = [dim for dim in last.place if not _single(dim)]
    return fixed and bool(long) and any(axis in shared for axis in long[-1].atoms)


def _size(extents: Sequence[Dim], expected: Expected, unknown: int) -> int:
    """The product of sizes; `unknown` where nobody knows it."""
    known = expected.known(product(extents))
    return unknown if known is None else max(1, known)

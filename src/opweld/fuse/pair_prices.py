"""What two members in one kernel take beside two kernels: closed forms over expected sizes.

    apart      2 launches + (arithmetic + what lies between, written and read) / cores + weights
    together   launch + turns of the cores * (max(arithmetic of a block, what its rows share) + what lies between)

Rows of the first member that neighbouring blocks both need, as those under a window that slides, are computed by each.
What is done element by element and what is done with a row is the same apart and together, and not counted.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

from opweld.fuse.region import Kind, Member, Reach, Region, axes_in, dot_of, factors, reductions, steps_of
from opweld.schedule.cost import (
    GATHER,
    ITERATION,
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
from opweld.tensor.expr import loads
from opweld.tensor.program import TensorProgram

HEIGHTS = (1, 2, 3, 4, 6, 7, 8, 12, 14, 16, 24, 28, 32, 48, 56, 64, 96, 128)
"""Rows of a pair that are worth a thought."""
FEW = 8
"""Rows that there may be where nobody knows how many."""


@dataclass(frozen=True)
class PairPrices:
    """What a pair takes. Of a size that nobody knows few may come, and cores then want work, or many: that counts in
    which the pair does worse."""

    cases: tuple[Pair, ...]

    @staticmethod
    def of(region: Region, program: TensorProgram, expected: Expected, target: Target) -> PairPrices:
        """Of a block of two."""
        few, many = (Pair.of(region, program, expected, target, unknown) for unknown in (FEW, LENGTH))
        return PairPrices((many,) if few == many else (many, few))

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
        return 2 * self.cases[0].between

    def seconds(self, height: int) -> float:
        """Of blocks of so many rows."""
        return self.apart * max(case.seconds(height) / case.apart() for case in self.cases)


@dataclass(frozen=True)
class Part:
    """One member in numbers: for each row, `beside` times `lanes` results, each of so many elements of a type. `kind`:
    how they are computed; `dot`: as for a `Product`."""

    kind: Kind
    dtype: DType
    lanes: int = 1
    beside: int = 1
    reduced: int = 1
    dot: str = ""

    def seconds(self, rows: int, target: Target) -> float:
        """Of so many rows on one core; 0 of what is the same apart."""
        if self.kind is Kind.CONTRACTION:
            shape = Product(self.lanes, rows * self.beside, self.reduced, 1, self.dtype, target, dot=self.dot)
            return contraction(shape, 2, best_height(shape, 2)).seconds
        if self.kind is not Kind.WINDOW:
            return 0.0
        core, lanes = core_of(target), target.vector_lanes_f32
        vectors = rows * self.beside * padded(self.lanes, lanes) / lanes
        return vectors * (self.reduced / core.products + 1 / core.stores) / core.hertz


@dataclass(frozen=True)
class Pair:
    """A pair in numbers.

    Attributes:
        rows: that blocks are made of. certain: whether that is known. outside: how many times all of them are there.
        parts: both members. reach: the rows of the first one that a block computes. made: how many of them there are.
        each: elements of one of those, that the other member reads.
        turned: the result is the caller's, where neighbours belong to different rows: lanes run along them, and what
            lies between is gathered.
        again: bytes that every block reads, weights mostly. weights: bytes of all of the model, which passed through
            the caches since these were read.
    """

    rows: int
    certain: bool
    outside: int
    parts: tuple[Part, Part]
    reach: Reach
    made: int
    each: int
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
        extent = block.space.rows[block.row]
        outside = expected.product(size for n, size in enumerate(block.space.rows) if n != block.row)
        rows = _size((extent,), expected, unknown)
        made = next(axis for axis, n in block.rows[0].items() if n == block.row).extent
        parts = (
            _part(first, block.rows[0], block.row, _summed(last), expected, unknown),
            _part(last, block.rows[1], block.row, (), expected, unknown),
        )
        own = [axis.extent for axis in first.tensor.axes if axis not in block.rows[0]]
        return Pair(
            rows,
            expected.known(extent) is not None,
            outside,
            parts,
            block.reach,
            rows if made is extent else _size((made,), expected, unknown),
            _size(own, expected, unknown),
            region.outputs[0] in {value for _, value in program.outputs} and _turned(last, first.tensor.name),
            sum(_read_again(m, rows, expected) for m, rows in zip(region.members, block.rows, strict=True)),
            program.constant_bytes,
            first.tensor.dtype,
            target,
        )

    @property
    def between(self) -> int:
        """Bytes of all that lies between."""
        return self.dtype.bytes * self.made * self.outside * self.each

    def seconds(self, height: int) -> float:
        """Of blocks of so many rows, on all cores."""
        cores, first = self.target.cores, min(self.made, self.reach.rows(height))
        blocks = -(-self.rows // height) * self.outside
        size = self.dtype.bytes * first * self.each
        between = 0.0 if 2 * size <= self.target.l1_bytes else 2 * size / level_rate(2 * size, self.target)
        each = max(self._arithmetic(first, height), traffic(self.again, self.target)) + between
        if self.turned:
            each += GATHER * first * self.each / core_of(self.target).hertz
        # Of a number of blocks that nobody knows, cores wait for half of the last turn.
        turns = -(-blocks // cores) if self.certain else (blocks + (cores - 1) / 2) / cores
        core = core_of(self.target)
        return core.launch + turns * (each + ITERATION / core.hertz) + self._far

    def apart(self) -> float:
        """Of two kernels."""
        arithmetic = self._arithmetic(self.made * self.outside, self.rows * self.outside)
        moved = 2 * traffic(self.between, self.target) + self._far
        return 2 * core_of(self.target).launch + (arithmetic + moved) / self.target.cores

    @property
    def _far(self) -> float:
        """Seconds in which a core brings all weights, once."""
        return self.again / level_rate(max(self.weights, self.again), self.target)

    def _arithmetic(self, first: int, last: int) -> float:
        """Seconds of so many rows of each on one core."""
        counts = zip(self.parts, (first, last), strict=True)
        return sum(part.seconds(rows, self.target) for part, rows in counts)


def _part(
    member: Member, rows: Container[Axis], row: int, summed: Container[Dim], expected: Expected, unknown: int
) -> Part:
    """A member in numbers. Lanes run along what the rows share; of a window along what its reader sums over, if any."""
    if member.kind not in (Kind.CONTRACTION, Kind.WINDOW):
        return Part(member.kind, member.tensors[-1].dtype)
    node = reductions(member.tensor.body)[0]
    own = [axis for axis in member.tensor.axes if axis not in rows and axis.extent.constant != 1]
    pair = factors(node) if member.kind is Kind.CONTRACTION else None
    if pair is not None:
        moving = next((load for load in pair if any(axis in rows for axis in axes_in(load))), pair[0])
        lanes = [axis for axis in own if axis not in axes_in(moving)]
    else:
        lanes = [axis for axis in own if axis.extent in summed] or own[:1]
    beside = [axis.extent for axis in own if axis not in lanes]
    reduced = steps_of(node, expected)
    return Part(
        member.kind,
        node.dtype,
        expected.product(axis.extent for axis in lanes),
        _size(beside, expected, unknown),
        reduced,
        dot_of(node),
    )


def _summed(last: Member) -> tuple[Dim, ...]:
    """The extents over which a contraction sums."""
    if last.kind is not Kind.CONTRACTION:
        return ()
    return tuple(axis.extent for axis in reductions(last.tensor.body)[0].axes)


def _read_again(member: Member, rows: Container[Axis], expected: Expected) -> int:
    """Bytes of the factors of a contraction that all rows share: what is of one row is read with it."""
    if member.kind is not Kind.CONTRACTION:
        return 0
    pair = factors(reductions(member.tensor.body)[0])
    shared = [node for node in pair or () if not any(axis in rows for axis in axes_in(node))]
    return sum(node.dtype.bytes * expected.product(axis.extent for axis in axes_in(node)) for node in shared)


def _turned(last: Member, between: str) -> bool:
    """Whether neighbours in the result of a contraction belong to different rows of what lies between."""
    if last.kind is not Kind.CONTRACTION:
        return False
    shared = {dim.atom for node in loads(last.tensor.body) if node.tensor == between for dim in node.indices}
    long = [dim for dim in last.place if not single(dim)]
    return bool(long) and any(axis in shared for axis in long[-1].atoms)


def single(dim: Dim) -> bool:
    """Whether an index is 0, as those of axes of extent one are."""
    return dim.constant == 0 or (isinstance(dim.atom, Axis) and dim.atom.extent.constant == 1)


def _size(extents: Sequence[Dim], expected: Expected, unknown: int) -> int:
    """The product of sizes; `unknown` where nobody knows it."""
    known = expected.known(product(extents))
    return unknown if known is None else max(1, known)

"""Chooses the axis that vector lanes run along, and how many vectors a tile has: once for each reduction.

Storage, packing and kernels follow this choice: the axis is innermost in the result, operands are packed along it, and
registers hold adjacent elements on it. The cost of an axis: unused lanes of partial vectors, results that are stored
one by one because their storage is the caller's, operands that must be copied or gathered.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from opweld.fuse.region import Kind, Member, addressed, axes_in, dot_of, factors, reductions, steps_of
from opweld.ledger import Alternative, Ledger
from opweld.place.winograd import seconds_by_winograd, taps_of, tiled
from opweld.schedule.cost import (
    SCATTER,
    Product,
    best_height,
    contraction,
    copy_cycles,
    core_of,
    load_cycles,
    misses,
    most_rows,
    padded,
    store_cycles,
    traffic,
)
from opweld.schedule.expected import LENGTH, Expected
from opweld.schedule.schedule import WIDEST
from opweld.target import Target
from opweld.tensor.dim import ONE, Axis, Dim, product
from opweld.tensor.dtype import DType
from opweld.tensor.expr import Load, Reduce, loads
from opweld.tensor.program import Tensor


@dataclass(frozen=True, eq=False)
class Lanes:
    """The lane axis of a reduction, and the vectors of a tile.

    Attributes:
        axis: a free axis of the tensor; None if all have extent one.
        vectors: from one to `WIDEST`.
        along: the operand of a contraction that is loaded as vectors. across: the one that is broadcast to all lanes.
        winograd: the constant of transformed weights of a convolution by Winograd's algorithm.
    """

    axis: Axis | None
    vectors: int
    along: Load | None = None
    across: Load | None = None
    winograd: str = ""


def lane_position(member: Member, lanes: Lanes) -> int | None:
    """The axis of a member's value along which its lanes run."""
    axis = lanes.axis
    return None if axis is None else next(p for p, index in enumerate(member.place) if index.depends_on(axis))


def lanes_last(member: Member, lanes: Lanes) -> tuple[int, ...]:
    """The axes of a member's value in their order, with the one along which its lanes run last."""
    position = lane_position(member, lanes)
    natural = range(len(member.place))
    return (*(p for p in natural if p != position), *(() if position is None else (position,)))


@dataclass(frozen=True)
class Memory:
    """Storage known when lanes are chosen: each value's axis order, and which values have the caller's storage.

    `constants` can be packed in any way at compile time, and have `constant_bytes` together. `transforms`: convolutions
    may be computed by Winograd's algorithm."""

    orders: Mapping[str, tuple[int, ...]]
    shapes: Mapping[str, tuple[Dim, ...]]
    fixed: frozenset[str]
    constants: frozenset[str]
    constant_bytes: int
    transforms: bool

    def contiguous(self, node: Load, axis: Axis) -> bool:
        """Whether the loaded value is contiguous along the axis."""
        return self.stride(node, axis) is ONE

    def stride(self, node: Load, axis: Axis) -> Dim | None:
        """How far apart the loaded elements are in memory from one index of the axis to the next; None: not in the
        innermost dimension of memory alone."""
        order = self.orders.get(node.tensor, tuple(range(len(node.indices))))
        long = [p for p in order if self.shapes[node.tensor][p].constant != 1]
        if not long or any(node.indices[p].depends_on(axis) for p in long[:-1]):
            return None
        return node.indices[long[-1]].coefficient(axis)


@dataclass(frozen=True)
class Candidate:
    """A lane axis, its operands for a contraction, and its cost."""

    axis: Axis
    seconds: float
    why: str
    along: Load | None = None
    across: Load | None = None


def choose_lanes(
    member: Member,
    axes: Sequence[Axis],
    memory: Memory,
    expected: Expected,
    target: Target,
    ledger: Ledger,
    field: tuple[str, str],
) -> Lanes:
    """The lanes of a contraction or window, along one of the axes.

    field: their part of a schedule, see `Ledger.decide`."""
    found = candidates(member, axes, memory, expected, target)
    if not found:
        return Lanes(None, 1)
    tensor, node = member.tensor, reductions(member.tensor.body)[0]
    own = _own(tensor)
    chosen = ledger.decide(
        rule="schedule.lane",
        site=tensor.origin,
        subject=(tensor.name,),
        alternatives=[Alternative(c.axis.name, seconds=c.seconds) for c in found],
        reason=min(found, key=lambda c: c.seconds).why,
        field=field,
        constant=(weights := _weights(node, memory, expected)),
    )
    lane = next(c for c in found if c.axis.name == chosen)
    rows = None if lane.across is None else [a for a in own if a in axes_in(lane.across) and a is not lane.axis]
    held = 0 if not weights or lane.along is None else lane.along.dtype.bytes * expected.product(memory.shapes[weights])
    vectors = _choose_vectors(tensor, lane, rows, node, expected, target, ledger, field, weights, held)
    return Lanes(lane.axis, vectors, lane.along, lane.across)


def candidates(
    member: Member, axes: Sequence[Axis], memory: Memory, expected: Expected, target: Target
) -> list[Candidate]:
    """What the lanes of a contraction or window may run along, of these axes, and what each takes."""
    tensor = member.tensor
    pair = factors(reductions(tensor.body)[0]) if member.kind is Kind.CONTRACTION else None
    storing = partial(_storing, _stored(tensor, member.place, memory), tensor=tensor, expected=expected, target=target)
    if pair is not None:
        found = _of_contraction(tensor, pair, storing, memory, expected, target)
    else:
        found = _of_window(tensor, storing, memory, expected, target)
    return [candidate for candidate in found if candidate.axis in axes]


def _own(tensor: Tensor) -> list[Axis]:
    """The axes that may have more than one element."""
    return [axis for axis in tensor.axes if axis.extent.constant != 1]


def _weights(node: Reduce, memory: Memory, expected: Expected) -> str:
    """The largest constant that a reduction reads, which is stored as its lanes run; "" where it reads none."""
    names = dict.fromkeys(site.tensor for site in loads(node.body) if site.tensor in memory.constants)
    return max(names, key=lambda name: expected.product(memory.shapes[name]), default="")


def _stored(tensor: Tensor, place: tuple[Dim, ...], memory: Memory) -> Dim | None:
    """The index of the result along memory, if its storage is fixed; None if it follows the lanes."""
    if tensor.name not in memory.fixed:
        return None
    return next((dim for dim in reversed(place) if any(dim.depends_on(axis) for axis in _own(tensor))), None)


def _storing(stored: Dim | None, axis: Axis, tensor: Tensor, expected: Expected, target: Target) -> float:
    """Seconds that storing a result takes more because its lanes are no neighbours in memory."""
    stride = ONE if stored is None else stored.coefficient(axis)
    if stride is ONE:
        return 0.0
    elements, extent = expected.product(a.extent for a in tensor.axes), max(1, expected(axis.extent))
    lanes = target.vector_lanes_f32
    vectors = elements / extent * padded(extent, lanes) / lanes
    return vectors * store_cycles(stride, lanes, tensor.dtype) / core_of(target).hertz


def _of_contraction(
    tensor: Tensor,
    pair: tuple[Load, Load],
    storing: Callable[[Axis], float],
    memory: Memory,
    expected: Expected,
    target: Target,
) -> list[Candidate]:
    """Axes of only one factor: elements of the other factor are broadcast."""
    own, node = _own(tensor), reductions(tensor.body)[0]
    found: list[Candidate] = []
    elements = expected.product(axis.extent for axis in own)
    for along, across in (pair, pair[::-1]):
        for axis in own:
            if axis in axes_in(across) or axis not in addressed(along):
                continue
            rows = [a for a in own if a is not axis and a in axes_in(across)]
            extent = expected(axis.extent)
            # If the size is unknown, half of the last vector is wasted on average.
            spare = target.vector_lanes_f32 // 2 if expected.known(axis.extent) is None else 0
            count = _rows(across, rows, expected)
            shape = Product(
                extent + spare,
                count,
                _steps(node, along, memory, expected),
                max(1, elements // max(1, extent * count)),
                node.dtype,
                target,
                dot=dot_of(node),
            )
            counts = _counts(extent, target)
            seconds = min(contraction(shape, v, best_height(shape, v)).seconds for v in counts)
            why = "only one factor depends on it"
            if along.tensor in memory.constants:
                why = "the weights depend on it, and are packed at compile time"
            elif not memory.contiguous(along, axis):
                apart = [a.extent for a in rows if a not in axes_in(along)]
                times = min(row_tiles(apart, v, node.dtype, expected, target) for v in counts)
                stride, lanes = memory.stride(along, axis), target.vector_lanes_f32
                loaded, copied = load_cycles(stride, lanes) / lanes * times, copy_cycles(stride, lanes)
                moved = expected.product(a.extent for a in axes_in(along))
                seconds += min(loaded, copied) * moved / core_of(target).hertz
                why = f"one factor alone runs along it, and is {'gathered' if loaded < copied else 'copied'} so"
            scattering = storing(axis)
            seconds += scattering
            columns = _walks(across, rows, node, memory, expected)
            held = across.dtype.bytes * expected.product(memory.shapes[across.tensor])
            seconds += misses(columns, held, target)
            if scattering == 0.0:
                seconds = min(seconds, _by_winograd(tensor, axis, along, across, memory, expected, target))
            found.append(Candidate(axis, seconds, why, along, across))
    # At equal cost the last axis: most readers, such as softmax, iterate over it.
    return sorted(found, key=lambda c: -own.index(c.axis))


def _by_winograd(
    tensor: Tensor, lane: Axis, along: Load, across: Load, memory: Memory, expected: Expected, target: Target
) -> float:
    """Seconds by Winograd's algorithm, with tiles as wide as most; infinite where that cannot be."""
    taps = taps_of(tensor, lane, along, across) if memory.transforms and along.tensor in memory.constants else None
    if taps is None or not memory.contiguous(across, taps.channel):
        return math.inf
    vectors = min(2, _counts(expected(lane.extent), target)[-1])
    return seconds_by_winograd(tiled(tensor, lane, vectors, taps, memory.constant_bytes, expected, target))


def _steps(node: Reduce, along: Load, memory: Memory, expected: Expected) -> int:
    """Multiply-adds of a sum for each result. What is no constant is not packed in words: each product is one of its
    own, of numbers that were widened before."""
    if dot_of(node) and along.tensor not in memory.constants:
        return expected.product(axis.extent for axis in node.axes)
    return steps_of(node, expected)


def _rows(across: Load, rows: Sequence[Axis], expected: Expected) -> int:
    """The rows of a tile: of all axes if the operand is read at each of them unchanged, since those are fused to one
    axis of the nest; else of the longest."""
    if all(any(index is axis.dim for index in across.indices) for axis in rows):
        return expected.product(axis.extent for axis in rows)
    return max((expected(axis.extent) for axis in rows), default=1)


def row_tiles(rows: Sequence[Dim], vectors: int, dtype: DType, expected: Expected, target: Target) -> int:
    """The number of tiles of rows of these extents, and so of the times that they read an element of the vectorised
    operand. A tile has rows of the longest; an unknown number is assumed to be large."""
    sizes = [expected(extent) for extent in rows]
    known = expected.known(product(rows))
    longest = max([*sizes, LENGTH if known is None else 1])
    return math.prod(sizes) // max([*sizes, 1]) * -(-longest // most_rows(vectors, dtype, target))


def scattered(elements: int, extent: int, target: Target) -> float:
    """Cycles of storing the elements of vectors along an axis one by one; unused lanes cost as much."""
    return SCATTER * elements / max(1, extent) * padded(max(1, extent), target.vector_lanes_f32)


def _walks(across: Load, rows: Sequence[Axis], node: Reduce, memory: Memory, expected: Expected) -> int:
    """The number of memory streams of a row's elements, if adjacent elements belong to other rows; a reduction along
    memory is one stream."""
    order = memory.orders.get(across.tensor, tuple(range(len(across.indices))))
    long = [p for p in order if memory.shapes[across.tensor][p].constant != 1]
    if not long or not any(across.indices[long[-1]].depends_on(row) for row in rows):
        return 1
    return expected.product(axis.extent for axis in node.axes if not across.indices[long[-1]].depends_on(axis))


def _of_window(
    tensor: Tensor,
    storing: Callable[[Axis], float],
    memory: Memory,
    expected: Expected,
    target: Target,
) -> list[Candidate]:
    """Any axis: operands that are not contiguous along it are gathered, constants are stored to match."""
    own, node = _own(tensor), reductions(tensor.body)[0]
    found: list[Candidate] = []
    elements = expected.product(axis.extent for axis in own)
    taps = expected.product(axis.extent for axis in node.axes)
    sites = loads(node.body)
    each = target.registers_each(node.dtype)
    for axis in reversed(own):
        extent = max(1, expected(axis.extent))
        vectors = elements // extent * padded(extent, target.vector_lanes_f32) / target.vector_lanes_f32
        cycles = vectors * taps * each
        for site in sites:
            if axis in axes_in(site) and site.tensor not in memory.constants and not memory.contiguous(site, axis):
                cycles += vectors * taps * load_cycles(memory.stride(site, axis), target.vector_lanes_f32)
        # Along an axis of a sliding window, vectors are not aligned, and taps beyond the edges are masked.
        if any(axis in axes_in(site) and _mixed(site, axis, node.axes) for site in sites):
            cycles += 0.5 * vectors * taps * each
        seconds = cycles / core_of(target).hertz + storing(axis)
        found.append(Candidate(axis, seconds, "operands are contiguous along it"))
    return found


def _mixed(site: Load, axis: Axis, reduced: tuple[Axis, ...]) -> bool:
    return any(dim.depends_on(axis) and any(dim.depends_on(r) for r in reduced) for dim in site.indices)


def _counts(extent: int, target: Target) -> range:
    return range(1, min(WIDEST, -(-max(1, extent) // target.vector_lanes_f32)) + 1)


def _choose_vectors(
    tensor: Tensor,
    lane: Candidate,
    rows: list[Axis] | None,
    node: Reduce,
    expected: Expected,
    target: Target,
    ledger: Ledger,
    field: tuple[str, str],
    weights: str,
    held: int,
) -> int:
    extent = expected(lane.axis.extent)
    counts = range(1, WIDEST + 1) if lane.axis.extent.constant is None else _counts(extent, target)
    if rows is None:
        # A window shares its loads between taps, not between vectors: two hide the latency.
        prices = {str(count): (2 * abs(count - 2) + 1) * 1e-9 for count in counts}
    else:
        sizes = [axis.extent for axis in rows]
        # Of few rows weights are read as fast as memory gives them, however many vectors a tile has.
        floor = traffic(held, target) if expected.elsewhere(sizes) else 0.0

        def seconds(at: Expected) -> dict[str, float]:
            shape = Product(
                max(extent, WIDEST * target.vector_lanes_f32) if expected.known(lane.axis.extent) is None else extent,
                at.product(sizes),
                steps_of(node, expected),
                1,
                node.dtype,
                target,
                dot=dot_of(node),
            )
            times = {count: contraction(shape, count, best_height(shape, count)).seconds for count in counts}
            return {str(count): max(floor, time) * _breadth(count) for count, time in times.items()}

        prices = expected.weighed(sizes, seconds)
    chosen = ledger.decide(
        rule="schedule.vectors",
        site=tensor.origin,
        subject=(tensor.name,),
        alternatives=[Alternative(count, seconds=price) for count, price in prices.items()],
        reason="tiles this wide waste the fewest lanes and wait the least",
        field=field,
        constant=weights,
    )
    return int(chosen)


def _breadth(vectors: int) -> float:
    """Wider tiles have fewer rows and read the other operand more often; two vectors are the best measured
    compromise."""
    return 1 + 0.01 * abs(vectors - 2)

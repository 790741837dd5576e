"""Split-K: long reductions are computed in parts, each by a kernel of its own, with partial sums in memory.

    result = f(rows weights)    becomes    sums = rows[:, :k] weights[:k];  result = f(sums + rows[:, k:] weights[k:])

With few rows and many reduced elements, a part of the rows stays in the second-level cache while its weights pass, and
all weights are read once. With many rows, dividing them among cores does as well (`schedule.span`).
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, replace
from typing import cast

from opweld.fuse.region import Kind, Region, axes_in, reductions
from opweld.ledger import Alternative, Ledger
from opweld.place.lanes import Lanes
from opweld.place.placed import Placed
from opweld.place.storage import dense
from opweld.schedule.cost import KEPT, ROOM, core_of, passes
from opweld.schedule.expected import Expected
from opweld.target import Target
from opweld.tensor.axes import by_stride, replace_reduced
from opweld.tensor.dim import Atom, Axis, Dim
from opweld.tensor.expr import Expr, Load, binary, load, substitute, transform
from opweld.tensor.program import Tensor, unused

PARTS = (2, 3, 4, 6, 8)
"""The candidate numbers of parts."""
SHORTEST = 512
"""The least number of elements of a part, except the last, since accumulators are loaded and stored for each."""
SURE = 0.97
"""The largest fraction of waiting time for which splitting is considered."""
WHOLE = 64
"""The granularity of parts, so that trip counts are multiples; also the least size of the last part."""


def split_k(placed: Placed, expected: Expected, target: Target, ledger: Ledger) -> Placed:
    """Splits contractions where that is predicted to be faster, each a decision of the ledger.

    A part has the lanes of the whole. If partial sums have the layout of the result, `reuse` computes it in place."""
    storages, lanes = dict(placed.storages), dict(placed.lanes)
    regions: list[Region] = []
    for region in placed.regions:
        axis = _long(region, placed)
        size = 0 if axis is None else _choose(region, axis, placed, expected, target, ledger)
        if axis is None or not size:
            regions.append(region)
            continue
        member, (output,) = region.members[0], region.outputs
        whole, own = member.tensor, lanes[member.tensor.name]
        walked = by_stride(whole.axes, storages[output].address(member.place))
        order = [whole.axes.index(a) for a in sorted(walked, key=lambda a: a is own.axis)]
        *parts, (last, mapping) = _parts(whole, axis, size, storages)
        lanes[whole.name] = _moved(own, mapping)
        for number, (part, mapping) in enumerate(parts):
            ledger.set_label(part.name, f"{ledger.label(whole.name)} sums-{number}")  # unlike any node's value
            storages[part.name] = dense(part.name, part.dtype, part.shape, order)
            lanes[part.name] = _moved(own, mapping)
            _tell(part, own, ledger)
            regions.append(Region.single(Kind.CONTRACTION, (part,), (part.name,)))
        regions.append(replace(region, members=(replace(member, tensors=(last,)),)))
    return replace(placed, regions=tuple(regions), storages=storages, lanes=lanes)


def _long(region: Region, placed: Placed) -> Axis | None:
    """The long reduced axis of a contraction of direct products; None if there is none."""
    if region.kind is not Kind.CONTRACTION or len(region.outputs) != 1:
        return None
    tensor = region.members[0].tensor
    lanes = placed.lanes.get(tensor.name)
    if lanes is None or lanes.along is None or lanes.across is None or lanes.winograd:
        return None
    (axis, *others) = reductions(tensor.body)[0].axes
    return None if others or (axis.extent.constant or 0) < 2 * SHORTEST else axis


@dataclass(frozen=True)
class _Work:
    """The figures of a contraction for prices, at the expected sizes and in bytes: its rows, a panel of weights and
    their number, its result; and how many times all of that is computed."""

    operand: int
    panel: int
    columns: int
    result: int
    repeats: int

    @staticmethod
    def of(tensor: Tensor, axis: Axis, placed: Placed, expected: Expected, target: Target) -> _Work:
        """The figures of a contraction over the axis."""
        lanes, each = placed.lanes[tensor.name], reductions(tensor.body)[0].dtype.bytes
        assert lanes.along is not None and lanes.across is not None
        along, across = axes_in(lanes.along), axes_in(lanes.across)
        rows = expected.product(a.extent for a in tensor.axes if a not in along)
        lane = expected.product(a.extent for a in tensor.axes if a not in across)
        repeats = expected.product(a.extent for a in tensor.axes if a in along and a in across)
        width = lanes.vectors * target.vector_lanes_f32
        # Overlapping rows are read once.
        whole = expected.product(placed.shapes[lanes.across.tensor]) // max(1, repeats)
        operand = each * min(rows * int(axis.extent), whole)
        return _Work(operand, each * int(axis.extent) * width, -(-lane // width), each * rows * lane, repeats)

    def seconds(self, count: int, target: Target) -> float:
        """Seconds of waiting for memory, with this many parts."""
        core = core_of(target)
        once = passes(self.operand / count, self.panel / count, self.columns, 1, target)
        # Partial sums are written and read once for each part but one, through memory if they do not fit.
        rate = core.l2_bytes if self.result <= target.l2_bytes else core.dram_bytes
        between = 2 * self.result / rate / core.hertz + core.launch
        return self.repeats * (count * once + (count - 1) * between)


def _choose(region: Region, axis: Axis, placed: Placed, expected: Expected, target: Target, ledger: Ledger) -> int:
    """Elements of a part; 0 if not split."""
    tensor, extent = region.members[0].tensor, int(axis.extent)
    work = _Work.of(tensor, axis, placed, expected, target)
    if work.panel * work.columns <= ROOM * target.l2_bytes:
        return 0  # nothing is read twice: the weights stay in cache while rows pass
    prices = {1: work.seconds(1, target)}
    if work.operand > KEPT * target.l2_bytes:
        for count in PARTS:
            size = _size(extent, count)
            if size >= SHORTEST and (extent % size >= WHOLE or not extent % size):
                prices[count] = work.seconds(count, target)
    best = min(prices, key=lambda count: prices[count])
    sure = prices[best] < SURE * prices[1]
    chosen = ledger.decide(
        rule="place.split_k",
        site=region.origin,
        subject=(tensor.name,),
        alternatives=[Alternative(str(count), seconds=seconds) for count, seconds in prices.items()],
        prefer=str(best) if sure else "1",
        reason="a part of the rows stays in the second-level cache while weights pass"
        if sure
        else "the rows stay in the second-level cache, or parts of them would not either",
    )
    return 0 if chosen == "1" else _size(extent, int(chosen))


def _tell(part: Tensor, lanes: Lanes, ledger: Ledger) -> None:
    """Records in the ledger what a part takes over from the whole."""
    assert lanes.axis is not None
    for rule, taken in (("schedule.lane", lanes.axis.name), ("schedule.vectors", str(lanes.vectors))):
        ledger.decide(
            rule=rule,
            site=part.origin,
            subject=(part.name,),
            alternatives=[Alternative(taken)],
            reason="its packed operand and what is summed so far are those of the whole",
            field=(part.name, "member 0"),
        )


def _size(extent: int, count: int) -> int:
    return -(-extent // count // WHOLE) * WHOLE


def _moved(lanes: Lanes, mapping: Mapping[Atom, Dim]) -> Lanes:
    """Lanes whose operands are those of a part."""
    assert lanes.along is not None and lanes.across is not None
    along, across = (cast(Load, substitute(node, mapping)) for node in (lanes.along, lanes.across))
    return replace(lanes, along=along, across=across)


def _parts(whole: Tensor, axis: Axis, size: int, taken: Container[str]) -> list[tuple[Tensor, Mapping[Atom, Dim]]]:
    """The partial sums, then the tensor itself, with the position of the axis in each. `taken`: names in use."""
    found: list[tuple[Tensor, Mapping[Atom, Dim]]] = []
    extent = int(axis.extent)
    for low in range(0, extent, size):
        part = Axis(axis.name, min(size, extent - low))
        mapping: dict[Atom, Dim] = {axis: part.dim + low}
        body = replace_reduced(whole.body, (axis,), (part,), mapping)
        node: Expr = reductions(body)[0]
        value = node
        if found:
            value = binary("add", load(found[-1][0].name, node.dtype, tuple(a.dim for a in whole.axes)), node)
        if low + size >= extent:
            body = transform(body, lambda n, node=node, value=value: value if n is node else None)
            return [*found, (replace(whole, body=body), mapping)]
        name = unused(f"{whole.name}_sums{len(found)}", taken)
        found.append((Tensor(name, node.dtype, whole.axes, value, whole.origin), mapping))
    raise AssertionError("no part is last")

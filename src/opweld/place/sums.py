"""Long sums are computed part by part, each by a kernel of its own, what is summed so far in memory between.

    result = f(rows weights)    becomes    sums = rows[:, :k] weights[:k];  result = f(sums + rows[:, k:] weights[k:])

Of few rows over many reduced elements a part stays in the second-level cache while its weights pass, and all weights
are read once. Where there are many rows, cores that take some of them each do as well (`schedule.span`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from opweld.fuse.region import Kind, Region, axes_in, reductions
from opweld.ledger import Alternative, Ledger
from opweld.place.lanes import Lanes
from opweld.place.placed import Placed
from opweld.place.storage import dense
from opweld.schedule.cost import LAUNCH, level_rate, passes
from opweld.schedule.expected import Expected
from opweld.target import Target
from opweld.tensor.axes import by_stride, replace_reduced
from opweld.tensor.dim import Axis
from opweld.tensor.expr import Expr, binary, load, transform
from opweld.tensor.program import Tensor

PARTS = (1, 2, 3, 4, 6, 8)
"""In how many parts a sum is worth being cut."""
SHORTEST = 512
"""Elements that a part has at least: before and after them, accumulators are filled and emptied."""
WHOLE = 64
"""Elements of which parts are multiples, so that loops over them are; the last one has as many at least."""


def part_sums(placed: Placed, expected: Expected, target: Target, ledger: Ledger) -> Placed:
    """Contractions in parts where that is predicted to be faster, each a decision of the ledger.

    Lanes of a part are those of the whole, and so is its storage where that is a value's own: what comes last is then
    computed in place."""
    storages, lanes = dict(placed.storages), dict(placed.lanes)
    given = {name for _, name in placed.program.outputs}
    regions: list[Region] = []
    for region in placed.regions:
        axis = _long(region, lanes)
        size = 0 if axis is None else _choose(region, axis, lanes, expected, target, ledger)
        if axis is None or not size:
            regions.append(region)
            continue
        member, (output,) = region.members[0], region.outputs
        whole, own = member.tensor, storages[output]
        alike = member.indices is None and own.root == output and not own.padded and output not in given
        order = [whole.axes.index(a) for a in by_stride(whole.axes, own.address(member.place))]
        *parts, last = _parts(whole, axis, size)
        for number, part in enumerate(parts):
            ledger.call(part.name, f"{ledger.label(whole.name)} sums {number}")
            made = replace(own, root=part.name) if alike else dense(part.name, part.dtype, part.shape, order)
            storages[part.name], lanes[part.name] = made, lanes[whole.name]
            _tell(part, lanes[whole.name], ledger)
            regions.append(Region.single(Kind.CONTRACTION, (part,), (part.name,)))
        regions.append(replace(region, members=(replace(member, tensors=(last,)),)))
    return replace(placed, regions=tuple(regions), storages=storages, lanes=lanes)


def _long(region: Region, lanes: Mapping[str, Lanes]) -> Axis | None:
    """The axis over which a contraction of direct products sums for long; None where there is none."""
    if region.kind is not Kind.CONTRACTION or len(region.outputs) != 1:
        return None
    tensor = region.members[0].tensor
    own = lanes.get(tensor.name)
    if own is None or own.axis is None or own.along is None or own.across is None or own.winograd:
        return None
    axes = reductions(tensor.body)[0].axes
    return axes[0] if len(axes) == 1 and (axes[0].extent.constant or 0) >= 2 * SHORTEST else None


def _choose(
    region: Region, axis: Axis, lanes: Mapping[str, Lanes], expected: Expected, target: Target, ledger: Ledger
) -> int:
    """Elements of a part; 0 where the sum is one."""
    tensor = region.members[0].tensor
    own, extent, node = lanes[tensor.name], int(axis.extent), reductions(tensor.body)[0]
    assert own.along is not None and own.across is not None
    along, across = axes_in(own.along), axes_in(own.across)
    rows = expected.product(a.extent for a in tensor.axes if a not in along)
    lane = expected.product(a.extent for a in tensor.axes if a not in across)
    again = expected.product(a.extent for a in tensor.axes if a in along and a in across)
    width = own.vectors * target.vector_lanes_f32
    result = node.dtype.bytes * rows * lane
    # What is summed so far is written, and read once more.
    between = 2 * result / level_rate(result if result <= target.l2_bytes else target.l3_bytes + 1, target)
    prices: dict[str, float] = {}
    for count in PARTS:
        size = _size(extent, count)
        if count > 1 and (size < SHORTEST or (extent % size < WHOLE and extent % size)):
            continue
        operand, panel = node.dtype.bytes * rows * size, node.dtype.bytes * size * width
        once = passes(operand, panel, -(-lane // width), 1, target)
        prices[str(count)] = again * (count * once + (count - 1) * (between + LAUNCH))
    best = min(prices, key=lambda count: prices[count])
    chosen = ledger.decide(
        rule="place.sums",
        site=region.origin,
        subject=(tensor.name,),
        alternatives=[Alternative(count, seconds=seconds) for count, seconds in prices.items()],
        reason="a part of the rows stays in the second-level cache while weights pass"
        if best != "1"
        else "the rows stay in the second-level cache, or are too many",
    )
    return 0 if chosen == "1" else _size(extent, int(chosen))


def _tell(part: Tensor, lanes: Lanes, ledger: Ledger) -> None:
    """What a part does not choose, for the ledger."""
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


def _parts(whole: Tensor, axis: Axis, size: int) -> list[Tensor]:
    """The sums so far, then the tensor itself."""
    found: list[Tensor] = []
    extent = int(axis.extent)
    for low in range(0, extent, size):
        part = Axis(axis.name, min(size, extent - low))
        body = replace_reduced(whole.body, (axis,), (part,), {axis: part.dim + low})
        node: Expr = reductions(body)[0]
        value = node
        if found:
            value = binary("add", load(found[-1].name, node.dtype, tuple(a.dim for a in whole.axes)), node)
        if low + size >= extent:
            body = transform(body, lambda n, node=node, value=value: value if n is node else None)
            return [*found, replace(whole, body=body)]
        found.append(Tensor(f"{whole.name}_sums{len(found)}", node.dtype, whole.axes, value, whole.origin))
    raise AssertionError("no part is last")

"""Pairs: two members that one kernel computes, the first one into scratch for some rows at a time.

    inner = window(x, taps);  result = inner weights              a depthwise convolution and the 1 x 1 behind it
    inner = gelu(x weights);  result = inner other weights        the two products of an MLP
    inner = silu(x);          result = inner weights              what is done with the rows of a product before it
    inner = x weights;        result = layer_norm(inner)          and after it, where that needs whole rows
    inner = x * weights;      result = max_pool(inner)            a convolution and the window over its result

Apart, what lies between is written and read as a whole. Together, an iteration computes some rows of both, and what
lies between stays in the cache. That pays where it is large beside the weights, which every iteration reads again, and
beside the rows under a window that neighbouring iterations both compute. Every pair that is legal has a price. Those of
the first two forms are taken where it is lower; the others where a pin or a measurement says so, since on shapes of
transformers and of the first layers of networks for pictures they took as long as two kernels, whatever their price.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from opweld.fuse.blocks import linear, places_in_rows, refusal, rows_of_first, users_of
from opweld.fuse.pair_prices import PairPrices, single
from opweld.fuse.region import (
    Block,
    Kind,
    Member,
    Reach,
    Region,
    Regions,
    axes_in,
    factors,
    has_lanes,
    reductions,
    slides,
)
from opweld.fuse.rows import RowSpace
from opweld.ledger import Alternative, Ledger
from opweld.schedule.expected import Expected
from opweld.target import Target
from opweld.tensor.dim import Axis, Dim
from opweld.tensor.expr import Load, dims_of, loads, walk
from opweld.tensor.program import TensorProgram

SURE = 0.97
"""A pair that is predicted to take a larger part of the time of two kernels may as well take longer."""
TILES = (Kind.CONTRACTION, Kind.WINDOW)
BEFORE = {Kind.CONTRACTION: (*TILES, Kind.MAP), Kind.WINDOW: TILES, Kind.ROWWISE: TILES}
"""What the first member may be, by what the last one is."""


def join_pairs(regions: Regions, expected: Expected, target: Target, ledger: Ledger) -> Regions:
    """The regions with pairs joined where that is predicted to be faster, each a decision in the ledger.

    What is computed last chooses first."""
    by_output = {name: region for region in regions.regions for name in region.outputs}
    users = users_of(regions)
    kept = {value for _, value in regions.program.outputs}
    position = {region: number for number, region in enumerate(regions.regions)}
    gone: set[Region] = set()
    made: dict[Region, Region] = {}
    for last in reversed(regions.regions):
        for name in _operands(last, by_output):
            first = by_output[name]
            begins: dict[str, int | str] = {"contraction": "it begins another block"} if last in gone else {}
            stored = last.kind is Kind.ROWWISE and (name in kept or len(users[name]) > 1)
            if stored:
                # The result is there when the rows are: who else reads it does so later.
                before = any(position[user] < position[last] for user in users[name])
                failed = begins or ({"order": "something else reads it before"} if before else {})
            else:
                failed = begins or refusal(last, name, first, users, kept)
            found = None if failed else _pair(first, name, last, stored)
            if isinstance(found, str):
                failed["rows"] = found
            pair = found if isinstance(found, Region) else None
            if pair is None and not _priced(first, last):
                continue  # under the rule by which they could have met alone, there is a decision that says no
            if _decide(first, last, pair, failed, regions.program, expected, target, ledger) and pair is not None:
                gone |= {first, last}
                made[last] = pair
                break
    result = tuple(made.get(region, region) for region in regions.regions if region in made or region not in gone)
    return replace(regions, regions=result)


def _priced(first: Region, last: Region) -> bool:
    """Whether what is predicted of a form was measured to hold, so that it decides."""
    if last.kind is not Kind.CONTRACTION or first.kind not in TILES:
        return False
    return first.kind is Kind.WINDOW or not _slides(first)


def _slides(first: Region) -> bool:
    """Whether neighbours in the result of a region share what they read."""
    tensor = first.members[0].tensor
    found = reductions(tensor.body)
    return bool(found) and slides(found[0], set(tensor.axes))


def _operands(last: Region, by_output: dict[str, Region]) -> Iterator[str]:
    """The values that a region reads whose makers could be computed with it: register tiles before elementwise work."""
    kinds = BEFORE.get(last.kind, ()) if last.kind is not None else ()
    read = last.inputs
    if last.kind is Kind.CONTRACTION:
        read = tuple(node.tensor for node in factors(reductions(last.members[0].tensor.body)[0]) or ())
    for allowed in (TILES, (Kind.MAP,)):
        for name in dict.fromkeys(read):
            first = by_output.get(name)
            if first is not None and first.kind in allowed and first.kind in kinds:
                yield name


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
        prices = PairPrices.of(pair, program, expected, target)
        together = min(map(prices.seconds, prices.heights))
        alternatives = [
            Alternative("separate", bytes=prices.moved, seconds=prices.apart),
            Alternative("block", bytes=0, seconds=together),
        ]
        reason = "what lies between stays in the cache, and weights are read for each block of rows"
        if not _priced(first, last):
            reason += "; measured, kernels of this form took as long"
        elif together < SURE * prices.apart:
            wanted = "block"
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


def _pair(first: Region, name: str, last: Region, stored: bool = False) -> Region | str:
    """Both as one block, or what does not fit. stored: somebody else reads the first result from memory."""
    if last.kind is Kind.ROWWISE:
        return _with_rows(first, name, last, stored)
    (site,) = (node for node in loads(last.members[0].tensor.body) if node.tensor == name)
    return _under_window(first, site, last) if last.kind is Kind.WINDOW else _summed_over(first, site, last)


def _with_rows(first: Region, name: str, last: Region, stored: bool) -> Region | str:
    """What makes the rows, and what is done with whole rows: passes over them in scratch, or while they are in the
    cache, where they are stored for others too, as a residual is."""
    (member,), (middle,) = first.members, last.members
    assert middle.space is not None
    space = replace(middle.space, places=dict(middle.space.places))
    places = places_in_rows(middle.tensors, space, name)
    rows = None if places is None else rows_of_first(first, places)
    if places is None or rows is None:
        return f"{last.outputs[0]} does not read whole rows of {name} at its own place in them"
    space.places[name] = places
    for row in reversed(range(len(space.rows))):
        axis = next((axis for axis, number in rows.items() if number == row), None)
        if axis is None or not _straight(member, axis) or not linear(middle.tensors, space, row):
            continue
        if has_lanes(member, rows):
            members = (member, replace(middle, space=space))
            outputs = (*last.outputs, name) if stored else last.outputs
            return Region(members, outputs, block=Block(space, row, (rows, {})))
    return f"no axis of the rows of {name} can be cut into blocks"


def _under_window(first: Region, site: Load, last: Region) -> Region | str:
    """What is computed under a window that slides over it: blocks of the outermost axis along which it slides."""
    member, tensor = first.members[0], last.members[0].tensor
    taps = set(reductions(tensor.body)[0].axes)
    shared: dict[Axis, Axis] = {}
    sliding: list[tuple[Axis, Axis, Reach]] = []
    for dim, own in zip(site.indices, member.place, strict=True):
        made = own.atom
        if single(own):
            continue
        if not isinstance(made, Axis) or made in shared.values():
            return f"{site.tensor} is made at {own}"
        axis = dim.atom
        if isinstance(axis, Axis) and axis in tensor.axes and axis.extent is made.extent and axis not in shared:
            shared[axis] = made
            continue
        found = _slide(dim, tensor.axes, taps)
        if found is None:
            return f"{last.outputs[0]} reads {site.tensor} at {dim}, which is no window"
        sliding.append((found[0], made, found[1]))
    if not sliding or {axis for axis in member.tensor.axes if axis.extent.constant != 1} != {
        *shared.values(),
        *(made for _, made, _ in sliding),
    }:
        return f"{last.outputs[0]} slides over no axis of {site.tensor}"
    axis, made, reach = sliding[0]
    # Lanes run along what all rows share: channels. What has rows of its own, as a batch, is grid.
    pair = factors(reductions(member.tensor.body)[0]) if first.kind is Kind.CONTRACTION else None
    moving = [node for node in pair or () if made in axes_in(node)]
    if pair is not None and len(moving) != 1:
        return f"along the rows of {site.tensor} lie both of its factors"
    rows = [(own, other) for own, other in shared.items() if pair is not None and other in axes_in(moving[0])]
    if not (_straight(last.members[0], axis) and _straight(member, made)):
        return "addresses are no straight lines along the rows"
    rows.append((axis, made))
    own_rows = tuple({found[part]: n for n, found in enumerate(rows)} for part in (1, 0))
    for one, axes in zip((member, last.members[0]), own_rows, strict=True):
        if not has_lanes(one, axes):
            return f"{one.tensor.name} has no axis for lanes beside its rows"
    columns = [other for other in member.tensor.axes if other not in own_rows[0] and other.extent.constant != 1]
    space = RowSpace(tuple(own.extent for own, _ in rows), tuple(other.extent for other in columns))
    numbers = {other: ("row", n) for n, (_, other) in enumerate(rows)}
    numbers |= {other: ("column", n) for n, other in enumerate(columns)}
    space.places[site.tensor] = tuple(
        numbers[dim.atom] if isinstance(dim.atom, Axis) and not single(dim) else None for dim in member.place
    )
    block = Block(space, len(rows) - 1, own_rows, reach)
    return Region((member, last.members[0]), last.outputs, block=block)


def _slide(dim: Dim, own: tuple[Axis, ...], taps: set[Axis]) -> tuple[Axis, Reach] | None:
    """The axis of a window along which an index slides, step * axis + dilation * tap - before, and the rows under some
    of its windows."""
    inside = [atom for atom in dim.atoms if isinstance(atom, Axis)]
    axes, tap = [axis for axis in inside if axis in own], [axis for axis in inside if axis in taps]
    if len(axes) != 1 or len(tap) > 1 or len(inside) != len(axes) + len(tap):
        return None
    step, before = dim.coefficient(axes[0]), dim.without(axes[0])
    length, extent = 1, None
    if tap and step is not None:
        dilation, extent = before.coefficient(tap[0]), tap[0].extent.constant
        before = before.without(tap[0])
        if dilation is None or dilation.constant is None or dilation.constant < 1 or extent is None:
            return None
        length = dilation.constant * (extent - 1) + 1
    if step is None or step.constant is None or step.constant < 1 or before.constant is None or before.constant > 0:
        return None
    return axes[0], Reach(step.constant, length - step.constant, -before.constant)


def _summed_over(first: Region, site: Load, last: Region) -> Region | str:
    """What a contraction sums over, and the contraction."""
    member, tensor = first.members[0], last.members[0].tensor
    reduce = reductions(tensor.body)[0]
    common: list[tuple[Axis, Axis]] = []
    columns: list[Axis] = []
    seen: set[Axis] = set()
    read = list(zip(site.indices, member.place, strict=True))
    for dim, own in read:
        axis, made = dim.atom, own.atom
        if single(dim) and single(own):
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
    held = common[-1:] if len(common) > 1 and _slides(first) else []
    rows = common[: len(common) - len(held)]
    row = len(rows) - 1
    if not all(_straight(one, axis) for one, axis in ((last.members[0], rows[row][0]), (member, rows[row][1]))):
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


def _straight(member: Member, axis: Axis) -> bool:
    """Whether addresses are straight lines along an axis."""
    dims = [*member.place, *(dim for node in walk(member.tensor.body) for dim in dims_of(node))]
    return all(dim.coefficient(axis) is not None for dim in dims)

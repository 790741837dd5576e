"""Blocks: a contraction joins the rows that it multiplies, and with them the contraction that made the rows.

    scores = q k^T;  weights = softmax(scores);  result = weights v

Apart, these are three kernels, and what lies between them goes through memory, as large as the square of the length.
Together, an iteration computes some rows of all three, and what lies between stays in the cache. That pays where the
other operands are small enough to be read again by each iteration; where they are weights, they are not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from opweld.fuse.region import Block, Kind, Region, Regions, axes_in, factors, has_lanes, reductions
from opweld.fuse.rows import RowSpace
from opweld.ledger import Alternative, Ledger
from opweld.schedule.cost import core_of, traffic
from opweld.schedule.expected import Expected
from opweld.target import Target
from opweld.tensor.dim import Axis, Dim
from opweld.tensor.expr import Load, dims_of, loads, walk
from opweld.tensor.program import Tensor

Place = tuple[str, int] | None


@dataclass(frozen=True, eq=False)
class Joining:
    """Rows and the contractions around them that could be one kernel. `first_rows` and `last_rows` say which row each
    axis of a contraction is; `row` is the one of which an iteration computes several."""

    first: Region | None
    middle: Region
    last: Region
    first_rows: dict[Axis, int]
    last_rows: dict[Axis, int]
    row: int

    @property
    def regions(self) -> tuple[Region, ...]:
        """The regions that become one, in order."""
        return (*((self.first,) if self.first else ()), self.middle, self.last)

    def made(self) -> Region:
        """The block."""
        space = self.middle.members[0].space
        assert space is not None
        rows = (*((self.first_rows,) if self.first else ()), dict[Axis, int](), self.last_rows)
        members = tuple(member for region in self.regions for member in region.members)
        return Region(members, self.last.outputs, block=Block(space, self.row, rows))


def join_blocks(regions: Regions, expected: Expected, target: Target, ledger: Ledger) -> Regions:
    """The regions with blocks joined where that is predicted to be faster, each a decision in the ledger.

    Contractions are visited from the last to the first: one that could end a block is asked before it could begin
    another."""
    by_output = {name: region for region in regions.regions for name in region.outputs}
    users = users_of(regions)
    kept = {value for _, value in regions.program.outputs}
    constants = frozenset(constant.name for constant in regions.program.constants)
    gone: set[Region] = set()
    made: dict[Region, Region] = {}
    for last in reversed(regions.regions):
        if last.kind is not Kind.CONTRACTION:
            continue
        site = _row_operand(last, by_output)
        if site is None:
            continue
        middle = by_output[site.tensor]
        begins: dict[str, int | str] = {"contraction": "it begins another block"} if last in gone else {}
        failed = begins or refusal(last, site.tensor, middle, users, kept)
        ways = [] if failed else _joinings(last, site, middle, by_output, users, kept)
        found = ways[0] if ways else None
        weights = _other(last, site) if _other(last, site).tensor in constants else None
        if not failed and found is None:
            failed["rows"] = f"{last.outputs[0]} does not multiply whole rows of {site.tensor}"
        if _decide(last, middle, found, weights, failed, expected, target, ledger) and found is not None:
            found = _choose_row(ways, ledger)
            gone |= set(found.regions)
            made[last] = found.made()
    result = tuple(made.get(region, region) for region in regions.regions if region in made or region not in gone)
    return replace(regions, regions=result)


def _row_operand(last: Region, by_output: dict[str, Region]) -> Load | None:
    """The factor of a contraction that a rowwise region makes."""
    pair = factors(reductions(last.members[0].tensor.body)[0])
    for node in pair or ():
        made_by = by_output.get(node.tensor)
        if made_by is not None and made_by.kind is Kind.ROWWISE:
            return node
    return None


def _other(last: Region, site: Load) -> Load:
    """What the rows are multiplied by."""
    pair = factors(reductions(last.members[0].tensor.body)[0])
    assert pair is not None
    return pair[1] if pair[0] is site else pair[0]


def users_of(regions: Regions) -> dict[str, list[Region]]:
    """The regions that read each value."""
    users: dict[str, list[Region]] = {}
    for region in regions.regions:
        for name in region.inputs:
            users.setdefault(name, []).append(region)
    return users


def refusal(
    last: Region, name: str, middle: Region, users: dict[str, list[Region]], kept: set[str]
) -> dict[str, int | str]:
    """What keeps a region apart from the one whose result it reads: somebody else wants it, too."""
    if middle.outputs != (name,):
        return {"outputs": len(middle.outputs)}
    if name in kept:
        return {"output": "the caller reads it from memory"}
    if len(users[name]) != 1:
        return {"users": len(users[name])}
    if last.kind is not Kind.ROWWISE and sum(node.tensor == name for node in loads(last.members[0].tensor.body)) != 1:
        return {"loads": "several"}
    return {}


def _decide(
    last: Region,
    middle: Region,
    found: Joining | None,
    weights: Load | None,
    failed: dict[str, int | str],
    expected: Expected,
    target: Target,
    ledger: Ledger,
) -> bool:
    alternatives, reason = [Alternative("separate"), Alternative("block")], "a kernel of its own"
    if found is not None:
        alternatives = _prices(found, weights, expected, target)
        reason = "the rows between the contractions stay in the cache"
        if weights is not None:
            reason = f"{weights.tensor} are weights, which each block of rows would read again"
    origin = tuple(
        dict.fromkeys((*(found.first.origin if found and found.first else ()), *middle.origin, *last.origin))
    )
    choice = ledger.decide(
        rule="fuse.block",
        site=origin,
        subject=(middle.outputs[0], last.outputs[0]),
        alternatives=alternatives,
        prefer="separate" if failed or weights is not None else None,
        reason=reason,
        failed=failed,
    )
    return choice == "block"


def _choose_row(ways: list[Joining], ledger: Ledger) -> Joining:
    """The row that a block is cut along."""
    first = ways[0]
    if len(ways) == 1:
        return first
    choice = ledger.decide(
        rule="fuse.block",
        site=tuple(dict.fromkeys(name for region in first.regions for name in region.origin)),
        subject=(first.middle.outputs[0], first.last.outputs[0], "row"),
        alternatives=[Alternative(f"r{way.row}") for way in ways],
        prefer=f"r{first.row}",
        reason="blocks of the innermost row share the other operands, and lie together in memory",
    )
    return next(way for way in ways if choice == f"r{way.row}")


def _prices(found: Joining, weights: Load | None, expected: Expected, target: Target) -> list[Alternative]:
    """Seconds beside the arithmetic, which is the same: launches, and what lies between the members going to memory.

    Rows are written once and read once by the contraction after them; scores are written, and read by three passes.
    Weights are read by every iteration of the block, and once where the contraction is a kernel of its own."""
    space = found.middle.members[0].space
    assert space is not None
    each = float(found.middle.members[0].tensors[-1].dtype.bytes)
    size = each * expected.product((*space.rows, *space.columns))
    cores = target.cores
    trips = 2 + (4 if found.first else 0)
    launch = core_of(target).launch
    apart = len(found.regions) * launch + trips * traffic(size, target) / cores
    rows = max(1, expected(space.rows[found.row]))
    inside = each * expected.product(space.columns) * min(rows, 32) * 2
    together = launch + trips * size / max(1.0, inside) * traffic(inside, target) / cores
    # Fewer, longer iterations: with too few of them, cores wait.
    iterations = expected.product(space.rows) / min(rows, 32)
    together *= 1 + cores / max(1.0, 4 * iterations)
    moved, again = int(size) * trips, 0
    if weights is not None:
        held = weights.dtype.bytes * expected.product(axis.extent for axis in axes_in(weights))
        times = max(0.0, iterations - 1)
        again = int(held * times)
        together += times * traffic(held, target) / cores
    return [Alternative("separate", bytes=moved, seconds=apart), Alternative("block", bytes=again, seconds=together)]


# ------------------------------------------------------------------------------------------------------------ matching


def _joinings(
    last: Region,
    site: Load,
    middle: Region,
    by_output: dict[str, Region],
    users: dict[str, list[Region]],
    kept: set[str],
) -> list[Joining]:
    """How the regions fit together, cut along each row that can be, the innermost first; none where an index or axis
    does not fit."""
    space = middle.members[0].space
    assert space is not None
    last_rows = _rows_of_last(last, site, space)
    if last_rows is None:
        return []
    first, first_rows = _first(middle, space, by_output, users, kept)
    parts: list[tuple[Region, dict[Axis, int]]] = [(last, last_rows)]
    if first is not None:
        parts.append((first, first_rows))
    return [
        Joining(first, middle, last, first_rows, last_rows, row)
        for row in reversed(range(len(space.rows)))
        if all(_runs_in_one_factor(region, rows, row) for region, rows in parts) and linear(middle.tensors, space, row)
    ]


def _rows_of_last(last: Region, site: Load, space: RowSpace) -> dict[Axis, int] | None:
    """Which row each axis of the last contraction is, if it sums over all columns of whole rows."""
    tensor = last.members[0].tensor
    node = reductions(tensor.body)[0]
    if site.guards:
        return None
    rows: dict[Axis, int] = {}
    columns: list[Axis] = []
    for dim, place in zip(site.indices, space.places[site.tensor], strict=True):
        if place is None:
            if dim.constant != 0:
                return None
            continue
        axis = dim.atom
        if not isinstance(axis, Axis) or axis.extent is not _extent(space, place):
            return None
        if place[0] == "row" and axis in tensor.axes and axis not in rows:
            rows[axis] = place[1]
        elif place[0] == "column" and axis in node.axes and axis not in columns:
            columns.append(axis)
        else:
            return None
    complete = sorted(rows.values()) == list(range(len(space.rows))) and set(columns) == set(node.axes)
    return rows if complete and len(columns) == len(space.columns) else None


def _first(
    middle: Region,
    space: RowSpace,
    by_output: dict[str, Region],
    users: dict[str, list[Region]],
    kept: set[str],
) -> tuple[Region | None, dict[Axis, int]]:
    """The contraction whose result is the rows, and which row each of its axes is; its result gets its places in the
    row space."""
    for name in middle.inputs:
        region = by_output.get(name)
        if region is None or region.kind is not Kind.CONTRACTION or name in kept or len(users[name]) != 1:
            continue
        places = places_in_rows(middle.tensors, space, name)
        rows = None if places is None else rows_of_first(region, places)
        if places is not None and rows is not None:
            space.places[name] = places
            return region, rows
    return None, {}


def places_in_rows(tensors: tuple[Tensor, ...], space: RowSpace, name: str) -> tuple[Place, ...] | None:
    """Where in the row each index of a value is, if every load of it is at the current place in the row."""
    found: tuple[Place, ...] | None = None
    for tensor in tensors:
        sites = [node for node in loads(tensor.body) if node.tensor == name]
        if not sites:
            continue
        known = space.places_in(tensor)
        for node in sites:
            atoms = [dim.atom for dim in node.indices]
            places = tuple(known.get(atom) if isinstance(atom, Axis) else None for atom in atoms)
            complete = all(p is not None or dim.constant == 0 for p, dim in zip(places, node.indices, strict=True))
            if node.guards or not complete or (found is not None and found != places):
                return None
            found = places
    if found is None:
        return None
    everything = {("row", n) for n in range(len(space.rows))} | {("column", n) for n in range(len(space.columns))}
    own = [place for place in found if place is not None]
    return found if set(own) == everything and len(own) == len(everything) else None


def rows_of_first(region: Region, places: tuple[Place, ...]) -> dict[Axis, int] | None:
    """Which row each axis of the first contraction is; None where an axis stands for several."""
    rows: dict[Axis, int] = {}
    member = region.members[0]
    seen: set[Axis] = set()
    for dim, place in zip(member.place, places, strict=True):
        if place is None:
            continue
        axis = dim.atom
        if not isinstance(axis, Axis) or axis in seen:
            return None
        seen.add(axis)
        if place[0] == "row":
            rows[axis] = place[1]
    own = {axis for axis in member.tensor.axes if axis.extent.constant != 1}
    return rows if own <= seen else None


def _extent(space: RowSpace, place: tuple[str, int]) -> Dim:
    return space.rows[place[1]] if place[0] == "row" else space.columns[place[1]]


def _runs_in_one_factor(region: Region, rows: dict[Axis, int], row: int) -> bool:
    """Whether blocks of this row share the other factor, addresses are straight lines along it, and lanes are left."""
    tensor, place = region.members[0].tensor, region.members[0].place
    axis = next((axis for axis, number in rows.items() if number == row), None)
    pair = factors(reductions(tensor.body)[0])
    if axis is None or pair is None or sum(axis in axes_in(node) for node in pair) != 1:
        return False
    if not has_lanes(region.members[0], rows):
        return False
    dims = [*place, *(dim for node in walk(tensor.body) for dim in dims_of(node))]
    return all(dim.coefficient(axis) is not None for dim in dims)


def linear(tensors: tuple[Tensor, ...], space: RowSpace, row: int) -> bool:
    """Whether all that the rows read lies along a straight line over this row."""
    for tensor in tensors:
        places = space.places[tensor.name]
        axis = next((a for a, place in zip(tensor.axes, places, strict=True) if place == ("row", row)), None)
        dims = [dim for node in walk(tensor.body) for dim in dims_of(node)]
        if axis is not None and not all(dim.coefficient(axis) is not None for dim in dims):
            return False
    return True

"""Assigns storage to every value in memory.

Orders and lanes are chosen in program order (`orders.py`). Then, in reverse order: a value that all readers pad in the
same way is stored with its padding, and a value that is a part of a concatenation is written into the whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from opweld.fuse.concatenation import Part, concatenation_of
from opweld.fuse.region import Kind, Region, Regions
from opweld.ledger import Alternative, Ledger
from opweld.place.halo import edge_tests, fill_of, halo_of
from opweld.place.orders import Orders
from opweld.place.placed import Placed
from opweld.place.set_conflicts import Reader, rows_apart
from opweld.place.storage import Storage, dense, slice_of
from opweld.schedule.cost import ITERATION, core_of, traffic
from opweld.schedule.expected import Expected
from opweld.target import Target
from opweld.tensor.dim import ZERO, as_dim, product
from opweld.tensor.expr import Expr, loads
from opweld.tensor.program import Tensor

Halo = tuple[tuple[tuple[int, int], ...], Expr | None]
"""Padding before and after each axis, and its value."""


def place(regions: Regions, expected: Expected, target: Target, ledger: Ledger) -> Placed:
    """Storage for every value in memory, and the lanes of every reduction."""
    orders = Orders(regions, expected, target, ledger)
    halos = _halos(orders, expected, target, ledger)
    storages: dict[str, Storage] = {}
    program = regions.program
    for value in (*program.inputs, *program.constants):
        storages[value.name] = dense(value.name, value.dtype, tuple(map(as_dim, value.shape)))
    values, growing = dict(program.outputs), {s.input: s.output for s in program.states if s.axis is not None}
    for state, public in growing.items():
        # Appended elements are stored after the present ones; rows are a capacity apart.
        storages[values[public]] = slice_of(storages[state], 0, ZERO)
    recurrent = _of_recurrences(orders)
    across = _read_across(orders)
    for region in reversed(orders.regions):
        for name in region.outputs:
            if name in storages:
                continue
            halo, fill = halos.get(name, (None, None))
            made = partial(dense, name, orders.dtypes[name], orders.shapes[name], orders.orders[name], halo, fill)
            storages[name] = made()
            if name in across and name not in orders.fixed and name not in recurrent:
                origin = next((tensor.origin for tensor in region.tensors if tensor.name == name), region.origin)
                storages[name] = rows_apart(
                    storages[name],
                    made(rows_apart=True),
                    origin,
                    across[name],
                    orders.readers[name],
                    expected,
                    target,
                    ledger,
                )
        if region.kind is Kind.MAP:
            _place_parts(region.tensors[0], orders, halos, recurrent, storages, expected, target, ledger)
    constants = {value.name: value for value in program.constants}
    return Placed(program, tuple(orders.regions), storages, constants, orders.lanes)


def _of_recurrences(orders: Orders) -> frozenset[str]:
    return frozenset(name for region in orders.regions if region.scan is not None for name in region.outputs)


def _read_across(orders: Orders) -> dict[str, list[Reader]]:
    """The contractions that read each value as the broadcast operand."""
    found: dict[str, list[Reader]] = {}
    for region in orders.regions:
        for tensor in region.tensors:
            lanes = orders.lanes.get(tensor.name)
            if lanes is not None and lanes.axis is not None and lanes.across is not None:
                found.setdefault(lanes.across.tensor, []).append((tensor, lanes))
    return found


# --------------------------------------------------------------------------------------------------------------- halos


def _halos(orders: Orders, expected: Expected, target: Target, ledger: Ledger) -> dict[str, Halo]:
    """The halo of each value, if all its readers agree on the padding's value."""
    made_by: dict[str, Region] = {name: region for region in orders.regions for name in region.outputs}
    turn = {name: place for place, region in enumerate(orders.regions) for name in region.outputs}
    found: dict[str, Halo] = {}
    single = {
        lanes.across: float(-(-expected(lanes.axis.extent) // (lanes.vectors * target.vector_lanes_f32)))
        for lanes in orders.lanes.values()
        if lanes.axis is not None and lanes.across is not None
    }
    for name, nodes in orders.readers.items():
        guarded = [node for node in nodes if node.guards]
        maker = made_by.get(name)
        if not guarded or maker is None or name in orders.fixed or maker.scan is not None:
            continue
        halo = [(0, 0)] * len(orders.shapes[name])
        fills: set[Expr] = set()
        failed: dict[str, int | str] = {}
        for node in guarded:
            needed, fill = halo_of(node, orders.shapes[name]), fill_of(node)
            if needed is None or fill is None:
                failed["reader"] = "reads it at an index or with a padding that no halo can serve"
                break
            later = next((site.tensor for site in loads(fill) if turn.get(site.tensor, 0) > turn[name]), None)
            if later is not None:
                failed["padding"] = f"{later} is computed after it"
            fills.add(fill)
            halo = [(max(a, c), max(b, d)) for (a, b), (c, d) in zip(halo, needed, strict=True)]
        if len(fills) > 1:
            failed["padding"] = " and ".join(sorted(map(repr, fills)))
        tested = edge_tests(guarded, single, expected, target)
        added = expected.product(e + low + high for e, (low, high) in zip(orders.shapes[name], halo, strict=True))
        added -= expected.product(orders.shapes[name])
        # Edges are filled in the same phase as the value, without an additional launch.
        filled = ITERATION / core_of(target).hertz + traffic(orders.dtypes[name].bytes * added, target)
        choice = ledger.decide(
            rule="place.halo",
            site=next((tensor.origin for tensor in maker.tensors if tensor.name == name), maker.origin),
            subject=(name,),
            alternatives=(
                Alternative("test-edges", seconds=tested),
                Alternative("halo", seconds=None if failed else filled),
            ),
            prefer="test-edges" if failed else None,
            reason=f"readers go beyond its edges by {halo}; padding in memory saves the guards",
            failed=failed,
        )
        if choice == "halo":
            found[name] = tuple(halo), fills.pop()
    return found


# -------------------------------------------------------------------------------------------------------------- slices


def _place_parts(
    tensor: Tensor,
    orders: Orders,
    halos: Mapping[str, Halo],
    recurrent: frozenset[str],
    storages: dict[str, Storage],
    expected: Expected,
    target: Target,
    ledger: Ledger,
) -> None:
    """Values that are only parts of this concatenation are written directly into it."""
    joined = concatenation_of(tensor)
    if joined is None:
        return
    for number, part in enumerate(joined.parts):
        if part.whole and part.source in storages and _is_there(tensor, joined.axis, part, storages):
            continue
        failed = _why_not_inside(tensor, joined.axis, part, orders, halos, recurrent, storages)
        size = product(orders.shapes[part.source]) * orders.dtypes[part.source].bytes
        amount = size.constant if size.constant is not None else str(size)
        choice = ledger.decide(
            rule="place.slice",
            site=tensor.origin,
            subject=(tensor.name, str(number)),
            alternatives=(
                Alternative("copy", amount, seconds=2 * traffic(expected(size), target)),
                Alternative("slice", 0, seconds=None if failed else 0.0),
            ),
            prefer="copy" if failed else "slice",
            reason="the part has to be copied" if failed else "the part is written directly into the whole",
            failed=failed,
        )
        if choice == "slice":
            storages[part.source] = slice_of(storages[tensor.name], joined.axis, part.start)


def _is_there(tensor: Tensor, axis: int, part: Part, storages: Mapping[str, Storage]) -> bool:
    """Whether a part is stored in place already, as the previous elements of a growing state."""
    return storages[part.source].is_at(slice_of(storages[tensor.name], axis, part.start))


def _why_not_inside(
    tensor: Tensor,
    axis: int,
    part: Part,
    orders: Orders,
    halos: Mapping[str, Halo],
    recurrent: frozenset[str],
    storages: Mapping[str, Storage],
) -> dict[str, int | str]:
    shape = list(tensor.shape)
    shape[axis] = part.end - part.start
    if not part.whole or orders.shapes[part.source] != tuple(shape):
        return {"part": "only some of it is taken"}
    if part.source in orders.fixed or part.source in orders.constants:
        return {"part": "a graph input, output or constant"}
    if part.source in storages:
        return {"part": "already stored elsewhere"}
    if part.source in halos:
        return {"part": "has a halo of its own"}
    if orders.dtypes[part.source] is not tensor.dtype:
        return {"part": "has another element type"}
    if part.source in recurrent:
        return {"part": "computed by a recurrence"}
    return {}

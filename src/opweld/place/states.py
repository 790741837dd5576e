"""Writes states into their persistent memory.

A growing state is placed there by `layout`, through the value appended to it. One that is replaced as a whole is
computed in its memory if no element is read after it is overwritten; else it is computed elsewhere, and copied at the
end of the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from opweld.fuse.concatenation import concatenation_of
from opweld.fuse.region import Kind, Region
from opweld.ledger import Alternative, Ledger
from opweld.place.placed import Placed
from opweld.place.storage import Storage
from opweld.place.written import is_updated, producing_member, read_where_written
from opweld.schedule.cost import core_of, traffic
from opweld.schedule.expected import Expected
from opweld.target import Target
from opweld.tensor.dim import Axis
from opweld.tensor.expr import load
from opweld.tensor.program import Tensor, unused


def write_states(placed: Placed, expected: Expected, target: Target, ledger: Ledger) -> Placed:
    """Assigns each replaced state the memory of its input."""
    program = placed.program
    values = dict(program.outputs)
    storages, regions = dict(placed.storages), list(placed.regions)
    for state in program.states:
        if state.axis is not None:
            continue
        value, memory = values[state.output], storages[state.input]
        number = next(number for number, region in enumerate(placed.regions) if value in region.outputs)
        region, own = placed.regions[number], storages[value]
        failed = _why_not_in_place(placed, number, value, state.input, memory)
        size = own.elements * own.dtype.bytes
        copied = core_of(target).launch + 2 * traffic(expected(size), target)
        choice = ledger.decide(
            rule="place.state",
            site=region.origin,
            subject=(state.input,),
            alternatives=(
                Alternative("copied", size.constant or str(size), seconds=copied),
                Alternative("in-place", 0, seconds=None if failed else 0.0),
            ),
            prefer="copied" if failed else "in-place",
            reason="it is needed as it was before" if failed else "no element is read after it is overwritten",
            failed=failed,
        )
        if choice == "in-place":
            storages[value] = memory
            continue
        kept = _copy(placed, value, region)
        storages[kept.name] = memory
        regions.append(Region.single(Kind.MAP, (kept,), (kept.name,)))
    return replace(placed, regions=tuple(regions), storages=storages)


def _why_not_in_place(placed: Placed, number: int, value: str, state: str, memory: Storage) -> Mapping[str, int | str]:
    region, storages = placed.regions[number], placed.storages
    if any(state in other.inputs for other in placed.regions[number + 1 :]):
        return {"state": "it is read again later"}
    if is_updated(region, state, value):
        return {}
    member = producing_member(region)
    if member is None or region.outputs != (value,):
        return {"kernel": "does not compute it element by element"}
    if concatenation_of(member.tensor) is not None or any(
        s.root == value for name, s in storages.items() if name != value
    ):
        return {"kernel": "concatenates it from parts"}
    if not read_where_written(region, state, {**storages, value: memory}, memory.address(member.place)):
        return {"state": "its elements are read at other positions than they would be overwritten"}
    return {}


def _copy(placed: Placed, value: str, region: Region) -> Tensor:
    dtype, shape = placed.program.signatures[value]
    axes = tuple(Axis(f"i{position}", extent) for position, extent in enumerate(shape))
    name = unused(f"{value}_kept", placed.storages)
    return Tensor(name, dtype, axes, load(value, dtype, tuple(axis.dim for axis in axes)), region.origin)

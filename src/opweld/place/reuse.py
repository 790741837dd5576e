"""In-place computation: a result takes the memory of an operand that dies.

The result of a residual addition is then written to cache lines that were just read, and a chain needs the memory of
one value. Legal if every element of the operand is read only where it is overwritten, and never afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from opweld.fuse.concatenation import concatenation_of
from opweld.fuse.region import Member, Region
from opweld.ledger import Alternative, Ledger
from opweld.place.placed import Placed
from opweld.place.states import write_states
from opweld.place.storage import Storage
from opweld.place.written import producing_member, read_where_written
from opweld.schedule.cost import traffic
from opweld.schedule.expected import Expected
from opweld.target import Target
from opweld.tensor.expr import loads


def reuse(placed: Placed, expected: Expected, target: Target, ledger: Ledger) -> Placed:
    """Assigns results of elementwise work the memory of operands that die there, and states their own memory."""
    placed = write_states(placed, expected, target, ledger)
    fixed = {value.name for value in placed.program.inputs} | {name for _, name in placed.program.outputs}
    fixed |= set(placed.constants)
    last = _last_readers(placed)
    storages = dict(placed.storages)
    residents: dict[str, set[str]] = {}
    for name, storage in storages.items():
        residents.setdefault(storage.root, set()).add(name)
    for number, region in enumerate(placed.regions):
        member, name = producing_member(region), region.outputs[0]
        if member is None or name in fixed:
            continue
        own = storages[name]
        if own.root != name or own.padded or concatenation_of(member.tensor) is not None:
            continue
        found = _operands(region, member, own, storages, residents, last, number, fixed)
        dying = [root for root, why in found.items() if not why]
        if not found:
            continue
        size = own.elements * own.dtype.bytes
        choice = ledger.decide(
            rule="place.reuse",
            site=region.origin,
            subject=(name,),
            alternatives=(
                Alternative(
                    "own", (size.constant or str(size)) if dying else None, seconds=traffic(expected(size), target)
                ),
                Alternative("in-place", 0, seconds=0.0 if dying else None),
            ),
            prefer="in-place" if dying else "own",
            reason=_REASON if dying else "none of its operands can be overwritten",
            failed={} if dying else {ledger.label(root): why for root, why in found.items()},
        )
        if choice == "in-place":
            root = _choose_operand(region, dying, ledger)
            storages[name] = replace(own, root=root)
            residents[root].add(name)
    return replace(placed, storages=storages)


_REASON = "an operand dies here, and each of its elements is read only where it is overwritten"


def _choose_operand(region: Region, dying: Sequence[str], ledger: Ledger) -> str:
    """The dying operand whose memory is reused."""
    if len(dying) == 1:
        return dying[0]
    names = {ledger.label(root): root for root in dying}
    choice = ledger.decide(
        rule="place.reuse",
        site=region.origin,
        subject=(region.outputs[0], "operand"),
        alternatives=[Alternative(label, seconds=0.0) for label in names],
        reason="any is as good; it is read first",
    )
    return names[choice]


def _last_readers(placed: Placed) -> dict[str, int]:
    """The number of the last region that reads each value."""
    return {name: number for number, region in enumerate(placed.regions) for name in region.inputs}


def _operands(
    region: Region,
    member: Member,
    own: Storage,
    storages: Mapping[str, Storage],
    residents: Mapping[str, set[str]],
    last: Mapping[str, int],
    number: int,
    fixed: set[str],
) -> dict[str, str]:
    """The candidate memory of operands, of the result's size and type and not the caller's, in order of first read;
    with the reason why the result may not reuse it, empty if it may."""
    written = own.address(member.place)
    found: dict[str, str] = {}
    for node in loads(member.tensor.body):
        storage = storages.get(node.tensor)  # values in scratch have none
        root = "" if storage is None else storage.root
        if storage is None or root in fixed or root in found or storage.dtype is not own.dtype:
            continue
        if storages[root].elements is not own.elements:
            continue
        if storage.padded:
            found[root] = "it is padded"
        elif not read_where_written(region, root, storages, written):
            found[root] = "its elements are read at other positions than they would be overwritten"
        elif not all(last.get(name, -1) <= number for name in residents[root]):
            found[root] = "it is read again later"
        else:
            found[root] = ""
    return found

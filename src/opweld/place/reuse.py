"""Computes values in place: where an operand dies, its result takes its memory.

The result of a residual addition then lands on cache lines that were just read, and the memory of a chain is that of
one value. Legal when every element of the operand is read only where it is overwritten, and nobody reads it afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from opweld.fuse.pieces import pieces_of
from opweld.fuse.region import Kind, Member, reductions
from opweld.ledger import Alternative, Ledger
from opweld.place.placed import Placed
from opweld.place.storage import Storage
from opweld.tensor.dim import Dim
from opweld.tensor.expr import Expr, Load, loads


def reuse(placed: Placed, ledger: Ledger) -> Placed:
    """Gives the results of elementwise work the memory of operands that die there."""
    fixed = {value.name for value in placed.program.inputs} | {name for _, name in placed.program.outputs}
    fixed |= set(placed.constants)
    last = _last_readers(placed)
    storages = dict(placed.storages)
    residents: dict[str, set[str]] = {}
    for name, storage in storages.items():
        residents.setdefault(storage.root, set()).add(name)
    for number, region in enumerate(placed.regions):
        if region.kind not in (Kind.MAP, Kind.CONTRACTION, Kind.WINDOW) or region.outputs[0] in fixed:
            continue
        member, name = region.members[0], region.outputs[0]
        own = storages[name]
        if own.root != name or own.padded or pieces_of(member.tensor) is not None:
            continue
        root = _dying_operand(member, own, storages, residents, last, number, fixed)
        if root is None:
            continue
        size = own.elements * own.dtype.bytes
        choice = ledger.decide(
            rule="place.reuse",
            site=region.origin,
            subject=(name,),
            alternatives=(Alternative("own", size.constant or str(size)), Alternative("in-place", 0)),
            prefer="in-place",
            reason="an operand dies here, and each of its elements is read only where it is overwritten",
        )
        if choice == "in-place":
            storages[name] = replace(own, root=root)
            residents[root].add(name)
    return replace(placed, storages=storages)


def _last_readers(placed: Placed) -> dict[str, int]:
    """The number of the last region that reads each value."""
    return {name: number for number, region in enumerate(placed.regions) for name in region.inputs}


def _dying_operand(
    member: Member,
    own: Storage,
    storages: Mapping[str, Storage],
    residents: Mapping[str, set[str]],
    last: Mapping[str, int],
    number: int,
    fixed: set[str],
) -> str | None:
    """The memory that the result may take over, or None."""
    tensor = member.tensor
    written = own.address(member.place)
    for node in loads(tensor.body):
        storage = storages[node.tensor]
        root = storage.root
        if root in fixed or storage.padded or storage.dtype is not own.dtype:
            continue
        if storages[root].elements is not own.elements or not read_where_written(tensor.body, root, storages, written):
            continue
        if all(last.get(name, -1) <= number for name in residents[root]):
            return root
    return None


def read_where_written(body: Expr, root: str, storages: Mapping[str, Storage], written: Dim) -> bool:
    """Whether an expression reads the memory of `root` only at `written`, once."""
    inside = {node for reduce in reductions(body) for node in loads(reduce.body)}
    sites: list[Load] = [node for node in loads(body) if storages[node.tensor].root == root]
    return all(
        node not in inside and not node.guards and storages[node.tensor].address(node.indices) is written
        for node in sites
    )

"""Which elements a region reads of the memory that it writes: whether it may compute in place."""

from __future__ import annotations

from collections.abc import Mapping

from opweld.fuse.region import Kind, Member, Region, reductions
from opweld.place.storage import Storage
from opweld.tensor.dim import Dim
from opweld.tensor.expr import Expr, Load, loads
from opweld.tensor.externs import EXTERNS


def producing_member(region: Region) -> Member | None:
    """The member that computes the result of elementwise work or of register tiles, element by element; None if there
    is none."""
    if region.kind in (Kind.MAP, Kind.CONTRACTION, Kind.WINDOW):
        return region.members[0]
    return region.members[-1] if region.of_tiles else None


def is_updated(region: Region, operand: str, result: str) -> bool:
    """Whether a region is an extern that replaces an operand where it lies, and reads it in no other way."""
    extern = region.extern
    if extern is None or not EXTERNS[extern.function].in_place:
        return False
    return (extern.operands[0], extern.results[0].name) == (operand, result) and extern.operands.count(operand) == 1


def read_where_written(region: Region, root: str, storages: Mapping[str, Storage], written: Dim) -> bool:
    """Whether a region reads the memory of `root` only at `written`, once, and in the member that writes there."""
    member = producing_member(region)
    if member is None:
        return False

    def sites(body: Expr) -> list[Load]:
        return [node for node in loads(body) if node.tensor in storages and storages[node.tensor].root == root]

    body = member.tensor.body
    inside = {node for reduce in reductions(body) for node in loads(reduce.body)}
    return not any(sites(other.tensor.body) for other in region.members if other is not member) and all(
        node not in inside and not node.guards and storages[node.tensor].address(node.indices) is written
        for node in sites(body)
    )

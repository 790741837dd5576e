"""How many vector registers accumulations take at a time."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from opweld.target import Target
from opweld.tensor.expr import Load, loads, substitute
from opweld.tile.instances import instances
from opweld.tile.tile import Accumulate, Tile


def registers_for(items: Sequence[Accumulate], target: Target) -> int:
    """Vector registers that the target has for accumulations: of several dtypes, the fewest."""
    return min(target.registers(item.value.dtype) for item in items)


def registers_of(items: Sequence[Accumulate], tiles: Sequence[Tile], lanes: int) -> int:
    """Vector registers that accumulations take, one after the other, when no load is made twice."""
    mappings = list(instances(tiles, lanes))
    return most_held(
        ((item.name, tuple(mapping.values())), loads(substitute(item.value, mapping)))
        for item in items
        for mapping in mappings
    )


def most_held(accumulations: Iterable[tuple[Hashable, Sequence[Load]]]) -> int:
    """The most registers that are taken at a time: all accumulators, and what was loaded and is needed again."""
    steps = [(name, [node for node in found if node.indices]) for name, found in accumulations]
    last = {node: number for number, (_, found) in enumerate(steps) for node in found}
    held: set[Load] = set()
    most = 0
    for number, (_, found) in enumerate(steps):
        held.update(found)
        most = max(most, len(held))
        held.difference_update(node for node in found if last[node] == number)
    return len({name for name, _ in steps}) + most

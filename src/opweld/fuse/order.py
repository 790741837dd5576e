"""Which groups of items must be computed before which, while groups grow together.

A merge is a cycle when something in between needs the group finished. To see that without walking through the whole
program, each group has a rank: higher than the rank of all that it reads. What could lie between two groups has a
higher rank than the lower of them, and that is little where both are close together, as they nearly always are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

MOST_BETWEEN = 1000
"""Groups looked at before two are said to be too far apart to be computed together."""


@dataclass(eq=False)
class Group:
    """Items computed together: the place of the first of them in the program, a rank above all that they read, the
    groups that they read and that read them (as keys, which unlike sets have an order)."""

    first: int
    rank: int
    reads: dict[Group, None] = field(default_factory=dict["Group", None])
    readers: dict[Group, None] = field(default_factory=dict["Group", None])


class Order:
    """The groups of a program, which is given item by item, in program order."""

    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}

    def group(self, name: str) -> Group:
        """The group that an item belongs to now."""
        return self._groups[name]

    def add(self, name: str, inputs: Iterable[str]) -> None:
        """Adds an item, alone in its group. Inputs that were not added are there from the start."""
        reads = dict.fromkeys(self._groups[source] for source in inputs if source in self._groups)
        position = len(self._groups)
        group = Group(position, max([position, *(source.rank + 1 for source in reads)]), reads)
        for source in reads:
            source.readers[group] = None
        self._groups[name] = group

    def obstacle(self, a: str, b: str) -> str | None:
        """What stands in the way of computing the groups of two items together; None when nothing does."""
        both = (self._groups[a], self._groups[b])
        lowest = min(group.rank for group in both)
        pending = [source for group in both for source in group.reads if source not in both]
        seen, between = set(pending), 0
        while pending:
            group = pending.pop()
            if group in both:
                return "something in between needs the rows finished"
            if group.rank <= lowest:
                continue
            between += 1
            if between > MOST_BETWEEN:
                return f"more than {MOST_BETWEEN} kernels lie in between"
            found = [source for source in group.reads if source not in seen]
            seen.update(found)
            pending += found
        return None

    def join(self, name: str, other: str) -> None:
        """Adds an item, alone in its group so far, to the group of another; there must be no obstacle."""
        kept, gone = self._groups[other], self._groups[name]
        for source in gone.reads:
            del source.readers[gone]
            source.readers[kept] = None
        for reader in gone.readers:
            del reader.reads[gone]
            reader.reads[kept] = None
        kept.reads.update(gone.reads)
        kept.readers.update(gone.readers)
        for group in (kept, gone):
            kept.reads.pop(group, None)
            kept.readers.pop(group, None)
        kept.first, kept.rank = min(kept.first, gone.first), max(kept.rank, gone.rank)
        self._groups[name] = kept
        _lift_readers(kept)

    def sequence(self) -> list[Group]:
        """The groups in an order in which each finds what it reads: that of their first items, where it is one."""
        groups = {group.first: group for group in self._groups.values()}
        waiting = {group: len(group.reads) for group in groups.values()}
        ready = [first for first, group in groups.items() if not waiting[group]]
        heapify(ready)
        result: list[Group] = []
        while ready:
            group = groups[heappop(ready)]
            result.append(group)
            for reader in group.readers:
                waiting[reader] -= 1
                if not waiting[reader]:
                    heappush(ready, reader.first)
        assert len(result) == len(groups), "two groups need each other"
        return result


def _lift_readers(group: Group) -> None:
    """Lifts what reads a group, directly or not, above it again: lower ranks first, so that each is lifted once."""
    wanted: dict[Group, int] = {}
    pending: list[tuple[int, int, Group]] = []
    lifted = group
    while True:
        for reader in lifted.readers:
            if reader.rank <= lifted.rank:
                if reader not in wanted:
                    heappush(pending, (reader.rank, reader.first, reader))
                wanted[reader] = max(wanted.get(reader, 0), lifted.rank + 1)
        if not pending:
            return
        lifted = heappop(pending)[2]
        lifted.rank = wanted.pop(lifted)

"""The cheapest way to cut a directed graph in two: by maximum flow along shortest paths (Edmonds and Karp, 1972)."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Mapping
from typing import TypeVar

Place = TypeVar("Place", bound=Hashable)


def sink_side(edges: Mapping[tuple[Place, Place], int], source: Place, sink: Place) -> set[Place]:
    """The smallest sink side among the minimum cuts that separate source and sink. The cost of a cut is that of its
    edges from the source's side to the sink's."""
    left: defaultdict[Place, dict[Place, int]] = defaultdict(dict)
    for (start, end), cost in edges.items():
        left[start][end] = left[start].get(end, 0) + cost
        left[end].setdefault(start, 0)
    while path := _shortest(left, source, sink):
        flow = min(left[start][end] for start, end in path)
        for start, end in path:
            left[start][end] -= flow
            left[end][start] += flow
    side, pending = {sink}, deque([sink])
    while pending:
        end = pending.popleft()
        for start in left[end]:
            if start not in side and left[start][end] > 0:
                side.add(start)
                pending.append(start)
    return side


def _shortest(left: Mapping[Place, Mapping[Place, int]], source: Place, sink: Place) -> list[tuple[Place, Place]]:
    """The edges of a shortest augmenting path; empty where there is none."""
    before: dict[Place, Place] = {}
    pending = deque([source])
    while pending and sink not in before:
        start = pending.popleft()
        for end, free in left[start].items():
            if free > 0 and end not in before and end != source:
                before[end] = start
                pending.append(end)
    if sink not in before:
        return []
    path, end = list[tuple[Place, Place]](), sink
    while end != source:
        path.append((before[end], end))
        end = before[end]
    return path

"""Families of proposals: functions that add a node or a few to a graph, each with how often it is drawn."""

from __future__ import annotations

from collections.abc import Callable

from tests.random.graph import Graph

Proposal = Callable[[Graph], object]

FAMILIES: list[tuple[Proposal, float]] = []
QUANTIZED: list[tuple[Proposal, float]] = []
"""Those of graphs of quantised values, see `tests.random.quantized`."""


def proposal(weight: float = 1.0, families: list[tuple[Proposal, float]] = FAMILIES) -> Callable[[Proposal], Proposal]:
    """Registers a proposal. A proposal raises `Rejected` where nothing in the graph fits it."""

    def register(function: Proposal) -> Proposal:
        families.append((function, weight))
        return function

    return register

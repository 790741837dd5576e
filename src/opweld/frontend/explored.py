"""Adds the results of exploration to the nodes of a file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from opweld.frontend.segment import Variant
from opweld.record import FileNode


def explored_nodes(nodes: Iterable[FileNode], segments: Sequence[Sequence[Variant]]) -> tuple[FileNode, ...]:
    """The nodes with the results of inference: which of them a variant has, and whose results are compile-time
    constants."""
    reached: set[str] = set()
    computed: set[str] = set()
    for variant in (variant for own in segments for variant in own):
        for node in variant.nodes:
            reached.add(node.name or "")
            facts = [variant.facts.get(variant.resolve(value)) for value in node.outputs if value.name]
            if not all(fact is not None and (fact.elements is not None or fact.constant is not None) for fact in facts):
                computed.add(node.name or "")
    made: list[FileNode] = []
    for node in nodes:
        held = reached.intersection(node.called)
        known = node.operator == "Constant" or (bool(held) and not held & computed)
        made.append(replace(node, reached=bool(held), known=known))
    return tuple(made)

"""Segments: parts of a model that run one after the other, each bound to sizes that earlier ones have computed.

A model whose sizes all follow from its inputs is one segment. Where a size depends on data, such as the number of
non-zero elements, a branch or a loop, a segment ends: the next one begins with that number known. Values live in
an environment, by name; a segment reads some of them and adds others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from opweld import ir
from opweld.ops.fact import Fact
from opweld.tensor.flow import LAST, Ending
from opweld.tensor.program import Guard, SymbolSource


def resolved(aliases: Mapping[ir.Value, ir.Value], value: ir.Value) -> ir.Value:
    """The value itself, or the value of which it is an alias."""
    while value in aliases:
        value = aliases[value]
    return value


@dataclass(frozen=True, eq=False)
class Variant:
    """A segment under assumptions: a flat list of nodes, with the chosen bodies of Ifs in place of the Ifs.

    `aliases` maps outputs of such Ifs to the values of their bodies. `outputs` are (name in the environment, value).
    `ending`: the effects after it, and the next segment.
    """

    name: str
    graph: ir.Graph
    nodes: tuple[ir.Node, ...]
    inputs: tuple[ir.Value, ...]
    outputs: tuple[tuple[str, ir.Value], ...]
    facts: Mapping[ir.Value, Fact]
    aliases: Mapping[ir.Value, ir.Value]
    symbols: tuple[SymbolSource, ...]
    guards: tuple[Guard, ...]
    ending: Ending = LAST

    def resolve(self, value: ir.Value) -> ir.Value:
        """The value itself, or the value of which it is an alias."""
        return resolved(self.aliases, value)

"""Names of values that are unique in a model: bodies of control flow may reuse names."""

from __future__ import annotations

from opweld import ir


class Names:
    """Makes names of values unique in a graph and its bodies; those of the graph itself are kept."""

    def __init__(self, graph: ir.Graph) -> None:
        own = [*graph.inputs, *graph.stored, *(value for node in graph for value in node.outputs)]
        self._taken = {value.name for value in own if value.name}
        for body in graph.subgraphs:
            self._rename(body)

    def copied(self, body: ir.Graph) -> ir.Graph:
        """A copy of a body with unique names."""
        made = body.copied()
        for graph in (made, *made.subgraphs):
            self._rename(graph)
        return made

    def _rename(self, body: ir.Graph) -> None:
        kept = set(body.stored)
        for value in (*body.inputs, *(value for node in body for value in node.outputs)):
            if value.name and value not in kept:
                value.name = self.fresh(value.name)

    def fresh(self, name: str) -> str:
        """The name, or a similar unused one."""
        found, number = name, 2
        while found in self._taken:
            found, number = f"{name}/{number}", number + 1
        self._taken.add(found)
        return found
